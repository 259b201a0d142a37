// slru: segmented LRU (Karedla et al. 1994). A block used `threshold` times is protected, as long as the protected do not exceed
// `share` of the frames; the longest unused of them then goes back to probation. Probation goes first, so a scan passes by.
#pragma once
#include "policy.hpp"

namespace tenure {

class Slru final : public Policy {
 public:
  Slru(Store& store, Tier& tier) : Policy(store, tier), probation_(slots), protected_(slots) { wants_life = true; }
  const char* name() const override { return "slru"; }
  std::vector<Parameter> parameters() override { return {{"share", &share_, 0, 1}, {"threshold", &threshold_, 1, 1e6}}; }

  void touch(u32 block, const Use&) override {
    Slot& s = slots[block];
    newest_ = std::max(newest_, double(s.stamp));
    s.value = double(s.stamp);
    if (s.queue == 0 && s.uses >= threshold_) {
      s.queue = 1;
      count_++;
    }
    while (count_ > share_ * frames && !protected_.empty()) {
      const u32 demoted = protected_.top();
      protected_.erase(demoted);
      slots[demoted].queue = 0;
      slots[demoted].value = newest_;
      probation_.push(demoted, newest_);
      count_--;
    }
  }
  void insert(u32 block, double) override { heap(block).push(block, slots[block].value); }
  u32 victim(double) override { return probation_.empty() ? protected_.top() : probation_.top(); }
  void remove(u32 block) override { heap(block).erase(block); }
  void evict(u32 block, u64, bool) override { count_ -= slots[block].queue; }
  std::vector<u32> order(double) override {
    std::vector<u32> all = probation_.order(), rest = protected_.order();
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

 private:
  LeafHeap& heap(u32 block) { return slots[block].queue ? protected_ : probation_; }

  LeafHeap probation_, protected_;
  u32 count_ = 0;  // protected blocks, queued or not
  double newest_ = 0;
  double share_ = 0.8, threshold_ = 2;
};

}  // namespace tenure
