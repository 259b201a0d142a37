// What an operator sets on a live pool: tenants, namespaces, quotas, the policy and its parameters.
#pragma once
#include "pool.hpp"

namespace tenure {

inline u32 Pool::open_tenant(const std::string& name) {
  Tenant tenant;
  tenant.name = name;
  tenant.pin_cap = options.frames;
  for (u32 k = 0; k < store.tiers(); ++k) {
    tenant.in[k].cap = store.tier(k).frames;
    tenant.in[k].policy = make_policy(k, makers_[k], parameters_[k]);
  }
  tenants.all.push_back(std::move(tenant));
  return tenants.size() - 1;
}

inline u32 Pool::open_space(u32 tenant, float rebuild, u32 tiers) {
  const u32 s = u32(spaces_.size());
  const u64 salt = mix(salt_ + 0x9e3779b97f4a7c15ull * (s + 1));
  spaces_.push_back({u32(tree.roots.size()), NONE, tenant, salt, rebuild, tiers});
  tree.roots.push_back(Root{mix(salt), s, tenant, NONE, 0, NONE, 0, 0, NONE, rebuild, false});
  return s;
}

inline void Pool::set_quota(u32 tenant, const Quota& quota) { tenants.set_quota(tenant, quota); }

// A new policy takes over the blocks that are there, in the order of their last touch.
inline void Pool::set_policy(u32 k, const PolicyMaker& maker, u8 index, const std::map<std::string, double>& parameters,
                             double now) {
  std::vector<std::unique_ptr<Policy>> made;
  for (u32 t = 0; t < tenants.size(); ++t) made.push_back(make_policy(k, maker, parameters));
  if (made.empty()) make_policy(k, maker, parameters);  // refuses what is wrong even before there is a tenant
  tick(now);
  makers_[k] = maker;
  parameters_[k] = parameters;
  policies[k] = index;
  for (u32 t = 0; t < tenants.size(); ++t) {
    tenants[t].in[k].policy = std::move(made[t]);
    tenants[t].in[k].queued = 0;
  }
  std::vector<u32> known;
  Array<Slot>& slots = store.tier(k).slots;
  for (u32 id = 0; id < store.records(); ++id) {
    Slot& s = slots[id];
    if (store.blocks[id].state == State::Free || s.frame == NONE) continue;
    s.queued = NONE;
    s.value = 0;
    s.aux = 0;
    s.queue = s.kind = s.turn = s.spare = 0;
    if (k != DEVICE || (store.blocks[id].flags & ENTERED)) known.push_back(id);
  }
  std::stable_sort(known.begin(), known.end(), [&](u32 a, u32 b) { return slots[a].stamp < slots[b].stamp; });
  for (u32 t = 0; t < tenants.size(); ++t) tenants[t].in[k].policy->depart(Visit{}, 0, 1);
  for (u32 id : known) introduce(k, id);
  for (u32 id : known) queue_if_evictable(k, id);
}

inline void Pool::set_policy_parameters(u32 k, const std::map<std::string, double>& parameters, double now) {
  auto merged = parameters_[k];
  for (const auto& [name, value] : parameters) merged[name] = value;
  make_policy(k, makers_[k], merged);
  tick(now);
  parameters_[k] = merged;
  for (u32 t = 0; t < tenants.size(); ++t) {  // keys may change, so all are queued again
    Policy& p = *tenants[t].in[k].policy;
    const std::vector<u32> queued = p.order(now_);
    for (u32 id : queued) p.remove(id);
    set_parameters(p, parameters);
    for (u32 id : queued) p.insert(id, now_);
  }
}

inline std::map<std::string, double> Pool::policy_parameters(u32 k) {
  std::map<std::string, double> values;
  auto fresh = make_policy(k, makers_[k], parameters_[k]);
  for (const Parameter& p : fresh->parameters()) values[p.name] = *p.value;
  return values;
}

}  // namespace tenure
