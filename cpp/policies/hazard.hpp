// hazard: one LRU queue per class of block; the victim is the class head that is worth least to keep, by how soon blocks of its
// class and age have come back (hazard_rates.hpp), learned online from hits, misses on ghosts and time at risk
// (hazard_history.hpp). Where LRU would have had more hits of late, it does as LRU does; where SLRU lacks nothing (a scan, which
// no rate learned before foretells), it lets go first what was never asked for again. One class, or a clock that has not moved,
// is LRU. After LHD (Beckmann et al., NSDI 2018) and Gittins (1979); classes after KVCache in the Wild (ATC 2025).
#pragma once
#include <tuple>

#include "hazard_history.hpp"
#include "policy.hpp"

namespace tenure {

class Hazard final : public Policy {
 public:
  Hazard(Store& store, Tier& tier) : Policy(store, tier), history_(frames) {
    wants_life = wants_visits = true;
    for (u32 c = 0; c < HazardClass::COUNT; ++c) heaps_.emplace_back(slots);
    head_.fill(EMPTY);
  }
  const char* name() const override { return "hazard"; }

  void arrive(Visit& visit, const std::vector<u32>& hits, const Missing& missing, u64 stamp, double now) override {
    constexpr u32 PATIENCE = 4;  // sampled misses in a row without a ghost: the rest is new
    history_.arrive(now, u32(stamp));
    settled_ = false;
    visit = {u32(hits.size() + missing.count), u32(hits.size()), 0};
    for (u32 id : hits) {
      Mark mark = load(id);
      history_.hit(mark, u32(slots[id].stamp));
      slots[id].queue = mark.live;
    }
    if (!hits.empty()) visit.turn = slots[hits.back()].turn;
    for (u64 i = 0, silent = 0; i < missing.count && silent < PATIENCE; ++i) {
      const u64 key = missing.chains[i] ^ missing.salt;
      if (!HazardHistory::sampled(key)) continue;
      u32 stamp_then;
      if (const Mark* ghost = history_.missed(key, stamp_then)) {
        silent = 0;
        visit.known = u32(hits.size() + i + 1);
        visit.turn = ghost->turn;
      } else {
        ++silent;
      }
    }
  }

  // The path's zones: matched before the last two, the last two matched, new, and the last block when new (often cut short, and
  // then never asked for again).
  void depart(const Visit& visit, u32 output, u32 blocks) override {
    const bool goes_on = visit.known && visit.known >= 0.3 * visit.asked;  // a turn more of the chain that it matched
    const u32 turn = goes_on ? std::min(visit.turn + 1, 7) : 0, known = std::min(visit.known, blocks);
    cuts_ = {known > 2 ? known - 2 : 0, known, blocks > known ? blocks - 1 : blocks};
    constexpr std::array<u8, 4> ZONE{HazardClass::Earlier, HazardClass::LastMatched, HazardClass::New, HazardClass::NewEnd};
    const std::array<u32, 5> bounds{0, cuts_[0], cuts_[1], cuts_[2], blocks};
    for (u32 z = 0; z < 4; ++z) {
      const u32 run = std::max(1u, bounds[z + 1] - bounds[z]);
      marks_[z] = {history_.now(), HazardClass::of(output, turn, ZONE[z]), u8(turn),
                   u8(std::min(255.0f, 8 * std::log2(float(run)) + 0.5f)), false};
    }
  }
  void touch(u32 block, const Use& use) override {
    const u32 zone = u32(use.index >= cuts_[0]) + (use.index >= cuts_[1]) + (use.index >= cuts_[2]);
    Mark mark = load(block);
    history_.touched(use.key, mark, u32(use.before), marks_[zone]);
    keep(block, mark);
  }

  void insert(u32 block, double) override {
    const u8 kind = slots[block].kind;
    heaps_[kind].push(block, double(slots[block].stamp));
    changed_ |= 1ull << kind;
  }
  void remove(u32 block) override {
    const u8 kind = slots[block].kind;
    heaps_[kind].erase(block);
    changed_ |= 1ull << kind;
  }
  u32 victim(double now) override {
    if (now > last_time_) {
      history_.advance(now);
      last_time_ = now;
      settled_ = false;
    }
    for (; changed_; changed_ &= changed_ - 1) look(u32(std::countr_zero(changed_)));
    return heaps_[pick()].top();
  }
  u32 take(u32 freed, double now) override {
    if (freed == NONE || !settled_ || now > last_time_ || evictions_ >= next_learning_ || changed_ & ~(1ull << last_))
      return Policy::take(freed, now);
    const Slot& s = slots[freed];
    const bool same_run = s.kind == last_ && std::bit_cast<float>(s.aux) == head_time_[last_] && s.stamp < rival_;
    if (!same_run || !heaps_[last_].follows(freed, double(s.stamp))) return Policy::take(freed, now);
    head_[last_] = s.stamp;  // the run being evicted goes on: nothing else has changed
    evictions_++;
    return freed;
  }
  void evict(u32 block, u64 key, bool chosen) override {
    Mark mark = load(block);
    history_.evicted(key, mark, u32(slots[block].stamp), chosen);
    slots[block].queue = mark.live;
  }
  std::vector<u32> order(double) override {  // class by class, as the heads stand now; equals by stamp
    std::vector<std::tuple<float, u64, u32>> queue;
    for (u32 c = 0; c < HazardClass::COUNT; ++c) {
      if (heaps_[c].empty()) continue;
      const u32 top = heaps_[c].top();
      const float value = worth(c, load(top).time);
      for (u32 id : heaps_[c].order()) queue.emplace_back(value, slots[id].stamp, id);
    }
    std::sort(queue.begin(), queue.end());
    std::vector<u32> all;
    for (const auto& [value, stamp, id] : queue) all.push_back(id);
    return all;
  }

 private:
  static constexpr u64 EMPTY = ~0ull;

  // A block's mark lies in its slot.
  Mark load(u32 id) const {
    const Slot& s = slots[id];
    return {std::bit_cast<float>(s.aux), s.kind, s.turn, s.spare, s.queue != 0};
  }
  void keep(u32 id, const Mark& mark) {
    Slot& s = slots[id];
    s.aux = std::bit_cast<u32>(mark.time);
    s.kind = mark.kind;
    s.turn = mark.turn;
    s.spare = mark.run;
    s.queue = mark.live;
  }
  float worth(u32 kind, float time) {
    if (history_.lru_is_better()) return 0;
    if (history_.slru_is_better()) return HazardClass::proven(kind);
    return history_.rates.index(kind, HazardRates::bucket(history_.now() - time));
  }

  // A queue's head may be another now.
  void look(u32 c) {
    const bool empty = heaps_[c].empty();
    const u32 top = empty ? NONE : heaps_[c].top();
    const u64 stamp = empty ? EMPTY : slots[top].stamp;
    if (stamp == head_[c]) return;
    const float time = empty ? 0 : std::bit_cast<float>(slots[top].aux);
    const bool same_run = !empty && head_[c] != EMPTY && time == head_time_[c];
    head_[c] = stamp;
    head_time_[c] = time;
    queued_ = empty ? queued_ & ~(1ull << c) : queued_ | 1ull << c;
    if (!same_run) until_[c] = -1;
    // The next block of the run being evicted changes nothing, unless a class of equal worth has an older one.
    if (!(same_run && c == last_ && stamp < rival_)) settled_ = false;
  }

  // The class whose head goes; equals by stamp.
  u32 pick() {
    if (evictions_ >= next_learning_) learn();
    evictions_++;
    if (settled_) return last_;
    const bool lru = history_.lru_is_better(), slru = history_.slru_is_better();
    float least = std::numeric_limits<float>::infinity();
    rival_ = EMPTY;
    for (u64 left = queued_; left; left &= left - 1) {
      const u32 c = u32(std::countr_zero(left));
      if (!lru && !slru && history_.now() >= until_[c]) {
        const int age = HazardRates::bucket(history_.now() - head_time_[c]);
        worth_[c] = history_.rates.index(c, age);
        until_[c] = head_time_[c] + history_.rates.end_of(age);  // until then it is worth the same
      }
      const float value = lru ? 0 : slru ? HazardClass::proven(c) : worth_[c];
      if (value < least) {
        last_ = c;
        least = value;
        rival_ = EMPTY;
      } else if (value == least) {
        if (head_[c] < head_[last_]) {
          rival_ = head_[last_];
          last_ = c;
        } else {
          rival_ = std::min(rival_, head_[c]);
        }
      }
    }
    settled_ = true;
    return last_;
  }
  void learn() {
    next_learning_ = evictions_ + std::clamp<u64>(evictions_ / 16, 64, 16384);
    const float keep = std::exp(-float(evictions_ - learned_) / (100 * float(frames)));  // traffic changes: forget slowly
    learned_ = evictions_;
    history_.rates.learn(history_.waiting(), history_.now(), keep);
    until_.fill(-1);
    settled_ = false;
  }

  HazardHistory history_;
  std::vector<LeafHeap> heaps_;
  std::array<Mark, 4> marks_{};  // of the request that departs, by zone
  std::array<u32, 3> cuts_{};
  std::array<u64, HazardClass::COUNT> head_;
  std::array<float, HazardClass::COUNT> head_time_{}, until_{}, worth_{};
  u64 changed_ = 0, queued_ = 0, rival_ = EMPTY, evictions_ = 0, learned_ = 0, next_learning_ = 0;
  double last_time_ = -std::numeric_limits<double>::infinity();
  u32 last_ = 0;
  bool settled_ = false;  // the last choice still stands
};

}  // namespace tenure
