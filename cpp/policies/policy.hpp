// The one trait of every policy. A policy orders the evictable leaves of one tenant in one tier; it never sees the rest.
// The pool MUST: call enter once when a sealed block joins the tree, touch once a request, insert when the block becomes an
// evictable leaf, remove when it stops being one, evict when it goes for good. State lives in the block's slot.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../leaf_heap.hpp"

namespace tenure {

// One parameter of a policy, with the range it may take.
struct Parameter {
  const char* name;
  double* value;
  double least, most;
};

// What a touch is about: the request that used the block, and the block's place in it.
struct Use {
  double now;       // s
  u32 output;       // tokens the request has generated
  u32 index;        // the block's place in the request's path
  u32 matched;      // blocks the request found
  u32 next_use;     // optimum only: when the block is asked for again
  u8 priority;      // 0-100, or NO_PRIORITY
  bool creator;     // the request computed the block (else it hit it)
  bool first;       // nobody has touched the block before
  double duration;  // s the priority lasts after release; < 0 = no end
  u64 before;       // the block's stamp until now, 0 = never touched
  u64 key;          // its content hash, where the policy wants visits
};

// A request as a policy that learns from requests sees it; kept with the sequence.
struct Visit {
  u32 asked = 0;  // full blocks asked for
  u32 known = 0;  // of them, the leading ones that the policy has seen before
  u8 turn = 0;    // how often the chain it goes on with had come back
};

// The content hashes of what a request asked for and did not find.
struct Missing {
  const u64* chains;
  u64 count, salt;  // key = chain ^ salt
};

inline constexpr u8 DEFAULT_PRIORITY = 35;
inline constexpr u8 NO_PRIORITY = 0xFF;  // the request named none

class Policy {
 public:
  Policy(Store& store, Tier& tier) : store(store), slots(tier.slots), frames(tier.frames) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  virtual const char* name() const = 0;
  virtual std::vector<Parameter> parameters() { return {}; }

  virtual void arrive(Visit&, const std::vector<u32>& /*hits*/, const Missing&, u64 /*next stamp*/, double /*now*/) {}
  virtual void depart(const Visit&, u32 /*tokens generated*/, u32 /*blocks*/) {}  // before the touches of its release
  virtual void enter(u32, u64 /*key*/, double /*now*/) {}  // key: content hash, the same in the block's next life
  virtual void touch(u32, const Use&) {}
  virtual void insert(u32 block, double now) = 0;
  virtual u32 victim(double now) = 0;  // the next to go, still queued; MUST exist when something is queued
  // Takes the next to go out of the queue, after queueing `freed` (or NONE): mostly the parent of the last, and itself the next.
  virtual u32 take(u32 freed, double now) {
    if (freed != NONE) insert(freed, now);
    const u32 block = victim(now);
    remove(block);
    return block;
  }
  virtual void remove(u32 block) = 0;
  virtual void evict(u32, u64 /*key*/, bool /*chosen: by this policy, not expired, invalidated or cleared*/) {}
  virtual std::vector<u32> order(double now) = 0;  // all queued, next victim first

  bool wants_touch = true;    // false: touch() does nothing, and the pool need not call it
  bool wants_life = false;    // true: enter() and evict() are wanted
  bool wants_visits = false;  // true: arrive() and depart() are wanted

  Store& store;
  Array<Slot>& slots;
  u32 frames;  // of the tier
};

// A policy that is a formula: the least (key, stamp) goes first. The key MUST stay the same while the block is queued.
class KeyedPolicy : public Policy {
 public:
  KeyedPolicy(Store& store, Tier& tier) : Policy(store, tier), heap(tier.slots) {}

  virtual double key(u32 block) = 0;

  void insert(u32 block, double) override { heap.push(block, key(block)); }
  u32 victim(double) override { return heap.top(); }
  u32 take(u32 freed, double) override { return freed == NONE ? heap.take() : heap.take(freed, key(freed)); }
  void remove(u32 block) override { heap.erase(block); }
  std::vector<u32> order(double) override { return heap.order(); }

 protected:
  LeafHeap heap;
};

}  // namespace tenure
