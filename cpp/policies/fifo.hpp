// fifo: the leaf that came first goes first, however often it was used. newest_first = 1 turns it round (FILO).
#pragma once
#include "policy.hpp"

namespace tenure {

class Fifo final : public KeyedPolicy {
 public:
  Fifo(Store& store, Tier& tier) : KeyedPolicy(store, tier) {
    wants_life = true;
    wants_touch = false;
  }
  const char* name() const override { return "fifo"; }
  std::vector<Parameter> parameters() override { return {{"newest_first", &newest_first_, 0, 1}}; }
  void enter(u32 block, u64, double) override { slots[block].value = double(++count_); }
  double key(u32 block) override { return newest_first_ != 0 ? -slots[block].value : slots[block].value; }

 private:
  u64 count_ = 0;
  double newest_first_ = 0;
};

}  // namespace tenure
