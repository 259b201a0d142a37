// Tenants: floors, caps, weights, and whose block goes next. Knows numbers of frames, not blocks.
#pragma once
#include <algorithm>
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

// A fraction of the frames, rounded down; 0.58 of 100 is 58 although 0.58 · 100 is not quite, in binary.
inline u32 part_of(double fraction, u32 frames) { return u32(fraction * frames * (1 + 1e-12)); }

// What a tenant has of one tier, in frames.
struct Share {
  u32 floor = 0, cap = 0;
  u32 used = 0;    // frames that hold its blocks
  u32 queued = 0;  // blocks in its policy's queue
  std::unique_ptr<Policy> policy;
};

struct Tenant {
  std::string name;
  Quota quota;
  u32 pin_cap = 0;                   // in device frames
  u32 busy = 0;                      // device frames that are referenced, pinned or held
  u32 pinned = 0;                    // of those, pinned
  u32 dead_roots = 0;                // invalidated namespaces of its that still have blocks
  std::array<Share, MOST_TIERS> in;  // by tier
  Counters counters;

  Share& device() { return in[DEVICE]; }
  const Share& device() const { return in[DEVICE]; }
};

class Tenants {
 public:
  explicit Tenants(const std::vector<u32>& frames) : frames_(frames) {}  // of each tier

  std::vector<Tenant> all;
  Tenant& operator[](u32 tenant) { return all[tenant]; }
  const Tenant& operator[](u32 tenant) const { return all[tenant]; }
  u32 size() const { return u32(all.size()); }

  u64 guaranteed() const { return guaranteed_; }

  // Would this quota do? `tenant`: NONE for one that is not there yet. Returns the frames that would be promised in all.
  u64 check_quota(u32 tenant, const Quota& quota) const {
    double floors = quota.floor;
    for (u32 i = 0; i < size(); ++i)
      if (i != tenant) floors += all[i].quota.floor;
    if (floors > 1 + 1e-9)
      throw Error(Kind::Config, "floors add up to " + std::to_string(floors) + " of the frames; at most 1 can be promised",
                  {{"floors", floors}});
    const u32 busy = tenant == NONE ? 0 : all[tenant].busy, before = tenant == NONE ? 0 : all[tenant].device().floor;
    const u32 floor = part_of(quota.floor, frames_[DEVICE]);
    const u64 after = guaranteed_ - std::max(busy, before) + std::max(busy, floor);
    if (after > frames_[DEVICE])
      throw Error(Kind::Quota,
                  "a floor of " + std::to_string(floor) + " frames cannot be promised now: " +
                      std::to_string(after - frames_[DEVICE]) + " frames too many are in use by others",
                  {{"floor", double(floor)}, {"short", double(after - frames_[DEVICE])}});
    return after;
  }
  void set_quota(u32 tenant, const Quota& quota) {
    guaranteed_ = check_quota(tenant, quota);
    Tenant& t = all[tenant];
    t.quota = quota;
    for (std::size_t k = 0; k < frames_.size(); ++k) {
      t.in[k].floor = part_of(quota.floor, frames_[k]);
      t.in[k].cap = part_of(quota.cap, frames_[k]);
    }
    t.pin_cap = part_of(quota.pins, frames_[DEVICE]);
  }

  void add_busy(u32 tenant, i64 change) {
    Tenant& t = all[tenant];
    guaranteed_ -= std::max(t.busy, t.device().floor);
    t.busy = u32(t.busy + change);
    guaranteed_ += std::max(t.busy, t.device().floor);
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
    if (more == 0) return verdict;  // a cap that was lowered below what is in use stops growth, nothing else
    const Share& device = t.device();
    if (busy > device.cap) verdict.over_cap = busy - device.cap;
    const u64 after = guaranteed_ - std::max(t.busy, device.floor) + std::max<u64>(busy, device.floor);
    if (after > frames_[DEVICE]) verdict.over_frames = after - frames_[DEVICE];
    return verdict;
  }

  // Whose block goes next: the tenant furthest above its fair share, never below its floor for another's sake; equals by number.
  // Found once for a run of evictions, O(tenants); then O(log tenants) a block, since only the loser's numbers change.
  class Turns {
   public:
    Turns(const Tenants& tenants, u32 tier, u32 asker) : tenants_(tenants), tier_(tier), asker_(asker) {
      if (tenants.size() > 1) gather();
    }
    u32 next() {
      if (tenants_.size() == 1) return share(0).queued ? 0 : NONE;
      if (last_ != NONE) settle();
      if (heap_.empty()) return NONE;
      return last_ = heap_.front().tenant;
    }

   private:
    struct Turn {
      double excess;  // used / fair share
      u32 tenant;
      bool operator<(const Turn& other) const { return excess != other.excess ? excess < other.excess : tenant > other.tenant; }
    };
    const Share& share(u32 tenant) const { return tenants_[tenant].in[tier_]; }
    bool may_lose(u32 tenant) const {
      const Share& s = share(tenant);
      return s.queued && (tenant == asker_ || s.used > s.floor);
    }
    double excess(u32 tenant) const {
      const Share& s = share(tenant);
      return s.used / std::max({1.0, double(s.floor), tenants_.frames_[tier_] * tenants_[tenant].quota.weight / weights_});
    }
    void gather() {
      weights_ = 0;
      heap_.clear();
      for (u32 i = 0; i < tenants_.size(); ++i)
        if (share(i).used || i == asker_) weights_ += tenants_[i].quota.weight;
      for (u32 i = 0; i < tenants_.size(); ++i)
        if (may_lose(i)) heap_.push_back({excess(i), i});
      std::make_heap(heap_.begin(), heap_.end());
    }
    void settle() {  // the last one has lost a block
      const u32 tenant = last_;
      last_ = NONE;
      if (!share(tenant).used && tenant != asker_) return gather();  // one fewer shares
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      if (!may_lose(tenant)) return;
      heap_.push_back({excess(tenant), tenant});
      std::push_heap(heap_.begin(), heap_.end());
    }

    const Tenants& tenants_;
    u32 tier_, asker_, last_ = NONE;
    double weights_ = 0;
    std::vector<Turn> heap_;
  };

 private:
  std::vector<u32> frames_;
  u64 guaranteed_ = 0;  // sum of max(busy, floor)
};

}  // namespace tenure
