// Every built-in policy by name.
#pragma once
#include <functional>

#include "arc.hpp"
#include "cost.hpp"
#include "fifo.hpp"
#include "gdsf.hpp"
#include "hazard.hpp"
#include "lfu.hpp"
#include "lru.hpp"
#include "optimum.hpp"
#include "priority.hpp"
#include "s3fifo.hpp"
#include "slru.hpp"

namespace tenure {

// What a policy may look at besides its own slots.
struct PolicyContext {
  Store& store;
  Tier& tier;
  const PrefixTree& tree;
  const PrefillCost& cost;
};

struct PolicyEntry {
  const char* name;
  std::unique_ptr<Policy> (*make)(const PolicyContext&);
};

template <class P>
std::unique_ptr<Policy> make(const PolicyContext& c) {
  if constexpr (std::is_constructible_v<P, Store&, Tier&, const PrefixTree&, const PrefillCost&>) {
    return std::make_unique<P>(c.store, c.tier, c.tree, c.cost);
  } else {
    return std::make_unique<P>(c.store, c.tier);
  }
}

inline constexpr std::array<PolicyEntry, 11> POLICIES{{{"lru", make<Lru>},
                                                       {"lfu", make<Lfu>},
                                                       {"fifo", make<Fifo>},
                                                       {"slru", make<Slru>},
                                                       {"s3fifo", make<S3Fifo>},
                                                       {"arc", make<Arc>},
                                                       {"gdsf", make<Gdsf>},
                                                       {"cost", make<Cost>},
                                                       {"priority", make<Priority>},
                                                       {"hazard", make<Hazard>},
                                                       {"optimum", make<Optimum>}}};

inline constexpr u8 CUSTOM_POLICY = u8(POLICIES.size());

inline u8 find_policy(const std::string& name) {
  std::string known;
  for (u8 i = 0; i < POLICIES.size(); ++i) {
    if (name == POLICIES[i].name) return i;
    known += (i ? ", " : "") + std::string(POLICIES[i].name);
  }
  throw Error(Kind::Config, "no policy named '" + name + "'; there are " + known);
}

inline void set_parameters(Policy& policy, const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) {
    bool found = false;
    std::string known;
    for (const Parameter& p : policy.parameters()) {
      known += (known.empty() ? "" : ", ") + std::string(p.name);
      if (name != p.name) continue;
      found = true;
      if (!(value >= p.least && value <= p.most))
        throw Error(Kind::Config,
                    std::string(policy.name()) + ": " + name + " = " + std::to_string(value) + " is outside " +
                        std::to_string(p.least) + " to " + std::to_string(p.most),
                    {{"value", value}, {"least", p.least}, {"most", p.most}});
      *p.value = value;
    }
    if (!found)
      throw Error(Kind::Config,
                  std::string(policy.name()) + " has no parameter '" + name + "'; it has " + (known.empty() ? "none" : known));
  }
}

}  // namespace tenure
