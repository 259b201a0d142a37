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
  const u32 records = store.records();

  // References, holds and pins, counted from those who have them.
  std::vector<u32> refs(records), holds(records), pins(records);
  std::array<std::vector<u32>, MOST_TIERS> children;
  for (u32 k = 0; k < store.tiers(); ++k) children[k].resize(records);
  std::vector<u32> live(tree.roots.size());
  for (const Sequence& seq : sequences) {
    if (!seq.alive) continue;
    live[seq.root]++;
    same("blocks of a sequence", double(seq.blocks.size()), double((seq.length + options.block_size - 1) / options.block_size));
    for (u32 id : seq.blocks) refs[id]++;
    for (u32 id : seq.twins)
      if (id != NONE) refs[id]++;
    for (const Copy& copy : seq.copies) holds[copy.source]++;
    for (const Load& load : seq.loads) holds[load.block]++;
  }
  std::array<std::vector<u64>, MOST_TIERS> used, queued;  // by tier and tenant
  for (u32 k = 0; k < store.tiers(); ++k) {
    used[k].resize(tenants.size());
    queued[k].resize(tenants.size());
  }
  std::array<u64, MOST_TIERS> incoming{};
  for (const Transfer& transfer : transfers_) {
    if (!transfer.alive) continue;
    used[transfer.to][transfer.tenant]++;
    incoming[transfer.to]++;
  }
  for (const Run& run : runs_)
    for (u32 id = run.deepest; id != NONE; id = store.blocks[id].parent) holds[id]++;
  for (const Lease& lease : leases) {
    if (!lease.alive) continue;
    live[lease.root]++;
    for (u32 id = lease.block; id != NONE; id = store.blocks[id].parent) (lease.kind == LeaseKind::Lookup ? holds : pins)[id]++;
  }

  std::array<u64, STATE_NAMES.size()> count{};
  std::array<u64, MOST_TIERS> held{};
  std::vector<u64> busy(tenants.size()), pinned_by(tenants.size());
  for (u32 id = 0; id < records; ++id) {
    const Block& b = store.blocks[id];
    const std::string name = "block " + std::to_string(id) + ": ";
    if (b.state == State::Free) continue;
    count[u8(b.state)]++;
    live[b.root]++;
    same(name + "references", b.refs, refs[id]);
    same(name + "holds", b.holds, holds[id]);
    same(name + "pins", b.pins, pins[id]);
    same(name + "on the device", store.in(DEVICE, id), b.state != State::Swapped);
    const u32 tenant = tenant_of(b);
    const bool linked = (b.flags & IN_TREE) && b.parent != NONE;
    if (store.fastest(id) == NONE && !(b.busy() && (b.flags & DOOMED))) fail(name + "frames", 0, 1);
    for (u32 k = 0; k < store.tiers(); ++k) {
      const Slot& s = store.tier(k).slots[id];
      const std::string where = name + "in tier " + std::to_string(k) + ": ";
      const bool evictable_here = evictable(k, id);
      same(where + "in the evictable queue", s.queued != NONE && s.frame != NONE, evictable_here);
      if (s.frame == NONE) continue;
      held[k]++;
      used[k][tenant]++;
      queued[k][tenant] += evictable_here;
      same(where + "holder of its frame", store.tier(k).holder[s.frame], id);
      if (!linked) continue;
      children[k][b.parent]++;
      if (!store.in(k, b.parent)) fail(where + "without the block before it", 0, 1);
    }
    if (linked) {
      if (b.busy() && !store.blocks[b.parent].busy() && b.state != State::Swapped) fail(name + "busy below an idle parent", 1, 0);
      same(name + "depth", b.depth, store.blocks[b.parent].depth + 1);
    }
    if ((b.flags & IN_TREE) && !tree.roots[b.root].dead)
      same(name + "found in the index", tree.find(b.root, b.parent, b.extra, store.tokens_of(id), [&] { return b.chain; }), id);
    if (b.state == State::Active && (b.flags & IN_TREE)) fail(name + "active in the tree", 1, 0);
    if (b.state == State::Sealed && !b.busy()) fail(name + "sealed and idle", 1, 0);
    if ((b.state == State::Cached || b.state == State::Swapped) && b.refs) fail(name + "idle and referenced", b.refs, 0);
    busy[tenant] += b.busy() && b.state != State::Swapped;
    pinned_by[tenant] += b.pins != 0;
  }
  for (u32 k = 0; k < store.tiers(); ++k) {
    const std::string tier = "tier " + std::to_string(k) + ": ";
    for (u32 id = 0; id < records; ++id)
      if (store.blocks[id].state != State::Free)
        same(tier + "children of block " + std::to_string(id), store.tier(k).slots[id].children, children[k][id]);
    same(tier + "free + used + incoming", double(store.tier(k).free() + held[k] + incoming[k]), store.tier(k).frames);
  }
  for (u8 state = 1; state < STATE_NAMES.size(); ++state)
    same(std::string(STATE_NAMES[state]) + " blocks", states[state], double(count[state]));
  same("free + active + sealed + cached",
       double(store.device.free() + count[u8(State::Active)] + count[u8(State::Sealed)] + count[u8(State::Cached)]),
       options.frames);
  u64 guaranteed = 0, pinned_all = 0;
  for (u32 t = 0; t < tenants.size(); ++t) {
    const std::string name = "tenant '" + tenants[t].name + "': ";
    for (u32 k = 0; k < store.tiers(); ++k) {
      const Share& share = tenants[t].in[k];
      const std::string where = name + "in tier " + std::to_string(k) + ": ";
      same(where + "frames", share.used, double(used[k][t]));
      same(where + "queued blocks", share.queued, double(queued[k][t]));
      same(where + "blocks in its policy's queue", double(share.policy->order(now_).size()), double(queued[k][t]));
    }
    same(name + "busy frames", tenants[t].busy, double(busy[t]));
    same(name + "pinned frames", tenants[t].pinned, double(pinned_by[t]));
    guaranteed += std::max(tenants[t].busy, tenants[t].device().floor);
    pinned_all += pinned_by[t];
  }
  same("frames promised", double(tenants.guaranteed()), double(guaranteed));
  if (guaranteed > options.frames) fail("frames promised beyond the pool", double(guaranteed), options.frames);
  same("pinned frames", pinned, double(pinned_all));
  for (u32 r = 0; r < tree.roots.size(); ++r)
    same("blocks, sequences and leases of root " + std::to_string(r), tree.roots[r].live, live[r]);
}

// What there is of each namespace, in whatever tier: those that have something, in order.
inline std::vector<Pool::Held> Pool::held() const {
  std::vector<u32> running(tree.roots.size());
  for (const Sequence& seq : sequences)
    if (seq.alive) running[seq.root]++;
  std::vector<Held> spaces(spaces_.size());
  for (u32 r = 0; r < tree.roots.size(); ++r) {
    const Root& root = tree.roots[r];
    const u32 here = root.live - root.leases;  // sequences and blocks
    if (here == 0) continue;
    Held& space = spaces[root.space];
    space.sequences += running[r];
    space.blocks += here - running[r];
    if (spaces_[root.space].root == r) space.valid += here;
  }
  std::vector<Held> found;
  for (u32 s = 0; s < spaces.size(); ++s)
    if (spaces[s].sequences + spaces[s].blocks) found.push_back({s, spaces[s].sequences, spaces[s].blocks, spaces[s].valid});
  return found;
}

inline std::vector<Pool::Listed> Pool::inventory() const {
  std::vector<Listed> held;
  for (u32 id = 0; id < store.records(); ++id) {
    const Block& b = store.blocks[id];
    if (!(b.flags & IN_TREE) || dead(b)) continue;
    u32 in = 0;
    for (u32 k = 0; k < store.tiers(); ++k) in |= u32(store.in(k, id)) << k;
    held.push_back({id, b.generation, b.depth, in});
  }
  return held;
}

inline std::vector<u32> Pool::order(u32 k, u32 tenant, double now) {
  tick(now);
  return tenants[tenant].in[k].policy->order(now_);
}

}  // namespace tenure
