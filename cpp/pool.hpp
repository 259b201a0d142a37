// The pool: everything above put together, under one lock. This file has the data and the primitives that every operation is
// made of; reclaim, admission, growth, loads, writes, copies, retention, settings and audit.hpp have the operations. No bytes, no
// I/O, no clock, no globals.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <queue>
#include <thread>
#include <unordered_map>

#include "agenda.hpp"
#include "interner.hpp"
#include "policies/registry.hpp"
#include "prefix_tree.hpp"
#include "sequence.hpp"
#include "tenants.hpp"

namespace tenure {

inline constexpr std::size_t MOST_PLACES = 0xFFFFFF;  // of sequences, and of leases: what a handle can name

using PolicyMaker = std::function<std::unique_ptr<Policy>(const PolicyContext&)>;

class Pool {
 public:
  Pool(const Options& options, const PrefillCost& cost, const std::map<std::string, double>& parameters);

  // -- the life of a request (admission.hpp, growth.hpp)
  Admission admit(u32 space, const u32* tokens, u64 count, Request&& request, double now);
  struct Match {
    std::vector<u32> frames;  // of the leading blocks that are on the device
    std::vector<u32> tiers;   // of the blocks after them that a lower tier has, the fastest
    Why why;
  };
  Match match(u32 space, const u32* tokens, u64 count, const Request& request, double now);
  struct Appended {
    std::vector<Copy> copies;  // to do before writing; .source and .target are frames here
    std::vector<u32> frames;   // new, at the table's end
    std::vector<Rewrite> rewrites;
  };
  Appended append(u64 handle, const u32* tokens, u64 count, bool written, double now);
  std::vector<Rewrite> seal(u64 handle, u64 upto, double now);
  u64 fork(u64 handle, double now);
  void truncate(u64 handle, u64 length, double now);
  void acknowledge(u64 handle, double now);
  void release(u64 handle, bool abort, double now);

  // -- bytes between tiers (loads.hpp, writes.hpp, copies.hpp): what to copy, and what came of it
  struct Order {
    u32 transfer;  // names it until it is finished
    u32 block, generation, from, source, target;
  };
  // What a block's bytes are of, for a tier that keeps them with it.
  struct Content {
    u32 space, parent, parent_generation, depth;
    double expires;
    std::string extra;
    std::vector<u32> tokens;
  };
  Content content(u32 block, u32 generation) const;
  std::vector<Order> take_writes(u32 tier, u32 most, u32 demote, double now);
  void let_go(u32 transfer, double now);
  bool finish_write(u32 transfer, bool done, double now);
  u32 offer(u64 handle, u32 tier, double now);
  void offer_again(u32 tier, u32 block, u32 generation, double now);
  std::size_t waiting(u32 tier) const { return wanted_[tier].size(); }  // blocks that wait to be written to a tier, at most
  std::vector<Load> loads(u64 handle);
  u64 finish_loads(u64 handle, u32 loaded, double now);
  u32 held_by_copies() const;
  void lose(u32 tier, u32 block, u32 generation, double now);
  u32 restore(u32 space, u32 parent, const u32* tokens, const std::string& extra, u32 tier, u32 frame, double expires,
              double now);
  void restored(u32 tier) { store.tier(tier).settle(); }
  struct Reach {
    u32 full, nearer, here;
  };
  struct Seen {
    u32 at, block, generation, frame;
  };
  Reach reach(u32 space, const u32* tokens, u64 count, const Request& request, u32 tier, double now);
  std::vector<Seen> discover(u32 space, const u32* tokens, u64 count, const Request& request, u32 tier, u32 from, u32 upto,
                             double now);

  // -- retention (retention.hpp)
  u64 lease(LeaseKind kind, u32 space, const u32* tokens, u64 count, const Request& request, const std::string& owner, double ttl,
            double now);
  bool end_lease(u64 handle, double now);
  void invalidate(u32 space, double now);
  u64 sweep(double now);
  u64 clear(double now);

  // -- settings
  u32 open_space(u32 tenant, float rebuild, u32 tiers = ~0u);
  u32 open_tenant(const std::string& name);
  void set_quota(u32 tenant, const Quota& quota);
  void set_policy(u32 tier, const PolicyMaker& make, u8 index, const std::map<std::string, double>& parameters, double now);
  void set_policy_parameters(u32 tier, const std::map<std::string, double>& parameters, double now);
  std::map<std::string, double> policy_parameters(u32 tier);

  // -- reading (audit.hpp)
  void check() const;
  std::vector<u32> order(u32 tier, u32 tenant, double now);
  struct Held {
    u32 space, sequences, blocks, valid;  // valid: of both, those that have not been invalidated
  };
  std::vector<Held> held() const;
  std::vector<u32> lease_frames(u64 handle) const;
  // A block that can be hit, and which tiers have it: a bit each.
  struct Listed {
    u32 block, generation, depth, tiers;
  };
  std::vector<Listed> inventory() const;
  std::size_t idle_sequences() const { return spare_sequences_.size(); }
  void refuse_reentry() const {
    if (owner_.load(std::memory_order_relaxed) == std::this_thread::get_id())
      throw Error(Kind::Reentrancy, "a policy called back into the manager that is asking it; it may only return a number");
  }
  void advance(double now) { tick(now); }  // what time alone changes: leases and content that are due go

  class Guard;  // the lock: the caller takes it around every call above

  const Options options;
  PrefillCost cost;
  Store store;
  PrefixTree tree;
  Tenants tenants;
  Ledger ledger;
  std::array<u32, STATE_NAMES.size()> states{};  // blocks by state (Free is no block's: see device.free())
  std::deque<Sequence> sequences;                // places do not move
  std::vector<Lease> leases;
  u32 pinned = 0;
  u64 refused_leases = 0;
  u64 hidden = 0;                         // how often blocks became unhittable without an event of their own
  std::array<u8, MOST_TIERS> policies{};  // by tier: index into POLICIES, or CUSTOM_POLICY
  std::array<Moved, MOST_TIERS> moved{};

  // Invalidated or expired: nobody may hit it again, and it goes when nobody reads it.
  bool dead(const Block& b) const { return (b.flags & DOOMED) || tree.roots[b.root].dead; }
  Sequence& sequence(u64 handle);
  Sequence& running(u64 handle);  // one whose loads are finished
  // 27 bits of generation, 1 that tells leases from sequences, 12 of the manager, 24 of the place.
  u64 handle_of(u32 index, u32 generation, bool lease) const {
    return (u64(generation & 0x7FFFFFFu) << 37) | (u64(lease) << 36) | (u64(options.tag & 0xFFFu) << 24) | index;
  }
  u32 index_of(u64 handle, bool lease, const char* what) const {
    if (((handle >> 24) & 0xFFF) != (options.tag & 0xFFFu) || ((handle >> 36) & 1) != u64(lease))
      throw Error(Kind::ForeignHandle, std::string("this is no handle of a ") + what + " of this manager");
    return u32(handle & 0xFFFFFF);
  }

 private:
  friend class Replay;
  struct Space {
    u32 root, previous, tenant;
    u64 salt;
    float rebuild;
    u32 tiers;  // a bit each: the tiers that its blocks may be written to
  };

  // A place that is spare, or a new one at the end.
  template <class Places>
  static u32 place(Places& places, std::vector<u32>& spare) {
    if (spare.empty()) {
      places.emplace_back();
      return u32(places.size() - 1);
    }
    const u32 index = spare.back();
    spare.pop_back();
    return index;
  }
  void check_places() const {
    if (sequences.size() - spare_sequences_.size() >= MOST_PLACES)
      throw Error(Kind::Capacity, std::to_string(MOST_PLACES) + " sequences are open: release some first");
  }

  // primitives
  bool lease_in_force(const Agenda::Due& due) const {
    return leases[due.id].alive && leases[due.id].generation == due.generation;
  }
  bool block_lives(const Agenda::Due& due) const { return store.blocks[due.id].generation == due.generation; }
  void forget_rest(u32 id) {  // what is kept of a block outside its record
    const Block& b = store.blocks[id];
    if (b.extra) extras_.drop(b.extra);
    if (b.flags & EXPIRES) expiries_.erase(id);
  }
  void set_expiry(u32 id, double when) {
    store.blocks[id].flags |= EXPIRES;
    expiries_[id] = when;
    block_deadlines_.add({when, id, store.blocks[id].generation}, [this](const Agenda::Due& due) { return block_lives(due); });
  }
  [[gnu::always_inline]] void move(u32 id, Step event) {
    Block& b = store.blocks[id];
    states[u8(b.state)]--;
    step(b, id, event);
    states[u8(b.state)]++;
  }
  // A frame of a tier for the block, and back. MUST be there; the state is the caller's.
  [[gnu::always_inline]] void occupy(u32 k, u32 id) {
    store.tier(k).take(id);
    tenants[tenant_of(store.blocks[id])].in[k].used++;
  }
  [[gnu::always_inline]] void vacate(u32 k, u32 id) {
    store.tier(k).give(id);
    tenants[tenant_of(store.blocks[id])].in[k].used--;
  }
  u32 tenant_of(const Block& b) const { return tree.roots[b.root].tenant; }
  u64 ghost_key(const Block& b) const { return b.chain ^ spaces_[tree.roots[b.root].space].salt; }
  void note(Happened what, u32 id, u32 k = DEVICE) { note(what, id, store.blocks[id], tenant_of(store.blocks[id]), k); }
  void note(Happened what, u32 id, const Block& b, u32 tenant, u32 k = DEVICE) {
    ledger.log(what, b, id, k, store.tier(k).slots[id].frame, tenant, now_);
  }
  bool evictable(u32 k, u32 id) const { return evictable(store.tier(k), id); }
  bool evictable(const Tier& tier, u32 id) const {
    const Block& b = store.blocks[id];
    const Slot& s = tier.slots[id];
    return (b.state == State::Cached || b.state == State::Swapped) && !b.busy() && s.children == 0 && s.frame != NONE;
  }
  void queue_if_evictable(u32 k, u32 id) {
    if (store.tier(k).slots[id].queued != NONE || !evictable(k, id)) return;
    Share& share = tenants[tenant_of(store.blocks[id])].in[k];
    share.policy->insert(id, now_);
    share.queued++;
  }
  void queue_if_evictable(u32 id) {
    queue_if_evictable(DEVICE, id);
    for (u32 k = 1; k < store.tiers(); ++k) queue_if_evictable(k, id);
  }
  void unqueue(u32 k, u32 id) {
    if (store.tier(k).slots[id].queued == NONE) return;
    Share& share = tenants[tenant_of(store.blocks[id])].in[k];
    share.policy->remove(id);
    share.queued--;
  }
  void unqueue(u32 id) {
    unqueue(DEVICE, id);
    for (u32 k = 1; k < store.tiers(); ++k) unqueue(k, id);
  }
  void grow_busy(u32 id) {
    unqueue(id);
    if (store.in(DEVICE, id)) tenants.add_busy(tenant_of(store.blocks[id]), 1);
  }
  void refer(u32 id) {
    Block& b = store.blocks[id];
    if (!b.busy()) grow_busy(id);
    if (b.refs++ == 0 && b.state == State::Cached) move(id, Step::Hit);
  }
  void hold(u32 id) {
    Block& b = store.blocks[id];
    if (!b.busy()) grow_busy(id);
    b.holds++;
  }
  void pin(u32 id) {
    Block& b = store.blocks[id];
    if (!b.busy()) grow_busy(id);
    if (b.pins++ == 0) {
      pinned++;
      tenants[tenant_of(b)].pinned++;
    }
  }
  void unrefer(u32 id) {
    store.blocks[id].refs--;
    settle(id);
  }
  void unhold(u32 id) {
    store.blocks[id].holds--;
    settle(id);
  }
  void unpin(u32 id) {
    Block& b = store.blocks[id];
    if (--b.pins == 0) {
      pinned--;
      tenants[tenant_of(b)].pinned--;
    }
    settle(id);
  }
  void settle(u32 id);  // after a reference, hold or pin went
  void vanish(u32 id, Step event, Reason reason, u32 asker);
  u32 drop_chosen(u32 k, u32 id, u32 tenant, u32 asker);
  void leave_tier(u32 k, u32 id, bool chosen);
  void introduce(u32 k, u32 id);
  void refer_found(u32 tenant, u32 newly_busy);
  void vanish_tree(u32 id, Reason reason);
  u32 take_block(u32 root, u32 tenant);
  void depart(const Sequence& seq);
  void touch(const Sequence& seq, u32 i, u32 id);
  void touch_in(u32 k, const Sequence& seq, u32 i, u32 id);
  void evict(u32 k, u32 count, u32 asker, bool own_only);
  void make_room(u32 tenant, u32 fresh);
  u32 dead_leaf(u32 asker, bool own_only);
  void cut_off(u32 id);
  void doom(u32 id, Reason reason);
  void reap(u32 root);
  void forget_dead(u32 root);

  void tick(double now);
  void refuse(u32 tenant, u64 more, const char* what) const;

  // admission
  struct Found {
    u32 matched = 0;     // leading blocks that are on the device
    u32 newly_busy = 0;  // of them, those that could be evicted until now
    u32 all = 0;         // with those after them that a lower tier has
    Why why;
  };
  Found walk(u32 root, const u32* tokens, u64 count, const Request& request, const std::vector<u32>& extra);
  Why explain(u32 root, u32 matched, const u32* tokens, u64 count, const Request& request, const std::vector<u32>& extra);
  std::pair<u32, u32> diverging(u32 root, u32 parent, u32 extra, const u32* tokens, u64 count, u32 limit) const;
  std::vector<u32> intern_extras(const Request& request, u64 count);
  void drop_extras(const std::vector<u32>& extra);
  void arrive(u32 k, Sequence& seq);
  void check_count(u64 count) const;

  // growth
  void acknowledge_copies(Sequence& seq);
  void seal_written(Sequence& seq, u32 promised, std::vector<Rewrite>* rewrites, bool leaving = false);
  void drop_own(Sequence& seq, u32 i, u32 first, std::vector<Rewrite>* rewrites);
  void give_back(Sequence& seq, u32 from);

  // transfers
  struct Transfer {
    bool alive = false;
    u32 block = NONE, generation = 0, tenant = 0, to = 0, from = 0, source = NONE, target = NONE;
    u32 run = NONE;     // NONE: the block is not held any more
    bool lost = false;  // the source frame has been given away under the copy
  };
  struct Run {
    u32 deepest = NONE, under_way = 0;
  };
  bool writing(u32 k, u32 id) const { return !store.in(k, id) && (store.tier(k).slots[id].spare & WRITING); }
  bool may_hold(u32 k, u32 id) const { return spaces_[tree.roots[store.blocks[id].root].space].tiers >> k & 1; }
  void want_written(u32 k, u32 id);
  void announce(Sequence& seq, u32 id);
  void conclude(Sequence& seq, u32 from, bool offered);
  bool room_in(u32 k, u32 tenant);
  u32 appear(u32 root, u32 parent, const u32* tokens, u32 key, u32 k, u32 frame, double expires);
  u32 open_run(u32 above);
  void close_run(u32 run);
  bool order_write(u32 k, u32 id, u32 run, std::vector<Order>& orders);
  // Full: so many frames cannot be held now. Early: a block on the path may not be computed yet.
  enum class Ordered : u8 { Done, Full, Early };
  Ordered order_path(u32 k, u32 id, u32& run, std::vector<Order>& orders);
  void demote(u32 k, u32 most, u32& run, std::vector<Order>& orders);
  bool adopt(Sequence& seq, u32 i, u32 id);
  void drop_loads(Sequence& seq, u32 from);

  // retention
  void place_lease(Lease& lease, bool place);
  void drop_lease(u32 index);
  u64 new_lease(Lease&& lease);
  u32 pins_needed(u32 block, u32& newly_busy) const;
  bool within_budget(u32 tenant, u32 pins) const;
  void keep_after_release(Sequence& seq);

  std::unique_ptr<Policy> make_policy(u32 tier, const PolicyMaker& make, const std::map<std::string, double>& parameters);

  std::vector<Space> spaces_;
  std::vector<u32> spare_roots_, spare_sequences_, spare_leases_;
  std::vector<u32> dead_roots_;
  std::unordered_map<std::string, u32> anchors_;  // tenant and session -> lease
  Agenda lease_deadlines_, block_deadlines_;
  std::unordered_map<u32, double> expiries_;  // of the blocks that have one
  Interner extras_;
  std::array<PolicyMaker, MOST_TIERS> makers_;
  std::array<std::map<std::string, double>, MOST_TIERS> parameters_;
  std::vector<Transfer> transfers_;
  std::vector<Run> runs_;
  std::vector<u32> spare_transfers_, spare_runs_;
  std::array<std::deque<Life>, MOST_TIERS> wanted_;  // by tier: blocks to be written to it
  std::vector<u64> chains_;                          // scratch of one admission
  std::vector<u32> found_, lower_, there_;           // on the device; then, in a lower tier; in one tier
  u64 stamp_ = 0, gone_ = 0;
  double now_ = -FOR_EVER;
  u64 salt_;
  mutable std::mutex mutex_;
  mutable std::atomic<std::thread::id> owner_{};
};

// Holds the pool's lock. A policy that calls back into the pool that is asking it gets an error, not a deadlock.
class Pool::Guard {
 public:
  explicit Guard(const Pool& pool) : pool_(pool) {
    pool.refuse_reentry();
    pool.mutex_.lock();
    pool.owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  ~Guard() {
    pool_.owner_.store(std::thread::id(), std::memory_order_relaxed);
    pool_.mutex_.unlock();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  const Pool& pool_;
};

inline Pool::Pool(const Options& o, const PrefillCost& cost, const std::map<std::string, double>& parameters)
    : options(o),
      cost(cost),
      store(o.tier_frames(), o.block_size),
      tree(store),
      tenants(o.tier_frames()),
      ledger(o.frames, o.events),
      salt_(mix(o.seed ^ 0x74656e757265ull)) {
  policies.fill(find_policy(o.policy));
  makers_.fill(POLICIES[policies[DEVICE]].make);
  parameters_[DEVICE] = parameters;
  make_policy(DEVICE, makers_[DEVICE], parameters);  // refuses bad parameters before anything uses them
}

inline std::unique_ptr<Policy> Pool::make_policy(u32 tier, const PolicyMaker& make,
                                                 const std::map<std::string, double>& parameters) {
  auto made = make(PolicyContext{store, store.tier(tier), tree, cost});
  set_parameters(*made, parameters);
  return made;
}

inline Sequence& Pool::sequence(u64 handle) {
  const u32 index = index_of(handle, false, "sequence");
  if (index >= sequences.size() || !sequences[index].alive || handle != handle_of(index, sequences[index].generation, false))
    throw Error(Kind::StaleHandle, "the sequence has been released: its handle names nothing any more",
                {{"handle", double(index)}});
  return sequences[index];
}

inline Sequence& Pool::running(u64 handle) {
  Sequence& seq = sequence(handle);
  if (!seq.loads.empty())
    throw Error(Kind::State, "the sequence's loads have not been finished", {{"loads", double(seq.loads.size())}});
  return seq;
}

inline void Pool::tick(double now) {
  if (!(now < FOR_EVER)) throw Error(Kind::Config, "the clock gave no time: " + std::to_string(now));
  now_ = std::max(now_, now);  // a clock that steps back does not un-expire anything
  while (lease_deadlines_.due(now_))
    if (const Agenda::Due due = lease_deadlines_.take(); lease_in_force(due)) drop_lease(due.id);
  while (block_deadlines_.due(now_))
    if (const Agenda::Due due = block_deadlines_.take(); block_lives(due)) doom(due.id, Reason::Expired);
}

}  // namespace tenure

#include "admission.hpp"
#include "audit.hpp"
#include "copies.hpp"
#include "growth.hpp"
#include "loads.hpp"
#include "reclaim.hpp"
#include "retention.hpp"
#include "settings.hpp"
#include "writes.hpp"
