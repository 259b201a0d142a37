// priority: the lowest priority goes first, the longest unused of them (TensorRT-LLM's retention: 0-100, default 35, with
// durations that start at release). The request that computes a block gives it its base; a later one may raise it, and the raise
// lasts no longer than its holder: until it releases, or its duration after that. sticky = 1: a raise stays, as the engines have
// it.
#pragma once
#include <limits>
#include <unordered_map>

#include "../agenda.hpp"
#include "policy.hpp"

namespace tenure {

class Priority final : public KeyedPolicy {
 public:
  Priority(Store& store, Tier& tier) : KeyedPolicy(store, tier) { wants_life = true; }
  const char* name() const override { return "priority"; }
  std::vector<Parameter> parameters() override { return {{"default", &default_, 0, 100}, {"sticky", &sticky_, 0, 1}}; }

  void touch(u32 block, const Use& use) override {
    if (use.priority == NO_PRIORITY) return;
    const double until = use.duration < 0 ? FOR_EVER : use.now + use.duration;
    if (!use.creator && use.duration < 0 && sticky_ == 0) return;  // held only while it was referenced, and that is over
    const Claim claim{double(use.priority), until};
    auto& [base, raise] = claims_.try_emplace(block, Claims{{0, -FOR_EVER}, {0, -FOR_EVER}}).first->second;
    if (use.creator && base.until == -FOR_EVER) {
      base = claim;
    } else if (use.duration >= 0 || sticky_ != 0) {
      if (raise.until <= use.now || claim.priority > raise.priority ||
          (claim.priority == raise.priority && claim.until > raise.until))
        raise = claim;
    }
  }
  void insert(u32 block, double now) override {
    heap.push(block, effective(block, now));
    const double change = next_change(block, now);
    if (change < FOR_EVER && change != slots[block].value)
      changes_.add({change, block, store.blocks[block].generation}, [this](const Agenda::Due& due) { return means(due); });
    slots[block].value = change;  // what is on the agenda for it
  }
  u32 victim(double now) override {
    settle(now);
    return heap.top();
  }
  u32 take(u32 freed, double now) override { return Policy::take(freed, now); }
  void evict(u32 block, u64, bool) override { claims_.erase(block); }
  std::vector<u32> order(double now) override {
    settle(now);
    return heap.order();
  }
  double key(u32 block) override { return effective(block, -FOR_EVER); }

  double effective(u32 block, double now) const {
    const auto found = claims_.find(block);
    if (found == claims_.end()) return default_;
    const auto& [base, raise] = found->second;
    const double lasting = base.until > now ? base.priority : default_;
    return raise.until > now ? std::max(lasting, raise.priority) : lasting;
  }

 private:
  static constexpr double FOR_EVER = std::numeric_limits<double>::infinity();
  struct Claim {
    double priority, until;
  };
  struct Claims {
    Claim base, raise;
  };

  double next_change(u32 block, double now) const {
    const auto found = claims_.find(block);
    if (found == claims_.end()) return FOR_EVER;
    double next = FOR_EVER;
    for (const Claim& claim : {found->second.base, found->second.raise})
      if (claim.until > now) next = std::min(next, claim.until);
    return next;
  }
  bool means(const Agenda::Due& due) const {
    return store.blocks[due.id].generation == due.generation && slots[due.id].value == due.when;
  }
  void settle(double now) {  // priorities whose time is over fall back, lazily
    while (changes_.due(now)) {
      const Agenda::Due due = changes_.take();
      if (!means(due)) continue;
      slots[due.id].value = FOR_EVER;
      if (slots[due.id].queued == NONE) continue;
      heap.erase(due.id);
      insert(due.id, now);
    }
  }

  std::unordered_map<u32, Claims> claims_;
  Agenda changes_;
  double default_ = DEFAULT_PRIORITY, sticky_ = 0;
};

}  // namespace tenure
