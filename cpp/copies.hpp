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

// A block found in a frame of a lower tier: NONE when that tier has it already. Parents come first; restored() comes last.
inline u32 Pool::restore(u32 space, u32 parent, const u32* tokens, const std::string& extra, u32 k, u32 frame, double expires,
                         double now) {
  tick(now);
  if (k == DEVICE || k >= store.tiers() || frame >= store.tier(k).frames)
    throw Error(Kind::Config, "tier " + std::to_string(k) + " has no frame " + std::to_string(frame) + " to restore",
                {{"tier", double(k)}, {"frame", double(frame)}});
  const u32 root = spaces_[space].root, tenant = spaces_[space].tenant;
  if (parent != NONE && (parent >= store.records() || !(store.blocks[parent].flags & IN_TREE) ||
                         store.blocks[parent].root != root || !store.in(k, parent)))
    throw Error(Kind::Config, "the block before a restored one must be in its tier already", {{"parent", double(parent)}});
  if (expires <= now_) return NONE;
  const u32 key = extra.empty() ? 0 : extras_.take(extra);
  const u64 chain =
      chain_hash(parent == NONE ? salt_ : store.blocks[parent].chain, extras_.hash(key), tokens, options.block_size);
  u32 id = tree.find(root, parent, key, tokens, [&] { return chain; });
  const bool known = id != NONE;  // another tier has it too
  if (!known) id = store.create();
  if (store.in(k, id) || !store.tier(k).claim(id, frame)) {
    if (!known) store.destroy(id);
    extras_.drop(key);
    return NONE;
  }
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

}  // namespace tenure
