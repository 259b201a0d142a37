"""Tiers at random against a shadow of their bytes: whatever happens, a hit, a load and a write find their own block's bytes."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from tenure import BlockManager, CapacityError, Identity, LowerTier, Quota, Sequence, StaleHandleError, Write
from tenure.lab.settings import POLICIES

SIZE = 2
Key = tuple[Any, ...]


class Machine:
    """An engine whose KV is the name of what was computed: who, and all tokens up to the block's end."""

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        self.now = 0.0
        lower = [
            LowerTier(
                f"t{k}",
                r.randint(2, 40),
                r.choice(POLICIES),
                write=r.choice(("through", "through", "selective", "back")),
                uses=r.randint(1, 3),
            )
            for k in range(r.randint(1, 3))
        ]
        self.kv = BlockManager(
            r.randint(7, 12),
            SIZE,
            policy=r.choice(POLICIES),
            clock=lambda: self.now,
            on_duplicate=r.choice(("keep", "rewrite")),
            partial_reuse=r.choice((0, 1)),
            lower=lower,
        )
        self.sizes = [self.kv.frames, *(tier.frames for tier in lower)]
        self.bytes: dict[str, dict[int, Key]] = {tier: {} for tier in self.kv.tiers}
        self.people = [Identity(model="m", tenant=name) for name in "ab"]
        self.texts = [[r.randint(0, 1) for _ in range(10)] for _ in range(5)]
        self.open: list[tuple[Sequence, Identity, list[int]]] = []
        self.loading: list[tuple[Sequence, Identity, list[int]]] = []
        self.writes: dict[str, list[Write]] = {tier.name: [] for tier in lower}
        self.loaded = self.stored = self.discovered = 0

    # -- what the engine does with bytes

    def key(self, who: Identity, tokens: list[int], block: int) -> Key:
        return (who.tenant, *tokens[: (block + 1) * SIZE])

    def compute(self, seq: Sequence, who: Identity, tokens: list[int], first: int) -> None:
        """Writes what is not there; what was a hit must be there."""
        for copy in seq.copies:
            self.bytes["device"][copy.target] = ("part",)
        table = seq.block_table
        for block in range(len(tokens) // SIZE):
            key = self.key(who, tokens, block)
            if block < first:
                assert self.bytes["device"].get(int(table[block])) == key, "a hit without its bytes"
            else:
                self.bytes["device"][int(table[block])] = key

    def prompt(self) -> list[int]:
        """Mostly the beginning of one of a few texts, then something of its own."""
        text = self.texts[self.random.randrange(len(self.texts))]
        return text[: self.random.randint(0, len(text))] + [self.random.randint(0, 1) for _ in range(self.random.randint(1, 4))]

    # -- one step each

    def admit(self) -> None:
        who, tokens = self.random.choice(self.people), self.prompt()
        expire = self.random.choice((None, None, None, 3.0))
        protect = self.random.choice((None, None, 2.0))
        try:
            seq = self.kv.sequence(tokens, who, expire_after=expire, protect_for=protect, written=False)
        except CapacityError:
            return
        if seq.loads:
            self.loading.append((seq, who, tokens))
        else:
            self.start(seq, who, tokens)

    def start(self, seq: Sequence, who: Identity, tokens: list[int]) -> None:
        self.compute(seq, who, tokens, seq.hit_tokens // SIZE)
        seq.seal()
        self.open.append((seq, who, tokens))

    def load(self) -> None:
        if not self.loading:
            return
        seq, who, tokens = self.loading.pop(self.random.randrange(len(self.loading)))
        if self.random.random() < 0.1:
            seq.abort()
            return
        first, good = seq.hit_tokens // SIZE, 0
        fails = self.random.random() < 0.2
        for i, load in enumerate(seq.loads):
            key = self.key(who, tokens, first + i)
            here = self.bytes[load.tier].get(load.source) == key
            holder = self.kv.block(load.source, load.tier)
            assert here or holder is None or holder.handle != load.name, "a load without its bytes"
            self.bytes["device"][load.target] = key if here else ("nothing",)
            if not here or (fails and self.random.random() < 0.5):
                if load.tier != "device" and self.random.random() < 0.5:
                    self.kv.lose(load.tier, load.name)
                    self.kv.check()
                break
            good += 1
        was = seq.hit_tokens
        hit = seq.loaded(good)
        self.loaded += (hit - was) // SIZE
        self.start(seq, who, tokens)

    def append(self) -> None:
        if not self.open:
            return
        i = self.random.randrange(len(self.open))
        seq, who, tokens = self.open[i]
        more = [self.random.randint(0, 1) for _ in range(self.random.randint(1, 4))]
        try:
            seq.append(more, written=False)
        except CapacityError:
            return
        done = len(tokens) // SIZE
        self.open[i] = (seq, who, tokens + more)
        self.compute(seq, who, tokens + more, done)
        seq.seal()

    def fork(self) -> None:
        if self.open:
            seq, who, tokens = self.random.choice(self.open)
            self.open.append((seq.fork(), who, tokens))

    def truncate(self) -> None:
        if self.open:
            i = self.random.randrange(len(self.open))
            seq, who, tokens = self.open[i]
            length = self.random.randint(0, len(tokens))
            seq.truncate(length)
            self.open[i] = (seq, who, tokens[:length])

    def release(self) -> None:
        if self.open:
            seq, _, _ = self.open.pop(self.random.randrange(len(self.open)))
            self.random.choice((seq.release, seq.release, seq.abort))()

    def write(self) -> None:
        tier = self.random.choice(list(self.writes))
        for order in self.kv.take_writes(tier, self.random.randint(2, 9), demote=self.random.randint(0, 3)):
            content = self.kv.content(order.name)
            self.bytes[tier][order.target] = self.bytes[order.origin][order.source]
            assert self.bytes[tier][order.target][-SIZE:] == tuple(content.tokens), "a write without its bytes"
            assert len(self.bytes[tier][order.target]) == 1 + (content.depth + 1) * SIZE
            self.writes[tier].append(order)

    def finish(self) -> None:
        tier = self.random.choice(list(self.writes))
        for _ in range(max(self.random.randint(0, len(self.writes[tier])) for _ in range(3))):
            order = self.writes[tier].pop(0)
            self.stored += self.kv.finish_write(order, self.random.random() < 0.9)
            self.kv.check()

    def lose(self) -> None:
        tier = self.random.choice(list(self.writes))
        frame = self.random.randrange(1 + max(self.bytes[tier], default=0))
        info = self.kv.block(frame, tier) if frame in self.bytes[tier] else None
        if info is not None and self.random.random() < 0.3:
            self.kv.lose(tier, info.handle)

    def discover(self) -> None:
        """Somebody else has put the beginning of a prompt into a tier."""
        who, tokens, tier = self.random.choice(self.people), self.prompt(), self.random.choice(list(self.writes))
        before = self.kv.reach(tokens, who, tier)
        upto = self.random.randint(0, before.full)
        first = self.random.choice((0, 0, before.here, self.random.randint(0, upto)))
        found = self.kv.discover(tokens, who, tier, upto, first=first)
        assert not found or first <= before.here
        self.kv.check()
        for at, name, frame in found:
            assert before.here <= at < upto
            self.bytes[tier][frame] = self.key(who, tokens, at)
            assert tuple(self.kv.content(name).tokens) == tuple(tokens[at * SIZE : (at + 1) * SIZE])
            self.discovered += 1
        after = self.kv.reach(tokens, who, tier)
        assert after.here >= before.here + len(found)
        assert after.full == before.full

    def operate(self) -> None:
        self.now += self.random.choice((0.5, 1.0, 4.0))
        what = self.random.randint(0, 15)
        if what == 0:
            self.kv.invalidate(tenant=self.random.choice("ab"))
        elif what == 1:
            self.kv.clear()
        elif what == 2:
            self.kv.sweep()
        elif what == 3:
            self.kv.set_policy(self.random.choice(POLICIES), tier=self.random.choice(self.kv.tiers))
        elif what == 4:
            quota = Quota(floor=self.random.choice((0.0, 0.3)), cap=self.random.choice((0.5, 1.0)))
            with contextlib.suppress(CapacityError):
                self.kv.tenants[self.random.choice("ab")] = quota

    def run(self, steps: int) -> None:
        verbs = [self.admit] * 7 + [self.load] * 3 + [self.write, self.finish] * 4 + [self.append] * 2 + [self.release] * 6
        verbs += [self.fork, self.truncate, self.lose, self.operate, self.discover, self.discover]
        for _ in range(steps):
            self.random.choice(verbs)()
            self.kv.check()
        for orders in self.writes.values():
            for order in orders:
                self.kv.finish_write(order, True)
        for seq, _, _ in self.open + self.loading:
            seq.abort()
        counts = self.kv.check()
        assert counts.active == counts.sealed == 0
        self.now += 100
        self.kv.clear()
        counts = self.kv.check()
        assert counts.free == counts.frames
        assert [self.kv.tier_stats(tier).free for tier in self.kv.tiers] == self.sizes


@pytest.mark.parametrize("seed", range(60))
def test_tiers_at_random(seed: int) -> None:
    Machine(seed).run(300)


def test_the_random_machine_does_what_it_is_for() -> None:
    machines = [Machine(seed) for seed in range(20)]
    for machine in machines:
        machine.run(200)
    assert sum(machine.loaded for machine in machines) > 50
    assert sum(machine.stored for machine in machines) > 200
    assert sum(machine.discovered for machine in machines) > 200


def test_bytes_that_go_astray_are_noticed() -> None:
    """The control: a machine whose lower frames all hold something else finds out."""

    class Astray(Machine):
        def finish(self) -> None:
            super().finish()
            for frames in (self.bytes[tier] for tier in self.writes):
                for frame in frames:
                    frames[frame] = ("astray",)

    def goes_wrong(seed: int) -> bool:
        try:
            Astray(seed).run(300)
        except (AssertionError, StaleHandleError):
            return True
        return False

    assert any(goes_wrong(seed) for seed in range(10))
