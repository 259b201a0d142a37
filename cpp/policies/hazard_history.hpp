// What hazard remembers: sampled blocks at risk, in cohorts by last touch, and ghosts of those evicted. From them come the reuses
// and seconds at risk that hazard_rates.hpp learns from, and how many hits LRU and SLRU would have had instead. Used by
// hazard.hpp alone.
#pragma once
#include <limits>
#include <vector>

#include "../array.hpp"
#include "hazard_rates.hpp"

namespace tenure {

// What a block was at its last touch. Lives in the block's slot.
struct Mark {
  float time = 0;  // s since the policy's first request
  u8 kind = 0;     // HazardClass
  u8 turn = 0;
  u8 run = 0;         // 8·log2 of how many blocks of its class the request touched together
  bool live = false;  // sampled, and at risk: touched, and neither reused nor forgotten since
};

class HazardHistory {
 public:
  static constexpr u32 SAMPLE = 8;  // one block in so many is counted, by content: neighbours in a path share their fate

  explicit HazardHistory(u32 frames) : frames_(frames), ghosts_(FIRST_GHOSTS), cohorts_(1) {
    for (int r = 0; r < 256; ++r) weight_[r] = std::exp2(float(-r) / 16);  // a run of n blocks weighs sqrt(n) in all
  }

  static bool sampled(u64 key) { return (key >> 32) % SAMPLE == 0; }
  float now() const { return now_; }
  bool lru_is_better() const { return lead_ < -0.2f * seen(); }
  bool slru_is_better() const { return slru_lead_ > 0 && now_ > 0; }

  void advance(double now) {
    if (!started_) {
      start_ = now;
      started_ = true;
    }
    now_ = std::max(now_, float(std::round((now - start_) * 1024) / 1024));  // rounded: blind to an added constant
    memo_time_ = -1;
  }
  // A request comes; `stamp`: the next that will be given.
  void arrive(double now, u32 stamp) {
    advance(now);
    vouched_ = false;
    if (cohorts_.back().count >= float(std::max(16u, frames_ / 256))) close(stamp);
  }

  void hit(Mark& mark, u32 stamp) {
    if (!mark.live) return;
    compare(mark, stamp, true);
    leave(mark, stamp, true, true);
    mark.live = false;
  }
  // A block that was asked for and is not here: what it was when it was evicted, or null.
  const Mark* missed(u64 key, u32& stamp) {
    Ghost& ghost = ghosts_[place(key)];
    if (!ghost.mark.live || ghost.tag != u32(key)) return nullptr;
    stamp = ghost.stamp;
    compare(ghost.mark, ghost.stamp, false);
    leave(ghost.mark, ghost.stamp, true, true);
    ghost.mark.live = false;
    return &ghost.mark;
  }
  // `chosen`: it may be missed; else its content is void and cannot be.
  void evicted(u64 key, Mark& mark, u32 stamp, bool chosen) {
    if (!mark.live) return;
    if (!chosen) {
      leave(mark, stamp, false, true);
      mark.live = false;
      return;
    }
    if (++stored_ > ghosts_.size() / 4 && ghosts_.size() < frames_) grow();
    Ghost& ghost = ghosts_[place(key)];
    if (ghost.mark.live) leave(ghost.mark, ghost.stamp, false, !lru_has(ghost.stamp) && !slru_has(ghost.mark, ghost.stamp));
    ghost = {u32(key), stamp, mark};
    mark.live = false;
  }
  // The block takes on `next`, its class and run in this request; `before` is the stamp of the touch before.
  void touched(u64 key, Mark& mark, u32 before, const Mark& next) {
    const bool live = sampled(key);
    if (live) {
      if (mark.live) leave(mark, before, false, true);  // another request held it too and was released first
      cohorts_.back().count++;
      cohorts_.back().proven += HazardClass::proven(next.kind);
      cohorts_.back().risk[next.kind] += weight_[next.run];
    }
    mark = next;
    mark.live = live;
  }

  // Still at risk, by class and age now.
  HazardRates::Table waiting() const {
    HazardRates::Table table{};
    for (std::size_t i = 0; i < cohorts_.size(); ++i) {
      const float end = i + 1 < cohorts_.size() ? cohorts_[i + 1].time : now_;
      const int age = HazardRates::bucket(now_ - (cohorts_[i].time + end) / 2);
      for (u32 c = 0; c < HazardClass::COUNT; ++c) table[c][age] += cohorts_[i].risk[c];
    }
    return table;
  }

  HazardRates rates;

 private:
  struct Ghost {
    u32 tag, stamp;
    Mark mark;
  };
  // Sampled blocks touched from stamp `first` on: how many, and by class the weight of those still at risk.
  struct Cohort {
    u32 first = 0;
    float time = 0, count = 0, proven = 0;
    std::array<float, HazardClass::COUNT> risk{};
  };
  static constexpr std::size_t MOST_COHORTS = 128, FIRST_GHOSTS = 4096;
  static constexpr float TRUST = 4;  // so many sampled blocks lacked, and SLRU is no longer followed

  // The table starts small and doubles as it fills, to about one entry a frame: a tenant with little costs little.
  void grow() {
    Array<Ghost> old = std::exchange(ghosts_, Array<Ghost>(2 * ghosts_.size()));
    stored_ = 0;
    for (std::size_t i = 0; i < old.size(); ++i)
      if (old[i].mark.live) ghosts_[place(old[i].tag)] = old[i];
  }
  std::size_t place(u64 key) const { return (key & 0xffffffffu) * ghosts_.size() >> 32; }
  static bool not_before(u32 stamp, u32 other) { return std::int32_t(stamp - other) >= 0; }  // stamps wrap round
  bool lru_has(u32 stamp) const { return not_before(stamp, cutoff_); }
  bool slru_has(const Mark& mark, u32 stamp) const {
    return not_before(stamp, HazardClass::proven(mark.kind) ? proven_cutoff_ : new_cutoff_);
  }
  float seen() const { return float(frames_) / SAMPLE; }

  // A block is asked for again, and we have it or not. Would the others have it? SLRU is for scans, where it lacks nothing: each
  // block that it lacks counts against it, and for it only what nobody else has, once a request. It is trusted at first: that
  // blocks came back while there was room for all says little of those that a scan brings.
  void compare(const Mark& mark, u32 stamp, bool ours) {
    const bool lru = lru_has(stamp), slru = slru_has(mark, stamp);
    lead_ += float(ours) - float(lru);
    if (!slru) {
      slru_lead_ = std::max(-TRUST, slru_lead_ - 1);
    } else if (!ours && !lru && !vouched_) {
      slru_lead_ = std::min(TRUST, slru_lead_ + 1);
      vouched_ = true;
    }
  }

  // A block's time at risk ends: reused, or lost from sight.
  void leave(const Mark& mark, u32 stamp, bool reuse, bool counted) {
    // Neighbours leave together: their age and cohort are looked up once.
    if (mark.time != memo_time_ || !not_before(stamp, memo_first_) || not_before(stamp, memo_next_)) {
      const auto next = std::upper_bound(cohorts_.begin() + 1, cohorts_.end(), stamp,
                                         [](u32 s, const Cohort& c) { return !not_before(s, c.first); });
      memo_ = std::size_t(next - cohorts_.begin()) - 1;
      memo_time_ = mark.time;
      memo_age_ = HazardRates::bucket(now_ - mark.time);
      memo_first_ = cohorts_[memo_].first;
      memo_next_ = next == cohorts_.end() ? stamp + 1 : next->first;
    }
    const float weight = weight_[mark.run];
    reuse ? rates.reused(mark.kind, memo_age_, weight) : rates.lost(mark.kind, memo_age_, weight);
    Cohort& cohort = cohorts_[memo_];
    cohort.risk[mark.kind] = std::max(0.0f, cohort.risk[mark.kind] - weight);
    if (!counted) return;
    cohort.count = std::max(0.0f, cohort.count - 1);
    if (HazardClass::proven(mark.kind)) cohort.proven = std::max(0.0f, cohort.proven - 1);
  }

  // Starts a new cohort. LRU would hold exactly the `frames` blocks last touched, so the cohorts also tell, without a shadow
  // cache, since which stamp; lead_ sums our hits less LRU's, and forgets. SLRU would hold the proven blocks last touched and, in
  // the room that they leave, the others last touched.
  void close(u32 stamp) {
    lead_ *= std::max(0.0f, 1 - 0.3f * cohorts_.back().count / seen());
    if (cohorts_.size() >= MOST_COHORTS) merge();
    cohorts_.push_back({stamp, now_, 0, 0, {}});
    float room = seen();
    cutoff_ = since(room, [](const Cohort& c) { return c.count; });
    room = seen();
    proven_cutoff_ = since(room, [](const Cohort& c) { return c.proven; });
    new_cutoff_ = since(room, [](const Cohort& c) { return c.count - c.proven; });
  }
  // The stamp since which the cohorts, newest first, count up to `room`; what they leave of it stays.
  template <class Count>
  u32 since(float& room, Count count) const {
    std::size_t i = cohorts_.size() - 2;
    for (; i && count(cohorts_[i]) < room; --i) room -= count(cohorts_[i]);
    const float here = count(cohorts_[i]), part = std::min(1.0f, room / std::max(1.0f, here));
    room = std::max(0.0f, room - here);
    return cohorts_[i + 1].first - u32(part * float(cohorts_[i + 1].first - cohorts_[i].first));
  }
  void merge() {
    float all = 0;
    for (const Cohort& c : cohorts_) all += c.count;
    std::size_t last = 0;
    for (std::size_t i = 1; i < cohorts_.size(); ++i) {
      if (cohorts_[last].count + cohorts_[i].count <= all / 48) {
        cohorts_[last].count += cohorts_[i].count;
        cohorts_[last].proven += cohorts_[i].proven;
        for (u32 c = 0; c < HazardClass::COUNT; ++c) cohorts_[last].risk[c] += cohorts_[i].risk[c];
      } else if (++last != i) {
        cohorts_[last] = cohorts_[i];
      }
    }
    cohorts_.resize(last + 1);
  }

  u32 frames_, cutoff_ = 0, proven_cutoff_ = 0, new_cutoff_ = 0;
  Array<Ghost> ghosts_;
  std::size_t stored_ = 0;  // since the table grew
  std::vector<Cohort> cohorts_;
  std::array<float, 256> weight_;
  double start_ = 0;
  float now_ = 0, lead_ = 0, slru_lead_ = TRUST, memo_time_ = -1;
  u32 memo_first_ = 0, memo_next_ = 0;
  std::size_t memo_ = 0;
  int memo_age_ = 0;
  bool started_ = false;
  bool vouched_ = false;  // this request has spoken for SLRU
};

}  // namespace tenure
