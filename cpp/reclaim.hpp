// How frames come back: a block that nobody uses is queued or goes; what is invalidated or chosen by its policy is evicted.
#pragma once
#include "pool.hpp"

namespace tenure {

inline void Pool::settle(u32 id) {
  Block& b = store.blocks[id];
  if (b.refs) return;
  if (b.state == State::Sealed && !dead(b)) {
    move(id, Step::Release);
    note(Happened::Release, id);
  }
  if (b.busy()) return;
  if (store.in(DEVICE, id)) tenants.add_busy(tenant_of(b), -1);
  if (b.state == State::Active) {
    vanish(id, Step::ReleasePartial, Reason::Hit, NONE);
  } else if (dead(b)) {
    vanish_tree(id, tree.roots[b.root].dead ? Reason::Invalidated : Reason::Expired);
  } else {
    queue_if_evictable(id);
  }
}

// A block goes for good: its index entry, its frames and its record in one step.
inline void Pool::vanish(u32 id, Step event, Reason reason, u32 asker) {
  Block& b = store.blocks[id];
  const u32 tenant = tenant_of(b), parent = b.parent, root = b.root;
  Tenant& t = tenants[tenant];
  const bool in_tree = b.flags & IN_TREE;
  unqueue(id);
  if (reason != Reason::Hit) {
    const u64 key = ghost_key(b);
    for (u32 k = 0; k < store.tiers(); ++k)
      if (t.in[k].policy->wants_life && store.in(k, id) && (k != DEVICE || (b.flags & ENTERED)))
        t.in[k].policy->evict(id, key, reason == Reason::Evicted);
    ledger.gone(key, Ghost{now_, asker, reason, policies[DEVICE]});
    if (reason == Reason::Evicted) {
      t.counters.evicted++;
      if (asker != tenant) t.counters.evicted_by_others++;
    } else {
      (reason == Reason::Expired ? t.counters.expired : t.counters.invalidated)++;
    }
  }
  move(id, event);
  note(reason == Reason::Evicted      ? Happened::Evict
       : reason == Reason::Expired    ? Happened::Expire
       : reason == Reason::Hit        ? Happened::Free
       : reason == Reason::TierFailed ? Happened::Lose
                                      : Happened::Invalidate,
       id);
  if (in_tree) tree.unlink(id);
  forget_rest(id);
  for (u32 k = 0; k < store.tiers(); ++k)
    if (store.in(k, id)) vacate(k, id);
  store.destroy(id);
  gone_++;
  if (--tree.roots[root].live == 0) reap(root);
  if (in_tree && parent != NONE) queue_if_evictable(parent);
}

// A block that nobody uses and nobody may hit, and all below it (which then nobody uses either), children first.
inline void Pool::vanish_tree(u32 id, Reason reason) {
  u32 at = id;
  for (;;) {
    while (store.blocks[at].first_child != NONE) at = store.blocks[at].first_child;
    const u32 above = store.blocks[at].parent;
    const bool last = at == id;
    vanish(at, store.blocks[at].state == State::Sealed ? Step::ReleaseInvalid : Step::Drop, reason, NONE);
    if (last) return;
    at = above;
  }
}

inline u32 Pool::take_block(u32 root, u32 tenant) {
  const u32 id = store.create();
  Block& b = store.blocks[id];
  b.root = root;
  occupy(DEVICE, id);
  tree.roots[root].live++;
  move(id, Step::Allocate);
  tenants.add_busy(tenant, 1);
  b.refs = 1;
  return id;
}

// A busy block of a dead root goes on its own, at release; what is idle below it hangs under the root instead.
inline void Pool::cut_off(u32 id) {
  std::vector<u32> busy{id};
  tree.unlink(id);
  while (!busy.empty()) {
    const u32 at = busy.back();
    busy.pop_back();
    store.blocks[at].flags |= DOOMED;
    for (u32 child; (child = store.blocks[at].first_child) != NONE;) {
      tree.unlink(child);
      if (store.blocks[child].busy()) {
        busy.push_back(child);
      } else {
        store.blocks[child].parent = NONE;
        tree.link(child);
      }
    }
  }
}

// A leaf of an invalidated namespace; NONE if there is none. What is still read is cut off: it goes on its own, at release.
inline u32 Pool::dead_leaf(u32 asker, bool own_only) {
  if (own_only && !tenants[asker].dead_roots) return NONE;
  for (std::size_t i = 0; i < dead_roots_.size();) {
    const u32 r = dead_roots_[i];
    Root& root = tree.roots[r];
    if (own_only && root.tenant != asker) {
      ++i;
      continue;
    }
    u32 at = NONE;
    if (root.cursor != NONE && store.blocks[root.cursor].generation == root.cursor_generation) at = root.cursor;
    for (;;) {
      const u32 child = at == NONE ? root.first_child : store.blocks[at].first_child;
      if (child == NONE) break;
      if (store.blocks[child].busy()) {
        cut_off(child);
      } else {
        at = child;
      }
    }
    if (at != NONE) {
      const u32 parent = store.blocks[at].parent;
      root.cursor = parent;
      root.cursor_generation = parent == NONE ? 0 : store.blocks[parent].generation;
      return at;
    }
    forget_dead(r);
  }
  return NONE;
}

// Frees exactly `count` frames of a tier, those of invalidated blocks first. MUST have been found possible before.
inline void Pool::evict(u32 k, u32 count, u32 asker, bool own_only) {
  for (u32 id; count > 0 && (id = dead_leaf(asker, own_only)) != NONE;) {
    count -= store.in(k, id);
    vanish(id, Step::Drop, Reason::Invalidated, asker);
  }
  // `freed` is the last victim's parent where that can go now: it counts as queued, and enters its queue only if it must.
  u32 freed = NONE, from = NONE;
  const auto requeue = [&] {
    if (freed != NONE) tenants[from].in[k].policy->insert(freed, now_);
    freed = NONE;
  };
  const auto evict_from = [&](u32 tenant) {
    if (tenant != from) requeue();
    from = tenant;
    const u32 id = tenants[tenant].in[k].policy->take(freed, now_);
    freed = drop_chosen(k, id, tenant, asker);
  };
  if (own_only) {
    for (; count > 0 && tenants[asker].in[k].queued; --count) evict_from(asker);
  } else {
    Tenants::Turns turns(tenants, k, asker);
    for (u32 next; count > 0 && (next = turns.next()) != NONE; --count) evict_from(next);
  }
  requeue();
}

// A block that its policy has just chosen and taken out of its queue leaves a tier: it goes for good, as by vanish(), unless
// another tier has it. Returns its parent where that can go next (and counts as queued already), or NONE.
inline u32 Pool::drop_chosen(u32 k, u32 id, u32 tenant, u32 asker) {
  Block& b = store.blocks[id];
  Tenant& t = tenants[tenant];
  Share& share = t.in[k];
  Tier& tier = store.tier(k);
  const u32 parent = b.parent;
  share.queued--;
  moved[k].evicted++;
  if (store.elsewhere(k, id)) {
    leave_tier(k, id, true);
  } else {
    const u32 root = b.root;
    const u64 key = ghost_key(b);
    if (share.policy->wants_life) share.policy->evict(id, key, true);
    ledger.gone(key, Ghost{now_, asker, Reason::Evicted, policies[k]});
    t.counters.evicted++;
    t.counters.evicted_by_others += asker != tenant;
    moved[k].dropped++;
    move(id, Step::Drop);
    ledger.log(Happened::Evict, b, id, k, tier.slots[id].frame, tenant, now_);
    tree.unlink(id);
    forget_rest(id);
    tier.give(id);
    share.used--;
    store.destroy(id);
    gone_++;
    if (--tree.roots[root].live == 0) reap(root);
  }
  if (parent == NONE || !evictable(tier, parent)) return NONE;
  share.queued++;
  return parent;
}

// A block gives back its frame in a tier, where no queue has it any more; another tier still has its bytes.
[[gnu::noinline]] inline void Pool::leave_tier(u32 k, u32 id, bool chosen) {
  Block& b = store.blocks[id];
  Policy& policy = *tenants[tenant_of(b)].in[k].policy;
  if (policy.wants_life) policy.evict(id, ghost_key(b), chosen);
  if (k == DEVICE) {
    move(id, Step::SwapOut);
    b.flags &= u8(~ENTERED);
  }
  note(k == DEVICE ? Happened::SwapOut : chosen ? Happened::Evict : Happened::Lose, id, k);
  if (b.flags & IN_TREE) tree.count_child(store.tier(k), id, -1);
  vacate(k, id);
  Slot& s = store.tier(k).slots[id];
  s = Slot{.children = s.children, .uses = s.uses, .last = s.last};
}

// Tells a tier's policy of a block whose bytes have come into the tier by another way than a request.
inline void Pool::introduce(u32 k, u32 id) {
  const Block& b = store.blocks[id];
  const Slot& s = store.tier(k).slots[id];
  Policy& policy = *tenants[tenant_of(b)].in[k].policy;
  if (policy.wants_life) policy.enter(id, ghost_key(b), s.last);
  if (policy.wants_touch && s.stamp)
    policy.touch(id, Use{s.last, 0, b.depth, 0, NONE, NO_PRIORITY, true, true, -1, 0, ghost_key(b)});
}

// Frees what `fresh` frames more of the tenant's need: its own beyond its cap, then the exact shortfall (or the batch)
// from whose turn it is.
inline void Pool::make_room(u32 tenant, u32 fresh) {
  const Share& s = tenants[tenant].device();
  const u32 own = u64(s.used) + fresh > s.cap ? u32(u64(s.used) + fresh - s.cap) : 0;
  if (own) evict(DEVICE, own, tenant, true);
  const u32 free = store.device.free();
  u32 more = fresh > free ? fresh - free : 0;
  if (own + more) more = std::max(more, options.evict_batch - std::min(own, options.evict_batch));
  if (more) evict(DEVICE, more, tenant, fresh <= free);  // nobody else gives a block that is not missing
  if (store.device.free() < fresh)
    throw Error(Kind::Integrity, "eviction found less than the books promise",
                {{"free", double(store.device.free())}, {"needed", double(fresh)}});
}

// Nothing is left under it that could be reclaimed.
inline void Pool::forget_dead(u32 r) {
  Root& root = tree.roots[r];
  if (root.place == NONE) return;
  const u32 last = dead_roots_.back();
  dead_roots_[root.place] = last;
  tree.roots[last].place = root.place;
  dead_roots_.pop_back();
  root.place = NONE;
  tenants[root.tenant].dead_roots--;
}

// A dead root that no block and no sequence names can be used again.
inline void Pool::reap(u32 r) {
  Root& root = tree.roots[r];
  if (!root.dead) return;
  if (spaces_[root.space].previous == r) spaces_[root.space].previous = NONE;
  forget_dead(r);
  spare_roots_.push_back(r);
}

}  // namespace tenure
