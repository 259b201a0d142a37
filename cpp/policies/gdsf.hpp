// gdsf: key = L + uses * cost / size (Cherkasova 1998); blocks are of one size, cost is that of prefilling the block again,
// L is the key of the last victim.
#pragma once
#include "policy.hpp"
#include "prefill_cost.hpp"

namespace tenure {

class Gdsf final : public KeyedPolicy {
 public:
  Gdsf(Store& store, Tier& tier, const PrefixTree& tree, const PrefillCost& cost)
      : KeyedPolicy(store, tier), tree_(tree), cost_(cost) {
    wants_life = true;
  }
  const char* name() const override { return "gdsf"; }
  void touch(u32 block, const Use&) override {
    const Block& b = store.blocks[block];
    slots[block].value = age_ + slots[block].uses * cost_(b, tree_.roots[b.root]);
  }
  double key(u32 block) override { return slots[block].value; }
  void evict(u32 block, u64, bool chosen) override {
    if (chosen) age_ = std::max(age_, slots[block].value);
  }

 private:
  const PrefixTree& tree_;
  const PrefillCost& cost_;
  double age_ = 0;
};

}  // namespace tenure
