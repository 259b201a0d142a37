// Bytes that come up: a hit that only a lower tier has is a load, which lands in a block of the request's own. The copying is the
// caller's.
#pragma once
#include "pool.hpp"

namespace tenure {

inline std::vector<Load> Pool::loads(u64 handle) { return sequence(handle).loads; }

// The tree's block takes over the frame of the sequence's own one at table position i, and its place in the table.
inline bool Pool::adopt(Sequence& seq, u32 i, u32 id) {
  const u32 own = seq.blocks[i];
  Block& o = store.blocks[own];
  if (o.refs > 1 || o.holds) return false;
  Block& b = store.blocks[id];
  const u32 frame = store.device.slots[own].frame;
  if (!b.busy()) unqueue(id);
  store.device.slots[own].frame = NONE;
  store.device.attach(id, frame);
  b.refs++;  // the tenant has as many frames as before, and as many busy ones
  move(own, Step::ReleasePartial);
  note(Happened::Free, own);
  forget_rest(own);
  store.destroy(own);
  tree.roots[seq.root].live--;
  for (Copy& copy : seq.copies)
    if (copy.target == own) copy.target = id;
  seq.blocks[i] = id;
  move(id, Step::SwapIn);
  tree.count_child(store.device, id, 1);
  b.flags |= ENTERED;
  Policy& policy = *tenants[seq.tenant].device().policy;
  if (policy.wants_life) policy.enter(id, ghost_key(b), now_);
  note(Happened::SwapIn, id);
  return true;
}

inline void Pool::drop_loads(Sequence& seq, u32 from) {
  for (u32 i = u32(seq.loads.size()); i-- > from;) {  // the deepest first: a dead block goes with all below it
    moved[seq.loads[i].tier].unloaded++;
    tenants[seq.tenant].counters.missed[u8(Reason::TierFailed)]++;
    unhold(seq.loads[i].block);
  }
  seq.loads.clear();
}

// The first `loaded` loads have put verified bytes into the sequence's frames: those blocks are hits. The rest is to be computed.
inline u64 Pool::finish_loads(u64 handle, u32 loaded, double now) {
  Sequence& seq = sequence(handle);
  if (loaded > seq.loads.size())
    throw Error(Kind::Config,
                std::to_string(loaded) + " loads cannot be done: the sequence has " + std::to_string(seq.loads.size()),
                {{"loaded", double(loaded)}, {"loads", double(seq.loads.size())}});
  tick(now);
  if (seq.loads.empty()) return u64(seq.matched) * options.block_size;
  u32 done = 0;
  for (; done < loaded; ++done) {
    const Load load = seq.loads[done];
    const u32 i = seq.matched + done;
    Block& b = store.blocks[load.block];
    if (dead(b) || !(b.flags & IN_TREE)) break;
    if (store.in(DEVICE, load.block)) {  // another request has brought it meanwhile
      const u32 own = seq.blocks[i];
      refer(load.block);
      note(Happened::Hit, load.block);
      seq.blocks[i] = load.block;
      unrefer(own);
    } else if (load.lost || !adopt(seq, i, load.block)) {
      break;
    } else {
      for (u32 k = 1; k < load.tier; ++k)
        if (options.lower[k - 1].write == Write::Through) want_written(k, load.block);
    }
    unhold(load.block);
    moved[load.tier].loaded++;
  }
  Counters& c = tenants[seq.tenant].counters;
  drop_loads(seq, done);
  seq.matched += done;
  seq.sealed = seq.matched;
  seq.written = std::max(seq.written, u64(seq.matched) * options.block_size);
  c.blocks_hit += done;
  c.tokens_hit += u64(done) * options.block_size;
  if (seq.request.written) {
    seq.written = seq.length;
    seal_written(seq, 0, nullptr);
  }
  return u64(seq.matched) * options.block_size;
}

}  // namespace tenure
