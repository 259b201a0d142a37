// hazard: placeholder order until the estimator lands.
#pragma once
#include "policy.hpp"
namespace tenure {
class Hazard final : public KeyedPolicy {
 public:
  using KeyedPolicy::KeyedPolicy;
  const char* name() const override { return "hazard"; }
  double key(u32 block) override { return double(slots[block].stamp); }
};
}  // namespace tenure
