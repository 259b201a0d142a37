// fifo: the leaf that came first goes first, however often it was used. newest_first = 1 turns it round (FILO).
#pragma once
#include "policy.hpp"

namespace tenure {

class Fifo final : public KeyedPolicy {
 public:
  using KeyedPolicy::KeyedPolicy;
  const char* name() const override { return "fifo"; }
  std::vector<Parameter> parameters() override { return {{"newest_first", &newest_first_, 0, 1}}; }
  void touch(u32 block, const Use& use) override {
    if (use.first) slots[block].value = double(slots[block].stamp);
  }
  double key(u32 block) override { return newest_first_ != 0 ? -slots[block].value : slots[block].value; }

 private:
  double newest_first_ = 0;
};

}  // namespace tenure
