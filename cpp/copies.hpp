// The copy of a block that a lower tier has: what it is of, that it was lost, and that it outlived its process.
#pragma once
#include <unordered_set>

#include "pool.hpp"

namespace tenure {

// A tier's copy of a block is bad or gone, and with it what it has below the block. What no other tier has is lost. Their frames
// are free at once: copies out of them that are under way do not count any more.
inline void Pool::lose(u32 k, u32 id, u32 generation, double now) {
  if (k == DEVICE) throw Error(Kind::Config, "only lower tiers lose blocks: the device's are the engine's", {{"tier", 0}});
  tick(now);
  if (id >= store.records() || store.blocks[id].generation != generation || !store.in(k, id)) return;
  std::vector<u32> below{id};
  for (std::size_t i = 0; i < below.size(); ++i)
    for (u32 child = store.blocks[below[i]].first_child; child != NONE; child = store.blocks[child].next)
      if (store.in(k, child)) below.push_back(child);
  const std::unordered_set<u32> gone(below.begin(), below.end());
  for (Sequence& seq : sequences)
    for (Load& load : seq.loads) load.lost |= load.tier == k && gone.contains(load.block);
  for (Transfer& t : transfers_) t.lost |= t.run != NONE && t.from == k && gone.contains(t.block);
  const u32 parent = store.blocks[id].parent;
  std::vector<Life> lives;
  for (const u32 at : below) lives.push_back({at, store.blocks[at].generation});
  for (std::size_t i = below.size(); i-- > 0;) {
    const u32 at = below[i];
    moved[k].lost++;
    unqueue(k, at);
    leave_tier(k, at, false);
  }
  for (std::size_t i = below.size(); i-- > 0;)
    if (store.fastest(below[i]) == NONE) doom(below[i], Reason::TierFailed);
  if (options.lower[k - 1].write != Write::Back)  // what another tier has is written here again
    for (const Life& life : lives)
      if (const Block& b = store.blocks[life.block]; b.generation == life.generation && (b.flags & IN_TREE) && !dead(b))
        want_written(k, life.block);
  if (parent != NONE) queue_if_evictable(k, parent);
}

inline Pool::Content Pool::content(u32 id, u32 generation) const {
  if (id >= store.records() || store.blocks[id].generation != generation || !(store.blocks[id].flags & IN_TREE) ||
      dead(store.blocks[id]))
    throw Error(Kind::StaleHandle, "the block is gone, or nobody may hit it any more", {{"block", double(id)}});
  const Block& b = store.blocks[id];
  const auto expiry = expiries_.find(id);
  const u32* tokens = store.tokens_of(id);
  return {tree.roots[b.root].space,
          b.parent,
          b.parent == NONE ? 0 : store.blocks[b.parent].generation,
          b.depth,
          expiry == expiries_.end() ? FOR_EVER : expiry->second,
          extras_.bytes(b.extra),
          {tokens, tokens + options.block_size}};
}

// The block with these tokens after `parent` is in a frame of a lower tier that no block has: `key` is handed over. NONE, and
// nothing has changed, when the tier has the block already.
inline u32 Pool::appear(u32 root, u32 parent, const u32* tokens, u32 key, u32 k, u32 frame, double expires) {
  const u32 tenant = tree.roots[root].tenant;
  const u64 chain =
      chain_hash(parent == NONE ? salt_ : store.blocks[parent].chain, extras_.hash(key), tokens, options.block_size);
  u32 id = tree.find(root, parent, key, tokens, [&] { return chain; });
  const bool known = id != NONE;  // another tier has it too
  if (known && store.in(k, id)) {
    extras_.drop(key);
    return NONE;
  }
  if (!known) id = store.create();
  store.tier(k).attach(id, frame);
  if (parent != NONE) unqueue(k, parent);
  tenants[tenant].in[k].used++;
  Block& b = store.blocks[id];
  if (known) {
    extras_.drop(key);
    tree.count_child(store.tier(k), id, 1);
  } else {
    b.root = root;
    b.parent = parent;
    b.depth = parent == NONE ? 0 : store.blocks[parent].depth + 1;
    b.chain = chain;
    b.extra = key;
    b.filled = u16(options.block_size);
    b.flags = HASHED;
    std::memcpy(store.tokens_of(id), tokens, options.block_size * sizeof(u32));
    tree.roots[root].live++;
    for (const Step step : {Step::Allocate, Step::Seal, Step::Release, Step::SwapOut}) move(id, step);  // in its former life
    tree.link(id);
  }
  Slot& s = store.tier(k).slots[id];
  s.last = now_;
  s.stamp = ++stamp_;
  introduce(k, id);
  note(Happened::Restore, id, k);
  const auto expiry = expiries_.find(id);
  if (expires < (expiry == expiries_.end() ? FOR_EVER : expiry->second)) set_expiry(id, expires);
  queue_if_evictable(k, id);
  return id;
}

// A block found in a frame of a lower tier: NONE when that tier has it already. Parents come first; restored() comes last.
inline u32 Pool::restore(u32 space, u32 parent, const u32* tokens, const std::string& extra, u32 k, u32 frame, double expires,
                         double now) {
  tick(now);
  if (k == DEVICE || k >= store.tiers() || frame >= store.tier(k).frames)
    throw Error(Kind::Config, "tier " + std::to_string(k) + " has no frame " + std::to_string(frame) + " to restore",
                {{"tier", double(k)}, {"frame", double(frame)}});
  const u32 root = spaces_[space].root;
  if (parent != NONE && (parent >= store.records() || !(store.blocks[parent].flags & IN_TREE) ||
                         store.blocks[parent].root != root || !store.in(k, parent)))
    throw Error(Kind::Config, "the block before a restored one must be in its tier already", {{"parent", double(parent)}});
  if (expires <= now_ || !store.tier(k).is_nobodys(frame)) return NONE;
  return appear(root, parent, tokens, extra.empty() ? 0 : extras_.take(extra), k, frame, expires);
}

// Of the full blocks of a prompt: how many there are, how many from the first on other tiers have, and how many this one has.
inline Pool::Reach Pool::reach(u32 space, const u32* tokens, u64 count, const Request& request, u32 k, double now) {
  tick(now);
  const std::vector<u32> extra = intern_extras(request, count);
  walk(spaces_[space].root, tokens, count, request, extra);
  drop_extras(extra);
  Reach reach{u32(std::min(count, request.most_hit(count)) / options.block_size), 0, 0};
  bool nearer = true, here = true;
  for (const auto* part : {&found_, &lower_})
    for (const u32 id : *part) {
      reach.nearer += nearer = nearer && store.elsewhere(k, id);
      reach.here += here = here && store.in(k, id);
    }
  return reach;
}

// The blocks `from` to `upto` of a prompt are in a lower tier whose frames are only what is known of it: those that it lacked
// have one afterwards, as far as there is room, and as far as none of them is being written there, nor missing before them.
// Returns the new ones, in order.
inline std::vector<Pool::Seen> Pool::discover(u32 space, const u32* tokens, u64 count, const Request& request, u32 k, u32 from,
                                              u32 upto, double now) {
  if (k == DEVICE || k >= store.tiers())
    throw Error(Kind::Config, "there is no lower tier " + std::to_string(k), {{"tier", double(k)}});
  tick(now);
  std::vector<Seen> seen;
  if (!(spaces_[space].tiers >> k & 1)) return seen;
  const std::vector<u32> extra = intern_extras(request, count);
  const u32 root = spaces_[space].root, size = options.block_size;
  u32 parent = NONE;
  for (u32 i = 0; i < upto && (u64(i) + 1) * size <= count; ++i) {
    const u32* ids = tokens + u64(i) * size;
    const u32 key = extra.empty() ? 0 : extra[i];
    const auto chain = [&] {
      return chain_hash(parent == NONE ? salt_ : store.blocks[parent].chain, extras_.hash(key), ids, size);
    };
    u32 id = tree.find(root, parent, key, ids, chain);
    if (id == NONE || !store.in(k, id)) {
      if (i < from || (id != NONE && (dead(store.blocks[id]) || writing(k, id)))) break;
      const u32 generation = id == NONE ? 0 : store.blocks[id].generation;
      if (parent != NONE) unqueue(k, parent);  // what comes after it needs it there
      const bool room = room_in(k, spaces_[space].tenant) && (parent == NONE || store.in(k, parent)) &&
                        (id == NONE || store.blocks[id].generation == generation);
      if (!room) {
        if (parent != NONE && store.in(k, parent)) queue_if_evictable(k, parent);
        break;
      }
      extras_.retain(key);
      id = appear(root, parent, ids, key, k, store.tier(k).take_frame(), FOR_EVER);
      seen.push_back({i, id, store.blocks[id].generation, store.tier(k).slots[id].frame});
    }
    parent = id;
  }
  drop_extras(extra);
  return seen;
}

}  // namespace tenure
