// lru: the leaf whose last use is longest ago goes first (R3.1, R3.4). newest_first = 1 turns it round (MRU).
#pragma once
#include "policy.hpp"

namespace tenure {

class Lru final : public KeyedPolicy {
 public:
  Lru(Store& store, Tier& tier) : KeyedPolicy(store, tier) { wants_touch = false; }
  const char* name() const override { return "lru"; }
  std::vector<Parameter> parameters() override { return {{"newest_first", &newest_first_, 0, 1}}; }
  double key(u32 block) override {
    const double stamp = double(slots[block].stamp);
    return newest_first_ != 0 ? -stamp : stamp;
  }
  u32 take(u32 freed, double) override { return freed == NONE ? heap.take() : heap.take(freed, Lru::key(freed)); }

 private:
  double newest_first_ = 0;
};

}  // namespace tenure
