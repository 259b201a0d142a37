"""The words and numbers that tasks are made of: common English nouns by category, and distinct draws from them.
A small vocabulary on purpose: a model of a few hundred tokens can read every task that is made of it."""

from __future__ import annotations

from random import Random

from tenure.checks import integer

__all__ = ["CATEGORIES", "WORDS", "distinct", "numbers"]

CATEGORIES = {
    name: tuple(words.split())
    for name, words in {
        "animals": "horse dog cat sheep goat mouse rabbit tiger lion wolf bear fox deer camel donkey monkey snake frog "
        "turtle whale shark eagle pigeon duck goose chicken",
        "food": "apple pear plum cherry grape lemon peach melon carrot potato onion tomato bean corn rice wheat bread "
        "butter cheese honey sugar pepper soup salad cake sausage",
        "tools": "hammer saw drill wrench pliers chisel shovel rake axe knife scissors needle ladder bucket broom brush "
        "rope nail screw sickle lever pulley anvil trowel spade clamp",
        "body": "head hand foot arm leg knee elbow shoulder neck finger thumb toe ear eye nose mouth tongue tooth chin "
        "cheek heart lung liver stomach bone skin",
        "clothes": "shirt coat hat shoe sock glove scarf belt dress skirt jacket sweater boot sandal vest cap trousers suit "
        "tie apron cloak helmet ring mask robe blouse",
        "buildings": "house church tower castle bridge school hospital library museum station theatre factory barn palace "
        "temple prison hotel cottage stadium garage chapel kiosk mill inn cabin harbor",
        "nature": "river mountain forest lake ocean valley desert island beach hill cave swamp meadow glacier volcano "
        "canyon waterfall cliff creek pond jungle prairie dune reef bay shore",
        "weather": "rain snow wind storm fog hail thunder lightning cloud frost breeze sunshine drizzle blizzard hurricane "
        "tornado mist sleet gale heat flood drought rainbow ice dew shower",
        "vehicles": "car bus truck train plane boat ship bicycle tram taxi wagon rocket ferry canoe helicopter tractor van "
        "scooter sled cart yacht glider raft balloon subway jeep",
        "colours": "red blue green yellow orange purple brown black white gray pink violet silver gold crimson scarlet "
        "turquoise beige maroon indigo ivory amber olive teal magenta tan",
        "instruments": "piano violin guitar drum flute trumpet harp cello organ banjo clarinet oboe tuba fiddle horn bell lute "
        "bassoon cymbal accordion saxophone trombone mandolin viola gong whistle",
        "jobs": "doctor nurse teacher lawyer farmer baker butcher tailor sailor soldier pilot miner painter writer judge "
        "clerk cook dentist plumber carpenter engineer barber hunter singer actor priest",
        "furniture": "table chair bed sofa desk shelf cabinet lamp mirror carpet curtain drawer stool bench pillow blanket "
        "mattress clock vase couch wardrobe crib rug cushion candle dresser",
        "materials": "wood stone iron steel copper brass glass paper cotton wool silk leather rubber plastic clay brick marble "
        "sand concrete tin lead zinc linen wax chalk cardboard",
        "plants": "oak pine maple birch willow cedar elm palm fern moss rose tulip daisy lily orchid ivy cactus bamboo "
        "clover grass poppy thistle reed spruce lavender sunflower",
        "family": "mother father sister brother uncle aunt cousin nephew niece son daughter husband wife grandmother "
        "grandfather baby twin parent child widow bride groom orphan heir spouse ancestor",
    }.items()
}
WORDS = tuple(word for words in CATEGORIES.values() for word in words)


def distinct(random: Random, count: int) -> list[str]:
    """So many distinct names: single words as far as they go, beyond that all of two words with a hyphen. Raises ConfigError when
    there are not that many."""
    integer("the number of names", count, 0, len(WORDS) ** 2)
    if count <= len(WORDS):
        return random.sample(WORDS, count)
    pairs = random.sample(range(len(WORDS) ** 2), count)
    return [f"{WORDS[pair // len(WORDS)]}-{WORDS[pair % len(WORDS)]}" for pair in pairs]


def numbers(random: Random, count: int, digits: int = 4) -> list[str]:
    """So many distinct numbers of one length: `digits`, or more when those do not suffice. None contains another."""
    while 9 * 10 ** (digits - 1) < count:
        digits += 1
    return [str(number) for number in random.sample(range(10 ** (digits - 1), 10**digits), count)]
