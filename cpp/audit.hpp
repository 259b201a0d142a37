// The books, checked: every invariant of the pool, recomputed from the records. check() says with numbers what is wrong.
#pragma once
#include "pool.hpp"

namespace tenure {

inline void Pool::check() const {
  const auto fail = [](const std::string& what, double is, double should) {
    throw Error(Kind::Integrity, what + ": " + std::to_string(is) + ", should be " + std::to_string(should),
                {{"is", is}, {"should", should}});
  };
  const auto same = [&](const std::string& what, double is, double should) {
    if (is != should) fail(what, is, should);
  };
  const auto& device = store.device;
  const u32 records = store.records();

  // References, holds and pins, counted from those who have them.
  std::vector<u32> refs(records), holds(records), pins(records), children(records);
  std::vector<u32> live(tree.roots.size());
  for (const Sequence& seq : sequences) {
    if (!seq.alive) continue;
    live[seq.root]++;
    same("blocks of a sequence", double(seq.blocks.size()), double((seq.length + options.block_size - 1) / options.block_size));
    for (u32 id : seq.blocks) refs[id]++;
    for (u32 id : seq.twins)
      if (id != NONE) refs[id]++;
    for (const Copy& copy : seq.copies) holds[copy.source]++;
  }
  for (const Lease& lease : leases) {
    if (!lease.alive) continue;
    live[lease.root]++;
    for (u32 id = lease.block; id != NONE; id = store.blocks[id].parent) (lease.kind == LeaseKind::Lookup ? holds : pins)[id]++;
  }

  std::array<u64, STATE_NAMES.size()> count{};
  std::vector<u64> used(tenants.size()), busy(tenants.size()), pinned_by(tenants.size()), queued(tenants.size());
  for (u32 id = 0; id < records; ++id) {
    const Block& b = store.blocks[id];
    const std::string name = "block " + std::to_string(id) + ": ";
    if (b.state == State::Free) continue;
    const Slot& s = device.slots[id];
    count[u8(b.state)]++;
    live[b.root]++;
    same(name + "references", b.refs, refs[id]);
    same(name + "holds", b.holds, holds[id]);
    same(name + "pins", b.pins, pins[id]);
    if (s.frame == NONE) fail(name + "frame", -1, 0);
    same(name + "holder of its frame", device.holder[s.frame], id);
    if ((b.flags & IN_TREE) && b.parent != NONE) {
      children[b.parent]++;
      if (b.busy() && !store.blocks[b.parent].busy()) fail(name + "busy below an idle parent", 1, 0);
      same(name + "depth", b.depth, store.blocks[b.parent].depth + 1);
    }
    if ((b.flags & IN_TREE) && !tree.roots[b.root].dead)
      same(name + "found in the index", tree.find(b.root, b.parent, b.extra, store.tokens_of(id), [&] { return b.chain; }), id);
    if (b.state == State::Active && (b.flags & IN_TREE)) fail(name + "active in the tree", 1, 0);
    if (b.state == State::Sealed && !b.busy()) fail(name + "sealed and idle", 1, 0);
    if (b.state == State::Cached && b.refs) fail(name + "cached and referenced", b.refs, 0);
    const u32 tenant = tenant_of(b);
    used[tenant]++;
    busy[tenant] += b.busy();
    pinned_by[tenant] += b.pins != 0;
    const bool evictable = b.state == State::Cached && !b.busy() && s.children == 0;
    same(name + "in the evictable queue", s.queued != NONE, evictable);
    queued[tenant] += evictable;
  }
  for (u32 id = 0; id < records; ++id)
    if (store.blocks[id].state != State::Free)
      same("block " + std::to_string(id) + ": children", device.slots[id].children, children[id]);
  u64 all = 0;
  for (u8 state = 1; state < STATE_NAMES.size(); ++state) {
    same(std::string(STATE_NAMES[state]) + " frames", states[state], double(count[state]));
    all += count[state];
  }
  same("free frames", device.free(), states[u8(State::Free)]);
  same("free + active + sealed + cached", double(all + device.free()), options.frames);
  u64 guaranteed = 0, pinned_all = 0;
  for (u32 t = 0; t < tenants.size(); ++t) {
    const std::string name = "tenant '" + tenants[t].name + "': ";
    same(name + "frames", tenants[t].used, double(used[t]));
    same(name + "busy frames", tenants[t].busy, double(busy[t]));
    same(name + "pinned frames", tenants[t].pinned, double(pinned_by[t]));
    same(name + "queued blocks", tenants[t].queued, double(queued[t]));
    same(name + "blocks in its policy's queue", double(tenants[t].policy->order(now_).size()), double(queued[t]));
    guaranteed += std::max(tenants[t].busy, tenants[t].floor);
    pinned_all += pinned_by[t];
  }
  same("frames promised", double(tenants.guaranteed()), double(guaranteed));
  if (guaranteed > options.frames) fail("frames promised beyond the pool", double(guaranteed), options.frames);
  same("pinned frames", pinned, double(pinned_all));
  for (u32 r = 0; r < tree.roots.size(); ++r)
    same("blocks, sequences and leases of root " + std::to_string(r), tree.roots[r].live, live[r]);
}

inline std::vector<u32> Pool::order(u32 tenant, double now) {
  tick(now);
  return tenants[tenant].policy->order(now_);
}

}  // namespace tenure
