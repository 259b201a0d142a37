// Random work on the pool, without Python, for the sanitisers: every policy, several tenants, leases, expiry, invalidation,
// forks, policy changes; every prompt is compared with what its blocks hold, and the books are checked all along.
//   stress [threads] [--seconds N] [--seed N] [--rounds N]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "../../cpp/pool.hpp"

using namespace tenure;

namespace {

constexpr u8 OPTIMUM = 10;

class Random {
 public:
  explicit Random(u64 seed) : engine_(seed) {}
  u32 below(u32 n) { return u32(engine_() % n); }
  double real() { return double(engine_() >> 11) / double(u64(1) << 53); }
  bool chance(double p) { return real() < p; }

 private:
  std::mt19937_64 engine_;
};

[[noreturn]] void fail(const char* what, u64 seed, u64 step) {
  std::fprintf(stderr, "stress: %s (seed %llu, step %llu)\n", what, static_cast<unsigned long long>(seed),
               static_cast<unsigned long long>(step));
  std::exit(1);
}

Options random_options(Random& rng) {
  Options o;
  o.frames = 4 + rng.below(rng.chance(0.2) ? 400 : 40);
  o.block_size = 1 + rng.below(6);
  o.seed = rng.below(1000);
  o.policy = POLICIES[rng.below(OPTIMUM)].name;
  o.pin_budget = rng.real();
  o.partial_reuse = rng.chance(0.5) ? 1 + rng.below(o.block_size) : 0;
  o.rewrite = rng.chance(0.5);
  o.events = rng.chance(0.5) ? 64 : 0;
  o.evict_batch = rng.chance(0.7) ? 1 : 1 + rng.below(o.frames);
  o.tag = rng.below(4096);
  if (rng.chance(0.6))
    for (u32 k = 1 + rng.below(MOST_TIERS - 1); k > 0; --k)
      o.lower.push_back({1 + rng.below(2 * o.frames), Write(rng.below(3)), 1 + rng.below(3)});
  return o;
}

// What one thread does with the pool. Handles and leases are its own; with several threads some are given to others.
class Worker {
 public:
  Worker(Pool& pool, const std::vector<u32>& spaces, u64 seed, bool alone)
      : pool_(pool), spaces_(spaces), rng_(seed), seed_(seed), alone_(alone) {}

  void step(double now) {
    ++steps_;
    try {
      Pool::Guard guard(pool_);
      act(now);
    } catch (const Error& error) {
      const bool refusal = error.kind == Kind::Capacity || error.kind == Kind::Quota || error.kind == Kind::Budget;
      const bool floors = error.kind == Kind::Config && std::strstr(error.what(), "floors");
      if (!refusal && !floors) fail(error.what(), seed_, steps_);
    }
  }
  void finish(double now) {
    try {
      Pool::Guard guard(pool_);
      for (u32 transfer : writes_) pool_.finish_write(transfer, true, now);
      for (u64 handle : loading_) pool_.release(handle, true, now);
      for (u64 handle : running_) pool_.release(handle, false, now);
      for (u64 handle : leases_) pool_.end_lease(handle, now);
      pool_.check();
    } catch (const Error& error) {
      fail(error.what(), seed_, steps_);
    }
    writes_.clear();
    loading_.clear();
    running_.clear();
    leases_.clear();
  }
  void check() {
    try {
      Pool::Guard guard(pool_);
      pool_.check();
    } catch (const Error& error) {
      fail(error.what(), seed_, steps_);
    }
  }

 private:
  std::vector<u32> tokens() {
    std::vector<u32> out;
    const u32 blocks = 1 + rng_.below(5);
    for (u32 b = 0; b < blocks; ++b) {
      const u32 name = rng_.below(4);
      for (u32 i = 0; i < pool_.options.block_size; ++i) out.push_back(name * 16 + i);
    }
    if (rng_.chance(0.3)) out.resize(1 + rng_.below(u32(out.size())));
    if (rng_.chance(0.2)) out.back() = 999;
    return out;
  }

  Request request() {
    Request r;
    r.written = rng_.chance(0.5);
    if (rng_.chance(0.2)) r.max_hit = rng_.below(12);
    if (rng_.chance(0.3))
      r.priorities.push_back({0, rng_.below(20) + 1u, u8(rng_.below(101)), rng_.chance(0.5) ? -1 : 5 * rng_.real()});
    if (rng_.chance(0.2)) r.decode_priority = u8(rng_.below(101));
    if (rng_.chance(0.2)) r.decode_duration = rng_.real() * 5;
    if (rng_.chance(0.2)) r.expire_after = rng_.real() * 20;
    if (rng_.chance(0.2)) r.protect_for = rng_.real() * 5;
    if (rng_.chance(0.3)) r.session = rng_.chance(0.5) ? "a" : "b";
    if (!r.session.empty() && rng_.chance(0.5)) r.anchor_for = rng_.real() * 5;
    if (rng_.chance(0.1)) r.extras.emplace_back(0, rng_.chance(0.5) ? "image" : "other image");
    return r;
  }

  // A sequence holds the tokens it was asked to hold, in blocks of its own.
  void compare(u64 handle, const std::vector<u32>& prompt) {
    const Sequence& seq = pool_.sequence(handle);
    const u32 size = pool_.options.block_size;
    for (std::size_t i = 0; i < prompt.size(); ++i)
      if (pool_.store.tokens_of(seq.blocks[i / size])[i % size] != prompt[i]) fail("a block holds other tokens", seed_, steps_);
    std::vector<u32> blocks = seq.blocks;
    std::sort(blocks.begin(), blocks.end());
    if (std::adjacent_find(blocks.begin(), blocks.end()) != blocks.end()) fail("a block is there twice", seed_, steps_);
    for (const Copy& copy : seq.copies)
      if (std::find(seq.blocks.begin(), seq.blocks.end(), copy.target) == seq.blocks.end())
        fail("a copy goes to a block that is not the sequence's", seed_, steps_);
  }

  // Copies between tiers: some are begun, some finished, some fail.
  void move_bytes(double now) {
    const u32 tier = 1 + rng_.below(u32(pool_.options.lower.size()));
    const u32 what = rng_.below(10);
    if (what < 3) {
      for (const Pool::Order& order : pool_.take_writes(tier, rng_.below(8), rng_.below(4), now))
        writes_.push_back(order.transfer);
    } else if (what < 6 && !writes_.empty()) {
      const std::size_t count = 1 + rng_.below(u32(writes_.size()));
      for (std::size_t i = 0; i < count; ++i) pool_.finish_write(writes_[i], rng_.chance(0.9), now);
      writes_.erase(writes_.begin(), writes_.begin() + std::ptrdiff_t(count));
    } else if (what < 9 && !loading_.empty()) {
      const u64 handle = loading_.back();
      loading_.pop_back();
      const u32 loads = u32(pool_.loads(handle).size());
      pool_.finish_loads(handle, rng_.chance(0.8) ? loads : rng_.below(loads + 1), now);
      running_.push_back(handle);
      compare(handle, {});
    } else if (rng_.chance(0.3)) {
      const u32 id = rng_.below(pool_.store.records() + 1);
      if (id < pool_.store.records()) pool_.lose(tier, id, pool_.store.blocks[id].generation, now);
    }
  }

  void act(double now) {
    if (!pool_.options.lower.empty() && rng_.chance(0.3)) return move_bytes(now);
    const u32 space = spaces_[rng_.below(u32(spaces_.size()))];
    const u32 what = rng_.below(1000);
    if (what < 300 || running_.empty()) {
      if (running_.size() > 200) return;
      const std::vector<u32> prompt = tokens();
      const Admission in = pool_.admit(space, prompt.data(), prompt.size(), request(), now);
      (in.loads ? loading_ : running_).push_back(in.handle);
      compare(in.handle, prompt);
      return;
    }
    const std::size_t at = rng_.below(u32(running_.size()));
    const u64 handle = running_[at];
    if (what < 520) {
      running_[at] = running_.back();
      running_.pop_back();
      pool_.release(handle, rng_.chance(0.1), now);
    } else if (what < 650) {
      const std::vector<u32> more = tokens();
      pool_.append(handle, more.data(), rng_.below(u32(more.size()) + 1), rng_.chance(0.8), now);
      compare(handle, {});
    } else if (what < 710) {
      if (running_.size() < 200) running_.push_back(pool_.fork(handle, now));
    } else if (what < 770) {
      pool_.truncate(handle, rng_.below(u32(pool_.sequence(handle).length) + 1), now);
    } else if (what < 810) {
      pool_.seal(handle, rng_.below(u32(pool_.sequence(handle).length) + 1), now);
    } else if (what < 830) {
      pool_.acknowledge(handle, now);
    } else if (what < 890) {
      const std::vector<u32> prompt = tokens();
      const auto kind = rng_.chance(0.4) ? LeaseKind::Lookup : rng_.chance(0.5) ? LeaseKind::Pin : LeaseKind::Protect;
      leases_.push_back(pool_.lease(kind, space, prompt.data(), prompt.size(), Request{}, "o", now + 5 * rng_.real(), now));
    } else if (what < 930) {
      if (leases_.empty()) return;
      const std::size_t which = rng_.below(u32(leases_.size()));
      pool_.end_lease(leases_[which], now);
      leases_.erase(leases_.begin() + std::ptrdiff_t(which));
    } else if (what < 950) {
      const std::vector<u32> prompt = tokens();
      pool_.match(space, prompt.data(), prompt.size(), Request{}, now);
    } else if (what < 965) {
      pool_.invalidate(space, now);
    } else if (what < 975) {
      const u32 tenant = rng_.below(pool_.tenants.size());
      pool_.set_quota(tenant, {rng_.real() / 3, 0.5 + rng_.real() / 2, 0.1 + rng_.real(), rng_.real()});
    } else if (what < 985) {
      const u8 policy = u8(rng_.below(OPTIMUM));
      pool_.set_policy(rng_.below(pool_.store.tiers()), POLICIES[policy].make, policy, {}, now);
    } else if (what < 990) {
      const u32 tier = rng_.below(pool_.store.tiers());
      std::map<std::string, double> values = pool_.policy_parameters(tier);
      pool_.set_policy_parameters(tier, values, now);
    } else if (what < 994) {
      pool_.sweep(now);
    } else if (what < 996) {
      pool_.clear(now);
    } else {
      for (u32 t = 0; t < pool_.tenants.size(); ++t)
        for (u32 k = 0; k < pool_.store.tiers(); ++k)
          if (pool_.order(k, t, now).size() != pool_.tenants[t].in[k].queued) fail("the order is not the queue", seed_, steps_);
    }
    if (alone_ && rng_.chance(0.1)) stale(handle, at);
  }

  // A handle that has ended is refused, whatever has taken its place.
  void stale(u64 handle, std::size_t at) {
    if (at < running_.size() && running_[at] == handle) return;
    if (std::find(running_.begin(), running_.end(), handle) != running_.end()) return;
    try {
      pool_.sequence(handle);
    } catch (const Error& error) {
      if (error.kind == Kind::StaleHandle) return;
    }
    fail("a stale handle names a sequence", seed_, steps_);
  }

  Pool& pool_;
  const std::vector<u32>& spaces_;
  Random rng_;
  u64 seed_, steps_ = 0;
  bool alone_;
  std::vector<u64> running_, loading_, leases_;
  std::vector<u32> writes_;  // under way, in their order
};

std::vector<u32> open_spaces(Pool& pool) {
  std::vector<u32> spaces;
  for (u32 t = 0; t < 3; ++t) {
    const u32 tenant = pool.open_tenant("tenant " + std::to_string(t));
    spaces.push_back(pool.open_space(tenant, 1));
    spaces.push_back(pool.open_space(tenant, 2.5f));
  }
  return spaces;
}

void one_round(u64 seed) {
  Random rng(seed);
  Pool pool(random_options(rng), PrefillCost{}, {});
  const std::vector<u32> spaces = open_spaces(pool);
  Worker worker(pool, spaces, seed, true);
  const u32 every = pool.options.frames < 50 ? 1 : 16;
  double now = 0;
  for (u32 i = 0; i < 2000; ++i) {
    now += rng.real() * 0.3;
    worker.step(now);
    if (i % every == 0) worker.check();
  }
  worker.finish(now);
  worker.check();
  pool.clear(now + 1000);
  worker.check();
  for (u32 k = 0; k < pool.store.tiers(); ++k)
    if (pool.store.tier(k).free() != pool.store.tier(k).frames) fail("frames are left in use", seed, 2000);
}

void one_round_of_threads(u64 seed, double seconds) {
  Random rng(seed);
  Options options = random_options(rng);
  options.frames = 200;
  Pool pool(options, PrefillCost{}, {});
  const std::vector<u32> spaces = open_spaces(pool);
  const auto start = std::chrono::steady_clock::now();
  const auto now = [start] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::vector<std::thread> threads;
  for (u64 t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Worker worker(pool, spaces, seed * 8 + t, false);
      for (u32 i = 0; now() < seconds; ++i) {
        worker.step(now() * 10);
        if (i % 500 == 0) worker.check();
      }
      worker.finish(now() * 10);
    });
  for (std::thread& thread : threads) thread.join();
  Worker(pool, spaces, seed, false).check();
  pool.clear(1e6);
  if (pool.store.device.free() != pool.options.frames) fail("frames are left in use", seed, 0);
}

}  // namespace

int main(int argc, char** argv) {
  bool threads = false;
  double seconds = 20;
  u64 seed = 1, rounds = ~u64(0);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::strtod(argv[++i], nullptr) : 0; };
    if (word == "threads") {
      threads = true;
    } else if (word == "--seconds") {
      seconds = value();
    } else if (word == "--seed") {
      seed = u64(value());
    } else if (word == "--rounds") {
      rounds = u64(value());
    } else {
      std::fprintf(stderr, "usage: stress [threads] [--seconds N] [--seed N] [--rounds N]\n");
      return 2;
    }
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  u64 done = 0;
  for (; done < rounds && std::chrono::steady_clock::now() < end; ++done)
    threads ? one_round_of_threads(seed + done, std::min(seconds, 4.0)) : one_round(seed + done);
  std::printf("stress: %llu rounds from seed %llu, all well\n", static_cast<unsigned long long>(done),
              static_cast<unsigned long long>(seed));
  return 0;
}
