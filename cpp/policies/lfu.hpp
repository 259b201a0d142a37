// lfu: key = ageing * L + uses, where L is the key of the last victim: a newcomer starts level with what is going, and an old
// favourite that is no longer used is overtaken (dynamic ageing, LFU-DA, Arlitt et al. 2000). ageing = 0 is plain LFU (R3.2).
#pragma once
#include "policy.hpp"

namespace tenure {

class Lfu final : public KeyedPolicy {
 public:
  Lfu(Store& store, Tier& tier) : KeyedPolicy(store, tier) { wants_life = true; }
  const char* name() const override { return "lfu"; }
  std::vector<Parameter> parameters() override { return {{"ageing", &ageing_, 0, 1}}; }
  void touch(u32 block, const Use&) override { slots[block].value = ageing_ * age_ + slots[block].uses; }
  double key(u32 block) override { return slots[block].value; }
  void evict(u32 block, u64, bool chosen) override {
    if (chosen) age_ = std::max(age_, slots[block].value);
  }

 private:
  double ageing_ = 1;
  double age_ = 0;
};

}  // namespace tenure
