// How soon do blocks of a class come back? Reuses and seconds at risk, by class and age, become hazards (reuses a second at risk)
// and those a Gittins index: what keeping a block of that class and age is worth. Used by hazard.hpp alone; knows no blocks.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "../block.hpp"

namespace tenure {

// Classes from coarse to fine: tokens generated (< 64, < 400, more), turn (0, 1, 2-3, 4+), zone of the path.
struct HazardClass {
  static constexpr u32 OUTPUTS = 3, TURNS = 4, ZONES = 4, COUNT = OUTPUTS * TURNS * ZONES;
  enum Zone : u8 { New, LastMatched, Earlier, NewEnd };

  static u8 of(u32 output, u32 turn, u32 zone) {
    const u32 out = output < 64 ? 0 : output < 400 ? 1 : 2;
    const u32 turns = turn >= 4 ? 3 : turn >= 2 ? 2 : turn;
    return u8((out * TURNS + turns) * ZONES + zone);
  }
  static bool proven(u32 kind) { return kind % ZONES == LastMatched || kind % ZONES == Earlier; }  // asked for again
};

class HazardRates {
 public:
  static constexpr int AGES = 34;
  using Ages = std::array<float, AGES>;
  using Table = std::array<Ages, HazardClass::COUNT>;

  HazardRates() {
    for (int b = 0; b < AGES; ++b) {
      edge_[b] = edge(b);
      width_[b] = (b + 1 < AGES ? edge(b + 1) : 1.6f * edge(b)) - edge(b);
      prior_[b] = 0.2f / (edge(b) + width_[b] / 2);  // before any data: reuse falls off as 1 / age
    }
  }

  // Ages fall into buckets by a piecewise linear log2 (a float's bits, read as a number, are just that): growth about 1.8.
  static int bucket(float age) {
    if (!(age >= FIRST)) return 0;
    const std::int32_t octaves = std::bit_cast<std::int32_t>(age / FIRST) - std::bit_cast<std::int32_t>(1.0f);
    return std::min(AGES - 1, 1 + int(float(octaves) * (PER_OCTAVE / (1 << 23))));
  }
  float end_of(int bucket) const { return edge_[bucket] + width_[bucket]; }

  void reused(u8 kind, int age, float weight) { reused_[kind][age] += weight; }
  void lost(u8 kind, int age, float weight) { lost_[kind][age] += weight; }  // gone from sight, not seen to come back

  // Turns the counts into hazards. `waiting`: weight still at risk, by class and age now. `keep`: how much of the past stays.
  void learn(const Table& waiting, float now, float keep) {
    ages_ = std::min(AGES, bucket(now) + 3);  // nothing can be older
    still_ = now == 0;
    index_ = {};
    for (Table* table : {&reused_, &lost_})
      for (Ages& row : *table)
        for (float& x : row) x *= keep;
    Evidence all;
    std::array<Evidence, HazardClass::OUTPUTS> by_output;
    std::array<Evidence, HazardClass::OUTPUTS * HazardClass::TURNS> by_turn;
    std::array<Evidence, HazardClass::COUNT> own;
    for (u32 c = 0; c < HazardClass::COUNT; ++c) {
      float older = 0;
      for (int b = ages_; b-- > 0;) {
        const float here = reused_[c][b] + lost_[c][b] + waiting[c][b];
        own[c].reuses[b] = reused_[c][b];
        own[c].seconds[b] = (older + here / 2) * width_[b];
        older += here;
      }
      own[c].any = older > 0;
      if (!own[c].any) continue;
      by_turn[c / HazardClass::ZONES].add(own[c], ages_);
      by_output[c / HazardClass::ZONES / HazardClass::TURNS].add(own[c], ages_);
      all.add(own[c], ages_);
    }
    Ages root, output, turn;
    fit(all, prior_, root);
    for (u32 c = 0; c < HazardClass::COUNT; ++c) {
      if (c % (HazardClass::TURNS * HazardClass::ZONES) == 0)
        fit(by_output[c / HazardClass::ZONES / HazardClass::TURNS], root, output);
      if (c % HazardClass::ZONES == 0) fit(by_turn[c / HazardClass::ZONES], output, turn);
      fit(own[c], turn, rate_[c]);
    }
  }

  // Gittins index: the most, over horizons T, of P(reuse within T) / E[time held until reuse or T].
  float index(u32 kind, int age) {
    age = std::min(age, ages_ - 1);
    float& best = index_[kind][age];
    if (best > 0 || still_) return best;  // no time has passed yet: all are equal, and the oldest stamp goes
    float alive = 1, held = 0;
    for (int b = age; b < ages_ && rate_[kind][b] >= best; ++b) {  // a horizon past lower rates only dilutes
      const float stays = std::exp(-rate_[kind][b] * width_[b] * (b == age ? 0.5f : 1.0f));
      held += alive * (1 - stays) / rate_[kind][b];
      alive *= stays;
      best = std::max(best, (1 - alive) / held);
    }
    return best;
  }

 private:
  static constexpr float FIRST = 0.05f, PER_OCTAVE = 1.18f;  // s; buckets an octave
  static constexpr float PRIOR = 4;                          // a parent class counts for as much as four runs of blocks reused

  struct Evidence {
    Ages reuses{}, seconds{};
    bool any = false;
    void add(const Evidence& other, int ages) {
      any = true;
      for (int b = 0; b < ages; ++b) {
        reuses[b] += other.reuses[b];
        seconds[b] += other.seconds[b];
      }
    }
  };

  static float edge(int bucket) {  // the least age in it
    if (bucket == 0) return 0;
    const float octaves = float(bucket - 1) / PER_OCTAVE;
    return FIRST * std::ldexp(1 + octaves - std::floor(octaves), int(octaves));
  }

  // Hazard by age: h = (reuses + PRIOR) / (seconds + PRIOR / (parent · times)), where `times` is how many times its parent the
  // class was one bucket younger: without data it stays that. Past its peak the hazard falls: isotonic regression by seconds.
  void fit(const Evidence& evidence, const Ages& parent, Ages& h) const {
    if (!evidence.any) {
      h = parent;
      return;
    }
    int peak = 0;
    float times = 1;
    for (int b = 0; b < ages_; ++b) {
      times *= (evidence.reuses[b] + PRIOR) / (evidence.seconds[b] * parent[b] * times + PRIOR);
      h[b] = parent[b] * times;
      if (h[b] > h[peak]) peak = b;
    }
    struct Run {
      float value, weight;
      int length;
    };
    std::array<Run, AGES> runs;
    int count = 0;
    for (int b = peak; b < ages_; ++b) {
      runs[count++] = {h[b], evidence.seconds[b] + 1e-9f, 1};
      for (; count > 1 && runs[count - 2].value < runs[count - 1].value; --count) {
        Run& into = runs[count - 2];
        const Run& from = runs[count - 1];
        into.value = (into.value * into.weight + from.value * from.weight) / (into.weight + from.weight);
        into.weight += from.weight;
        into.length += from.length;
      }
    }
    for (int i = 0, b = peak; i < count; ++i)
      for (int j = 0; j < runs[i].length; ++j) h[b++] = runs[i].value;
  }

  Ages edge_, width_, prior_;
  Table reused_{}, lost_{}, rate_{}, index_{};
  int ages_ = AGES;
  bool still_ = true;
};

}  // namespace tenure
