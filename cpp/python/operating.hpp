// What an operator does: invalidation, sweeps, policies and their order.
#pragma once
#include "common.hpp"

namespace tenure {

inline PolicyMaker maker_for(nb::handle policy, u8& index, std::shared_ptr<CustomState>& custom) {
  custom.reset();
  if (nb::isinstance<nb::str>(policy)) {
    index = find_policy(nb::cast<std::string>(policy));
    return POLICIES[index].make;
  }
  if (!nb::hasattr(policy, "priority") || !PyCallable_Check(nb::object(policy.attr("priority")).ptr()))
    throw Error(Kind::Policy, std::string("a policy of your own has a method priority(block) -> float: ") +
                                  Py_TYPE(policy.ptr())->tp_name + " has none");
  index = CUSTOM_POLICY;
  custom = share(nb::borrow(policy));
  return [state = custom](const PolicyContext& c) { return std::make_unique<CustomPolicy>(c, state); };
}

inline void bind_operating(PoolClass& pool) {
  pool.def("invalidate", [](PyPool& p, u32 space, double now) { locked(p, [&] { p.invalidate(space, now); }); })
      .def("sweep", [](PyPool& p, double now) { return locked(p, [&] { return p.sweep(now); }); })
      .def("clear", [](PyPool& p, double now) { return locked(p, [&] { return p.clear(now); }); })
      .def(
          "set_policy",
          [](PyPool& p, u32 tier, nb::object policy, const Parameters& parameters, double now) {
            check_tier(p, tier);
            u8 index = 0;
            std::shared_ptr<CustomState> custom;
            const PolicyMaker maker = maker_for(policy, index, custom);
            locked(p, [&] { p.set_policy(tier, maker, index, parameters, now); });
            p.custom[tier] = std::move(custom);
          },
          "tier"_a, "policy"_a.none(), "parameters"_a, "now"_a)
      .def("set_parameters",
           [](PyPool& p, u32 tier, const Parameters& parameters, double now) {
             check_tier(p, tier);
             locked(p, [&] { p.set_policy_parameters(tier, parameters, now); });
           })
      .def("parameters",
           [](PyPool& p, u32 tier) {
             check_tier(p, tier);
             return locked(p, [&] { return p.policy_parameters(tier); });
           })
      .def("policy",
           [](PyPool& p, u32 tier) {
             check_tier(p, tier);
             return locked(p, [&] { return p.policies[tier]; });
           })
      .def("order", [](PyPool& p, u32 tier, u32 tenant, double now) {
        check_tier(p, tier);
        return to_array(locked(p, [&] {
          std::vector<u32> frames = p.order(tier, tenant, now);
          for (u32& id : frames) id = p.store.tier(tier).slots[id].frame;
          return frames;
        }));
      });
}

}  // namespace tenure
