// optimum: the leaf whose next use is farthest ahead goes first (Belady 1966, on a tree). Only a replay knows the future.
#pragma once
#include "policy.hpp"

namespace tenure {

class Optimum final : public KeyedPolicy {
 public:
  using KeyedPolicy::KeyedPolicy;
  const char* name() const override { return "optimum"; }
  void touch(u32 block, const Use& use) override {
    double& value = slots[block].value;
    const double next = -double(use.next_use);
    value = use.first ? next : std::min(value, next);  // a request that overlapped a later one knows less of the future
  }
  double key(u32 block) override { return slots[block].value; }
};

}  // namespace tenure
