// What an operator sets on a live pool: tenants, namespaces, quotas, the policy and its parameters.
#pragma once
#include "pool.hpp"

namespace tenure {

inline u32 Pool::open_tenant(const std::string& name) {
  Tenant tenant;
  tenant.name = name;
  tenant.cap = tenant.pin_cap = options.frames;
  tenant.policy = make_policy(maker_, parameters_);
  tenants.all.push_back(std::move(tenant));
  return tenants.size() - 1;
}

inline u32 Pool::open_space(u32 tenant, float rebuild) {
  const u32 s = u32(spaces_.size());
  const u64 salt = mix(salt_ + 0x9e3779b97f4a7c15ull * (s + 1));
  spaces_.push_back({u32(tree.roots.size()), NONE, tenant, salt, rebuild});
  tree.roots.push_back(Root{mix(salt), s, tenant, NONE, 0, NONE, 0, 0, NONE, rebuild, false});
  return s;
}

inline void Pool::set_quota(u32 tenant, const Quota& quota) { tenants.set_quota(tenant, quota); }

// A new policy takes over the blocks that are there, in the order of their last touch.
inline void Pool::set_policy(const PolicyMaker& maker, u8 index, const std::map<std::string, double>& parameters, double now) {
  std::vector<std::unique_ptr<Policy>> made;
  for (u32 t = 0; t < tenants.size(); ++t) made.push_back(make_policy(maker, parameters));
  if (made.empty()) make_policy(maker, parameters);  // refuses what is wrong even before there is a tenant
  tick(now);
  maker_ = maker;
  parameters_ = parameters;
  policy = index;
  for (u32 t = 0; t < tenants.size(); ++t) {
    tenants[t].policy = std::move(made[t]);
    tenants[t].queued = 0;
  }
  std::vector<u32> known;
  for (u32 id = 0; id < store.records(); ++id) {
    Slot& s = store.device.slots[id];
    if (s.frame == NONE || store.blocks[id].state == State::Free) continue;
    s.queued = NONE;
    s.value = 0;
    s.aux = 0;
    s.queue = s.kind = s.turn = s.spare = 0;
    if (store.blocks[id].flags & ENTERED) known.push_back(id);
  }
  std::stable_sort(known.begin(), known.end(),
                   [this](u32 a, u32 b) { return store.device.slots[a].stamp < store.device.slots[b].stamp; });
  for (u32 t = 0; t < tenants.size(); ++t) tenants[t].policy->depart(Visit{}, 0, 1);
  for (u32 id : known) {
    const Block& b = store.blocks[id];
    const Slot& s = store.device.slots[id];
    Policy& to = *tenants[tenant_of(b)].policy;
    if (to.wants_life) to.enter(id, ghost_key(b), s.last);
    if (to.wants_touch && s.stamp) to.touch(id, Use{s.last, 0, b.depth, 0, NONE, NO_PRIORITY, true, true, -1, 0, ghost_key(b)});
  }
  for (u32 id : known) queue_if_evictable(id);
}

inline void Pool::set_policy_parameters(const std::map<std::string, double>& parameters, double now) {
  auto merged = parameters_;
  for (const auto& [name, value] : parameters) merged[name] = value;
  make_policy(maker_, merged);
  tick(now);
  parameters_ = merged;
  for (u32 t = 0; t < tenants.size(); ++t) {  // keys may change, so all are queued again
    Policy& p = *tenants[t].policy;
    const std::vector<u32> queued = p.order(now_);
    for (u32 id : queued) p.remove(id);
    set_parameters(p, parameters);
    for (u32 id : queued) p.insert(id, now_);
  }
}

inline std::map<std::string, double> Pool::policy_parameters() {
  std::map<std::string, double> values;
  auto fresh = make_policy(maker_, parameters_);
  for (const Parameter& p : fresh->parameters()) values[p.name] = *p.value;
  return values;
}

}  // namespace tenure
