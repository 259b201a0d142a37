// What outlives a request: leases (pins, anchors, protection, look-ups), expiry, invalidation.
#pragma once
#include "pool.hpp"

namespace tenure {

inline std::string anchor_name(u32 tenant, const std::string& session) { return std::to_string(tenant) + ":" + session; }

// Frames that a pin on this path would newly pin; `newly_busy`: of those, the ones that could be evicted until now.
inline u32 Pool::pins_needed(u32 block, u32& newly_busy) const {
  u32 needed = 0;
  newly_busy = 0;
  for (u32 id = block; id != NONE; id = store.blocks[id].parent) {
    needed += store.blocks[id].pins == 0;
    newly_busy += !store.blocks[id].busy();
  }
  return needed;
}

inline bool Pool::within_budget(u32 tenant, u32 pins) const {
  return u64(pinned) + pins <= part_of(options.pin_budget, options.frames) &&
         u64(tenants[tenant].pinned) + pins <= tenants[tenant].pin_cap;
}

inline void Pool::place_lease(Lease& lease, bool place) {
  const bool reads = lease.kind == LeaseKind::Lookup;
  u32 above;
  for (u32 id = lease.block; id != NONE; id = above) {
    above = store.blocks[id].parent;  // settling may free the block
    note(place ? Happened::Pin : Happened::Unpin, id);
    if (place) {
      reads ? hold(id) : pin(id);
    } else {
      reads ? unhold(id) : unpin(id);
    }
  }
}

inline u64 Pool::new_lease(Lease&& lease) {
  const u32 index = place(leases, spare_leases_);
  lease.generation = leases[index].generation;
  lease.alive = true;
  place_lease(lease, true);
  tree.roots[lease.root].leases++;
  tree.roots[lease.root].live++;  // even one without a block keeps its root from being used again
  const Agenda::Due due{lease.deadline, index, lease.generation};
  leases[index] = std::move(lease);
  if (due.when < FOR_EVER) lease_deadlines_.add(due, [this](const Agenda::Due& d) { return lease_in_force(d); });
  return handle_of(index, leases[index].generation, true);
}

inline void Pool::drop_lease(u32 index) {
  Lease& lease = leases[index];
  lease.alive = false;
  lease.generation++;
  if (lease.kind == LeaseKind::Anchor) anchors_.erase(anchor_name(lease.tenant, lease.owner));
  place_lease(lease, false);
  tree.roots[lease.root].leases--;
  if (--tree.roots[lease.root].live == 0) reap(lease.root);
  spare_leases_.push_back(index);
}

inline u64 Pool::lease(LeaseKind kind, u32 space, const u32* tokens, u64 count, const Request& request, const std::string& owner,
                       double ttl, double now) {
  tick(now);
  const std::vector<u32> extra = intern_extras(request, count);
  const Found found = walk(spaces_[space].root, tokens, count, request, extra);
  drop_extras(extra);
  const u32 tenant = spaces_[space].tenant;
  Lease lease{0, true, kind, found.matched ? found_.back() : NONE, spaces_[space].root, tenant, found.matched, now_ + ttl, owner};
  if (leases.size() - spare_leases_.size() >= MOST_PLACES)
    throw Error(Kind::Budget, std::to_string(MOST_PLACES) + " leases are open: release some first",
                {{"leases", double(MOST_PLACES)}});
  if (lease.block != NONE) {
    u32 busy = 0;
    const u32 pins = pins_needed(lease.block, busy);
    if (kind != LeaseKind::Lookup && !within_budget(tenant, pins)) {
      const Tenant& t = tenants[tenant];
      refused_leases++;
      throw Error(Kind::Budget,
                  "a pin of " + std::to_string(pins) + " frames more is over budget: " + std::to_string(pinned) + " of " +
                      std::to_string(part_of(options.pin_budget, options.frames)) + " are pinned in all, " +
                      std::to_string(t.pinned) + " of " + std::to_string(t.pin_cap) + " by tenant '" + t.name + "'",
                  {{"needed", double(pins)},
                   {"pinned", double(pinned)},
                   {"budget", double(part_of(options.pin_budget, options.frames))},
                   {"tenant_pinned", double(t.pinned)},
                   {"tenant_budget", double(t.pin_cap)}});
    }
    refuse(tenant, busy, "the lease");
  }
  return new_lease(std::move(lease));
}

inline bool Pool::end_lease(u64 handle, double now) {
  const u32 index = index_of(handle, true, "lease");
  const u32 life = u32(handle >> 37), next = index < leases.size() ? leases[index].generation & 0x7FFFFFF : 0;
  if (index >= leases.size() || life > next || (life == next && !leases[index].alive))
    throw Error(Kind::StaleHandle, "no such lease was ever given", {{"handle", double(index)}});
  tick(now);
  if (!leases[index].alive || handle != handle_of(index, leases[index].generation, true)) return false;  // it has ended: harmless
  drop_lease(index);
  return true;
}

inline std::vector<u32> Pool::lease_frames(u64 handle) const {
  const u32 index = index_of(handle, true, "lease");
  if (index >= leases.size() || !leases[index].alive || handle != handle_of(index, leases[index].generation, true))
    throw Error(Kind::StaleHandle, "the lease has ended: its frames may hold anything", {{"handle", double(index)}});
  std::vector<u32> frames;
  for (u32 id = leases[index].block; id != NONE; id = store.blocks[id].parent) frames.push_back(store.device.slots[id].frame);
  std::reverse(frames.begin(), frames.end());
  return frames;
}

// At release: protection for a time, and the session's anchor moved on to its newest prefix. Over budget is a counted refusal.
inline void Pool::keep_after_release(Sequence& seq) {
  if ((seq.request.protect_for <= 0 && seq.request.anchor_for <= 0) || tree.roots[seq.root].dead) return;
  u32 path = NONE, blocks = 0;
  for (u32 i = 0; i < seq.sealed; ++i) {
    const u32 id = seq.tree_block(i);
    if (!(store.blocks[id].flags & IN_TREE) || dead(store.blocks[id])) break;
    path = id;
    blocks = i + 1;
  }
  const auto keep = [&](LeaseKind kind, double seconds) -> bool {
    u32 busy = 0;
    if (path == NONE || leases.size() - spare_leases_.size() >= MOST_PLACES ||
        !within_budget(seq.tenant, pins_needed(path, busy))) {
      refused_leases++;
      return false;
    }
    const u64 handle = new_lease(Lease{0, true, kind, path, seq.root, seq.tenant, blocks, now_ + seconds, seq.request.session});
    if (kind == LeaseKind::Anchor) anchors_[anchor_name(seq.tenant, seq.request.session)] = u32(handle & 0xFFFFFF);
    return true;
  };
  if (seq.request.protect_for > 0) keep(LeaseKind::Protect, seq.request.protect_for);
  if (seq.request.anchor_for <= 0) return;
  const auto old = anchors_.find(anchor_name(seq.tenant, seq.request.session));
  if (old == anchors_.end()) {
    keep(LeaseKind::Anchor, seq.request.anchor_for);
    return;
  }
  // The old anchor goes first, so that a hand-over within the budget never fails; over budget it is put back.
  const u32 index = old->second;
  Lease before = leases[index];
  const u32 generation = before.block == NONE ? 0 : store.blocks[before.block].generation;
  drop_lease(index);
  if (keep(LeaseKind::Anchor, seq.request.anchor_for) || before.block == NONE ||
      store.blocks[before.block].generation != generation)
    return;
  const std::string name = anchor_name(before.tenant, before.owner);
  anchors_[name] = u32(new_lease(std::move(before)) & 0xFFFFFF);
}

// A block and all below it become unhittable; then what nobody reads goes, and pins on it end.
inline void Pool::doom(u32 id, Reason reason) {
  std::vector<u32> below{id};
  bool pins = false;
  for (std::size_t i = 0; i < below.size(); ++i) {
    Block& b = store.blocks[below[i]];
    b.flags |= DOOMED;
    pins |= b.pins != 0;
    for (u32 child = b.first_child; child != NONE; child = store.blocks[child].next) below.push_back(child);
  }
  std::vector<std::pair<u32, u32>> idle;  // children first
  for (std::size_t i = below.size(); i-- > 0;)
    if (!store.blocks[below[i]].busy()) idle.emplace_back(below[i], store.blocks[below[i]].generation);
  for (const auto& [block, generation] : idle) {
    vanish(block, Step::Drop, reason, NONE);
  }
  for (u32 block : below) {
    Block& b = store.blocks[block];
    if ((b.flags & DOOMED) && (b.flags & IN_TREE) && b.busy()) {
      tree.unlink(block);
      hidden++;
    }
  }
  if (!pins) return;
  for (u32 i = 0; i < leases.size(); ++i)
    if (leases[i].alive && leases[i].kind != LeaseKind::Lookup && leases[i].block != NONE &&
        (store.blocks[leases[i].block].flags & DOOMED))
      drop_lease(i);
}

// O(1) in blocks (a namespace that has leases looks through them): the namespace gets a new root. What ran on the old one
// finishes; its blocks go to Free as they are released.
inline void Pool::invalidate(u32 s, double now) {
  tick(now);
  Space& space = spaces_[s];
  const u32 old = space.root;
  const u32 fresh = place(tree.roots, spare_roots_);
  tree.roots[fresh] = Root{mix(space.salt + ++stamp_), s, space.tenant, NONE, 0, NONE, 0, 0, NONE, space.rebuild, false};
  space.root = fresh;
  space.previous = old;
  tree.roots[old].dead = true;
  hidden++;
  tree.roots[old].place = u32(dead_roots_.size());
  dead_roots_.push_back(old);
  tenants[space.tenant].dead_roots++;
  tree.roots[old].live++;  // not reused before this is done
  for (u32 i = 0; i < leases.size() && tree.roots[old].leases; ++i)
    if (leases[i].alive && leases[i].root == old && leases[i].kind != LeaseKind::Lookup) drop_lease(i);
  if (--tree.roots[old].live == 0) reap(old);
}

// Frees what nobody may hit any more; returns how many blocks went.
inline u64 Pool::sweep(double now) {
  const u64 before = gone_;
  tick(now);
  for (u32 id; (id = dead_leaf(NONE, false)) != NONE;) vanish(id, Step::Drop, Reason::Invalidated, NONE);
  return gone_ - before;
}

// Drops every block that is not in use; returns how many went.
inline u64 Pool::clear(double now) {
  const u64 before = gone_;
  sweep(now);
  for (u32 k = 0; k < store.tiers(); ++k)
    for (u32 t = 0; t < tenants.size(); ++t)
      while (tenants[t].in[k].queued) {
        const u32 id = tenants[t].in[k].policy->victim(now_);
        if (!store.elsewhere(k, id)) {
          vanish(id, Step::Drop, Reason::Invalidated, t);
          continue;
        }
        const u32 parent = store.blocks[id].parent;
        unqueue(k, id);
        leave_tier(k, id, true);
        if (parent != NONE) queue_if_evictable(k, parent);
      }
  return gone_ - before;
}

}  // namespace tenure
