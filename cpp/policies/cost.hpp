// cost (R3.3): score = w1·recency + w2·rebuild_cost + w3·hit_rate, the lowest goes first. Recency is the time of the last use
// in units of `horizon`, so the score stands still between touches and a heap is exact; rebuild_cost is prefill FLOPs relative
// to a first block (log2, so that depth does not drown the rest); hit_rate is hits per horizon since the block came.
#pragma once
#include <cmath>

#include "policy.hpp"
#include "prefill_cost.hpp"

namespace tenure {

class Cost final : public KeyedPolicy {
 public:
  Cost(Store& store, Tier& tier, const PrefixTree& tree, const PrefillCost& cost)
      : KeyedPolicy(store, tier), tree_(tree), cost_(cost) {}
  const char* name() const override { return "cost"; }
  std::vector<Parameter> parameters() override {
    return {{"recency", &recency_, 0, 1e6},
            {"rebuild", &rebuild_, 0, 1e6},
            {"hits", &hits_, 0, 1e6},
            {"horizon", &horizon_, 1e-6, 1e9}};
  }
  void touch(u32 block, const Use& use) override {
    if (use.first) slots[block].value = use.now;  // when it came
  }
  double key(u32 block) override {
    const Slot& s = slots[block];
    const Block& b = store.blocks[block];
    const double rate = std::max(0.0, s.uses - 1.0) * horizon_ / std::max(horizon_, s.last - s.value);
    return recency_ * s.last / horizon_ + rebuild_ * std::log2(cost_(b, tree_.roots[b.root])) + hits_ * std::log2(1 + rate);
  }

 private:
  const PrefixTree& tree_;
  const PrefillCost& cost_;
  double recency_ = 1, rebuild_ = 0.05, hits_ = 0.2, horizon_ = 60;
};

}  // namespace tenure
