// Tenants: floors, caps, weights, and whose block goes next. Knows numbers of frames, not blocks.
#pragma once
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ledger.hpp"
#include "policies/policy.hpp"

namespace tenure {

struct Quota {
  double floor = 0, cap = 1, weight = 1, pins = 1;  // fractions of the frames; weight is relative
};

struct Tenant {
  std::string name;
  Quota quota;
  u32 floor = 0, cap = 0, pin_cap = 0;  // in frames
  u32 used = 0;                         // frames that hold its blocks
  u32 busy = 0;                         // of those, referenced, pinned or held
  u32 pinned = 0;                       // of those, pinned
  u32 queued = 0;                       // blocks in its policy's queue
  std::unique_ptr<Policy> policy;
  Counters counters;
};

class Tenants {
 public:
  explicit Tenants(u32 frames) : frames_(frames) {}

  std::vector<Tenant> all;
  Tenant& operator[](u32 tenant) { return all[tenant]; }
  const Tenant& operator[](u32 tenant) const { return all[tenant]; }
  u32 size() const { return u32(all.size()); }

  u64 guaranteed() const { return guaranteed_; }

  void set_quota(u32 tenant, const Quota& quota) {
    double floors = quota.floor;
    for (u32 i = 0; i < size(); ++i)
      if (i != tenant) floors += all[i].quota.floor;
    if (floors > 1 + 1e-9)
      throw Error(Kind::Config, "floors add up to " + std::to_string(floors) + " of the frames; at most 1 can be promised",
                  {{"floors", floors}});
    Tenant& t = all[tenant];
    const u32 floor = u32(quota.floor * frames_), cap = u32(quota.cap * frames_);
    const u64 after = guaranteed_ - std::max(t.busy, t.floor) + std::max(t.busy, floor);
    if (after > frames_)
      throw Error(Kind::Quota,
                  "a floor of " + std::to_string(floor) + " frames cannot be promised now: " + std::to_string(after - frames_) +
                      " frames too many are in use by others",
                  {{"floor", double(floor)}, {"short", double(after - frames_)}});
    guaranteed_ = after;
    t.quota = quota;
    t.floor = floor;
    t.cap = cap;
    t.pin_cap = u32(quota.pins * frames_);
  }

  void add_used(u32 tenant, i64 change) { all[tenant].used = u32(all[tenant].used + change); }

  void add_busy(u32 tenant, i64 change) {
    Tenant& t = all[tenant];
    guaranteed_ -= std::max(t.busy, t.floor);
    t.busy = u32(t.busy + change);
    guaranteed_ += std::max(t.busy, t.floor);
  }

  // How many frames more than can be had the tenant would need to make `more` of its frames busy; 0 = it may.
  struct Verdict {
    u64 over_cap = 0, over_frames = 0;
    bool ok() const { return over_cap == 0 && over_frames == 0; }
  };
  // Sum over tenants of max(busy, floor) <= frames keeps every floor reachable: what is not busy can be evicted.
  Verdict may(u32 tenant, u64 more) const {
    const Tenant& t = all[tenant];
    const u64 busy = t.busy + more;
    Verdict verdict;
    if (busy > t.cap) verdict.over_cap = busy - t.cap;
    const u64 after = guaranteed_ - std::max(t.busy, t.floor) + std::max<u64>(busy, t.floor);
    if (after > frames_) verdict.over_frames = after - frames_;
    return verdict;
  }

  // The tenant whose block goes next: furthest above its fair share, never below its floor for another's sake.
  u32 next_victim(u32 asker) const {
    if (size() == 1) return all[0].queued ? 0 : NONE;
    double weights = 0;
    for (u32 i = 0; i < size(); ++i)
      if (all[i].used || i == asker) weights += all[i].quota.weight;
    u32 worst = NONE;
    double most = -1;
    for (u32 i = 0; i < size(); ++i) {
      const Tenant& t = all[i];
      if (!t.queued || (i != asker && t.used <= t.floor)) continue;
      const double fair = std::max({1.0, double(t.floor), weights > 0 ? frames_ * t.quota.weight / weights : 0.0});
      if (t.used / fair > most) {
        most = t.used / fair;
        worst = i;
      }
    }
    return worst;
  }

 private:
  u32 frames_;
  u64 guaranteed_ = 0;  // sum of max(busy, floor)
};

}  // namespace tenure
