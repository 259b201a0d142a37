// s3fifo: three FIFO queues (Yang et al., SOSP 2023). New blocks enter `small` (a tenth of the frames); one used again by the
// time it reaches the end moves to `main`, where each further use buys a round; one evicted from small and asked for soon
// after (the ghosts) enters main at once.
#pragma once
#include "ghosts.hpp"
#include "policy.hpp"

namespace tenure {

class S3Fifo final : public Policy {
 public:
  S3Fifo(Store& store, Tier& tier) : Policy(store, tier), small_(slots), main_(slots), ghosts_(frames) { wants_life = true; }
  const char* name() const override { return "s3fifo"; }
  std::vector<Parameter> parameters() override { return {{"small", &share_, 0.001, 0.999}, {"promote", &promote_, 1, 3}}; }

  void enter(u32 block, u64 key, double) override {
    auto* ghost = ghosts_.find(key);
    slots[block].queue = ghost ? 1 : 0;
    if (ghost) ghosts_.drop(ghost);
    count_small_ += !slots[block].queue;
  }
  void touch(u32 block, const Use& use) override {
    Slot& s = slots[block];
    newest_ = std::max(newest_, double(s.stamp));
    if (use.first) {
      s.value = double(s.stamp);
    } else if (s.aux < 3) {
      s.aux++;
    }
  }
  void insert(u32 block, double) override { heap(block).push(block, slots[block].value); }
  u32 victim(double) override {
    for (;;) {
      const bool from_small = !small_.empty() && (main_.empty() || count_small_ > share_ * frames);
      const u32 block = from_small ? small_.top() : main_.top();
      Slot& s = slots[block];
      if (from_small ? s.aux < promote_ : s.aux == 0) return block;
      remove(block);
      count_small_ -= from_small;
      s.queue = 1;
      s.aux = from_small ? 0 : s.aux - 1;
      s.value = newest_;
      main_.push(block, newest_);
    }
  }
  void remove(u32 block) override { heap(block).erase(block); }
  void evict(u32 block, u64 key, bool chosen) override {
    if (slots[block].queue) return;
    count_small_--;
    if (chosen) ghosts_.put(key, {});
  }
  std::vector<u32> order(double) override {
    std::vector<u32> all = small_.order(), rest = main_.order();
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

 private:
  struct Nothing {};
  LeafHeap& heap(u32 block) { return slots[block].queue ? main_ : small_; }

  LeafHeap small_, main_;
  Ghosts<Nothing> ghosts_;
  u32 count_small_ = 0;  // blocks of small, queued or not
  double newest_ = 0;
  double share_ = 0.1, promote_ = 1;
};

}  // namespace tenure
