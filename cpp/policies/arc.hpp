// arc: adaptive replacement (Megiddo and Modha, FAST 2003). T1 holds blocks used once, T2 those used again; the ghosts B1 and B2
// of what each has lost move the target size p of T1: a miss that B1 remembers makes T1 larger, one that B2 remembers smaller.
#pragma once
#include "ghosts.hpp"
#include "policy.hpp"

namespace tenure {

class Arc final : public Policy {
 public:
  Arc(Store& store, Tier& tier) : Policy(store, tier), once_(slots), often_(slots), ghosts_(frames) { wants_life = true; }
  const char* name() const override { return "arc"; }

  void enter(u32 block, u64 key, double) override {
    slots[block].queue = 0;
    if (auto* ghost = ghosts_.find(key)) {
      const double b1 = ghost_count_[0], b2 = ghost_count_[1];
      target_ = ghost->payload == 0 ? std::min(double(frames), target_ + std::max(1.0, b2 / b1))
                                    : std::max(0.0, target_ - std::max(1.0, b1 / b2));
      ghost_count_[ghost->payload]--;
      ghosts_.drop(ghost);
      slots[block].queue = 1;
    }
    count_once_ += !slots[block].queue;
  }
  void touch(u32 block, const Use& use) override {
    Slot& s = slots[block];
    if (use.first || s.queue == 1) return;
    s.queue = 1;
    count_once_--;
  }
  void insert(u32 block, double) override { heap(block).push(block, double(slots[block].stamp)); }
  u32 victim(double) override {
    const bool from_once = !once_.empty() && (often_.empty() || count_once_ > target_);
    return from_once ? once_.top() : often_.top();
  }
  void remove(u32 block) override { heap(block).erase(block); }
  void evict(u32 block, u64 key, bool chosen) override {
    const u8 queue = slots[block].queue;
    count_once_ -= !queue;
    if (!chosen) return;
    ghost_count_[queue]++;
    const auto displaced = ghosts_.put(key, queue);
    if (displaced.key) ghost_count_[displaced.payload]--;
  }
  std::vector<u32> order(double) override {
    std::vector<u32> all = once_.order(), rest = often_.order();
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

 private:
  LeafHeap& heap(u32 block) { return slots[block].queue ? often_ : once_; }

  LeafHeap once_, often_;
  Ghosts<u8> ghosts_;
  u32 count_once_ = 0;
  double ghost_count_[2] = {0, 0};
  double target_ = 0;
};

}  // namespace tenure
