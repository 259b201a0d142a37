// Bytes that go down: sealed blocks are written to lower tiers. What is to be copied where, and what came of it; the copying is
// the caller's. A tier has a block only with all blocks before it: so what is evicted leaf by leaf leaves no unreachable end
// behind.
#pragma once
#include "pool.hpp"

namespace tenure {

// A block that the sequence has just sealed. In lock-step that is before it is computed: it is offered to lower tiers, which copy
// whenever they like, only at the sequence's next step.
inline void Pool::announce(Sequence& seq, u32 id) {
  if (store.tiers() == 1) return;
  seq.announced.push_back({id, store.blocks[id].generation});
  store.blocks[id].flags |= ANNOUNCED;
}
// The sequence goes on, or it has ended or taken its tokens back, from block `from` on (`offered`: they are computed).
inline void Pool::conclude(Sequence& seq, u32 from, bool offered) {
  std::erase_if(seq.announced, [&](const Life& life) {
    Block& b = store.blocks[life.block];
    if (b.generation != life.generation) return true;
    if (b.depth < from) return false;
    b.flags &= u8(~ANNOUNCED);
    if (!offered || !(b.flags & IN_TREE) || dead(b)) return true;
    for (u32 k = 1; k < store.tiers(); ++k) {
      const TierOptions& tier = options.lower[k - 1];
      const bool due = tier.write == Write::Selective && store.device.slots[life.block].uses >= tier.uses;
      if (due || tier.write == Write::Through) want_written(k, life.block);
    }
    return true;
  });
}

// What a sequence has sealed, all of it computed, is to be written to a tier, whatever its write mode. Returns how many leading
// blocks that is.
inline u32 Pool::offer(u64 handle, u32 k, double now) {
  Sequence& seq = running(handle);
  tick(now);
  conclude(seq, 0, true);
  u32 count = 0;
  for (; count < seq.sealed; ++count) {
    const u32 id = seq.tree_block(count);
    if (!(store.blocks[id].flags & IN_TREE) || dead(store.blocks[id])) break;
    want_written(k, id);
  }
  return count;
}

// A block that a tier could not take just now, but may later; nothing when it is gone.
inline void Pool::offer_again(u32 k, u32 id, u32 generation, double now) {
  tick(now);
  if (id >= store.records() || store.blocks[id].generation != generation) return;
  if ((store.blocks[id].flags & IN_TREE) && !dead(store.blocks[id])) want_written(k, id);
}

// Queues a block to be written to a tier, once.
inline void Pool::want_written(u32 k, u32 id) {
  constexpr std::size_t LEAST = 1024;
  Slot& s = store.tier(k).slots[id];
  if (!may_hold(k, id) || store.in(k, id) || (s.spare & (WAITS | WRITING)) || (store.blocks[id].flags & ANNOUNCED)) return;
  auto& wanted = wanted_[k];
  if (wanted.size() >= std::max<std::size_t>(LEAST, 2 * std::size_t(store.records())))  // of lives that are over
    std::erase_if(wanted, [&](const Life& w) { return store.blocks[w.block].generation != w.generation; });
  s.spare |= WAITS;
  wanted.push_back({id, store.blocks[id].generation});
}

// One frame more for the tenant in a tier: a free one, or one that can be evicted there.
inline bool Pool::room_in(u32 k, u32 tenant) {
  const Share& s = tenants[tenant].in[k];
  if (s.used >= s.cap) {
    evict(k, 1, tenant, true);
    if (s.used >= s.cap) return false;
  }
  if (!store.tier(k).free()) evict(k, 1, tenant, false);
  return store.tier(k).free() > 0;
}

// A run of writes down one path. While any is under way the whole path is held: an idle block above a busy one could not be
// evicted, and would not be counted as busy.
inline u32 Pool::open_run(u32 above) {
  const u32 run = place(runs_, spare_runs_);
  runs_[run] = {above, 0};
  for (u32 at = above; at != NONE; at = store.blocks[at].parent) hold(at);
  return run;
}
inline void Pool::close_run(u32 run) {
  spare_runs_.push_back(run);
  u32 above;
  for (u32 at = runs_[run].deepest; at != NONE; at = above) {
    above = store.blocks[at].parent;  // settling may free the block
    unhold(at);
  }
  runs_[run].deepest = NONE;
}

// Orders one block to be written to a tier, at the end of a run; false: there is no room for it.
inline bool Pool::order_write(u32 k, u32 id, u32 run, std::vector<Order>& orders) {
  const Block& b = store.blocks[id];
  const u32 tenant = tenant_of(b), from = store.fastest(id);
  hold(id);
  if (!room_in(k, tenant)) {
    moved[k].no_room++;
    unhold(id);
    return false;
  }
  const u32 source = store.tier(from).slots[id].frame, target = store.tier(k).take_frame();
  tenants[tenant].in[k].used++;
  store.tier(k).slots[id].spare |= WRITING;
  runs_[run].deepest = id;
  runs_[run].under_way++;
  const u32 index = place(transfers_, spare_transfers_);
  transfers_[index] = {true, id, b.generation, tenant, k, from, source, target, run};
  orders.push_back({index, id, b.generation, from, source, target});
  return true;
}

// Orders a block and those before it that the tier lacks, from the root down; `run` is the run that it may go on with.
inline Pool::Ordered Pool::order_path(u32 k, u32 id, u32& run, std::vector<Order>& orders) {
  std::vector<u32> path;
  u32 above = id;
  for (; above != NONE && !store.in(k, above) && !writing(k, above); above = store.blocks[above].parent) path.push_back(above);
  if (path.empty()) return Ordered::Done;
  for (const u32 at : path)
    if (store.blocks[at].flags & ANNOUNCED) return Ordered::Early;
  const bool goes_on = run != NONE && runs_[run].deepest == above;
  u32 newly_busy = 0;
  const auto counts = [&](u32 at) { return store.in(DEVICE, at) && !store.blocks[at].busy(); };
  for (const u32 at : path) newly_busy += counts(at);
  for (u32 at = goes_on ? NONE : above; at != NONE; at = store.blocks[at].parent) newly_busy += counts(at);
  if (!tenants.may(tenant_of(store.blocks[id]), newly_busy).ok()) return Ordered::Full;
  if (!goes_on) {
    if (run != NONE && !runs_[run].under_way) close_run(run);
    run = open_run(above);
  }
  while (!path.empty() && order_write(k, path.back(), run, orders)) path.pop_back();
  return Ordered::Done;
}

// write_back: orders what the tier above would evict next and this one lacks.
inline void Pool::demote(u32 k, u32 most, u32& run, std::vector<Order>& orders) {
  const u32 above = k - 1;
  std::vector<std::pair<u32, u32>> taken;  // block, tenant: out of their queue while the next ones are looked for
  Tenants::Turns turns(tenants, above, NONE);
  for (u32 from; taken.size() < most && (from = turns.next()) != NONE;) {
    Share& share = tenants[from].in[above];
    const u32 id = share.policy->take(NONE, now_);
    share.queued--;
    taken.emplace_back(id, from);
  }
  for (const auto& [id, tenant] : taken) queue_if_evictable(above, id);
  for (const auto& [id, tenant] : taken)
    if (!dead(store.blocks[id]) && may_hold(k, id)) order_path(k, id, run, orders);
}

// Up to about `most` copies to make into a tier; `demote`: blocks of the tier above to make clean, for a tier that is written to
// only at eviction. Each order MUST be finished by finish_write(), in this order.
inline std::vector<Pool::Order> Pool::take_writes(u32 k, u32 most, u32 count, double now) {
  if (k == DEVICE || k >= store.tiers())
    throw Error(Kind::Config, "there is no lower tier " + std::to_string(k), {{"tier", double(k)}});
  tick(now);
  std::vector<Order> orders;
  u32 run = NONE;
  auto& wanted = wanted_[k];
  for (std::size_t left = wanted.size(); left > 0 && orders.size() < most; --left) {
    const Life next = wanted.front();
    const Block& b = store.blocks[next.block];
    if (b.generation == next.generation) {
      const Ordered ordered = (b.flags & IN_TREE) && !dead(b) ? order_path(k, next.block, run, orders) : Ordered::Done;
      if (ordered == Ordered::Full) break;  // it waits on
      if (ordered == Ordered::Early) wanted.push_back(next);
      if (ordered == Ordered::Done && !store.in(k, next.block)) store.tier(k).slots[next.block].spare &= u8(~WAITS);
    }
    wanted.pop_front();
  }
  if (count) demote(k, count, run, orders);
  if (run != NONE && !runs_[run].under_way) close_run(run);
  return orders;
}

// The bytes of a write have been read, and it takes long: its block is held no longer. It may be evicted meanwhile.
inline void Pool::let_go(u32 index, double now) {
  if (index >= transfers_.size() || !transfers_[index].alive)
    throw Error(Kind::StaleHandle, "no such write is under way", {{"transfer", double(index)}});
  tick(now);
  if (const u32 run = std::exchange(transfers_[index].run, NONE); run != NONE && --runs_[run].under_way == 0) close_run(run);
}

// A write is over. False: it does not count (it failed, or the block is gone, or has been invalidated or its source given away
// meanwhile), and what is in the target frame is nobody's.
inline bool Pool::finish_write(u32 index, bool done, double now) {
  if (index >= transfers_.size() || !transfers_[index].alive)
    throw Error(Kind::StaleHandle, "no such write is under way", {{"transfer", double(index)}});
  tick(now);
  const Transfer t = std::exchange(transfers_[index], Transfer{});
  spare_transfers_.push_back(index);
  Tier& tier = store.tier(t.to);
  const Block& b = store.blocks[t.block];
  const bool lives = b.generation == t.generation;
  if (lives) tier.slots[t.block].spare = 0;
  const bool counts =
      done && lives && !t.lost && (b.flags & IN_TREE) && !dead(b) && (b.parent == NONE || store.in(t.to, b.parent));
  if (counts) {
    if (b.parent != NONE) unqueue(t.to, b.parent);
    tier.attach(t.block, t.target);
    tree.count_child(tier, t.block, 1);
    Slot& s = tier.slots[t.block];
    const Slot& source = store.tier(t.from).slots[t.block];
    s.uses = source.uses;
    s.last = source.last;
    s.stamp = source.stamp ? source.stamp : ++stamp_;
    introduce(t.to, t.block);
    moved[t.to].stored++;
    note(Happened::Store, t.block, t.to);
    queue_if_evictable(t.to, t.block);
  } else {
    tier.give_frame(t.target);
    tenants[t.tenant].in[t.to].used--;
    moved[t.to].failed++;
  }
  if (t.run != NONE && --runs_[t.run].under_way == 0) close_run(t.run);
  return counts;
}

// Device frames that only copies under way keep from being evicted.
inline u32 Pool::held_by_copies() const {
  std::vector<u32> paths;
  for (const Run& run : runs_)
    for (u32 id = run.deepest; id != NONE; id = store.blocks[id].parent)
      if (const Block& b = store.blocks[id]; store.in(DEVICE, id) && b.refs == 0 && b.pins == 0) paths.push_back(id);
  std::sort(paths.begin(), paths.end());
  return u32(std::unique(paths.begin(), paths.end()) - paths.begin());
}

}  // namespace tenure
