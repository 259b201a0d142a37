// What all bindings share: arrays, the lock without the GIL, rows as Python gets them.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "../custom_policy.hpp"
#include "../pool.hpp"
#include "../tokens.hpp"

namespace tenure {

namespace nb = nanobind;
using namespace nb::literals;
using PoolClass = nb::class_<PyPool>;

using Parameters = std::map<std::string, double>;
using Table = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<1>>;

inline Table to_array(const std::vector<u32>& values) {
  auto* data = new std::int32_t[values.size() ? values.size() : 1];
  for (std::size_t i = 0; i < values.size(); ++i) data[i] = std::int32_t(values[i]);
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<std::int32_t*>(p); });
  return Table(data, {values.size()}, owner);
}

// Runs work on the pool without the GIL and under the pool's lock.
template <class Work>
auto locked(Pool& pool, Work&& work) {
  nb::gil_scoped_release unlocked;
  Pool::Guard guard(pool);
  return work();
}

inline void put(nb::dict& into, std::initializer_list<std::pair<const char*, u64>> counts) {
  for (const auto& [name, count] : counts) into[name] = count;
}

inline nb::tuple why_tuple(const Why& why) {
  return nb::make_tuple(u8(why.reason), why.at, why.when, why.policy, why.tenant == NONE ? -1 : i64(why.tenant),
                        why.space == NONE ? -1 : i64(why.space));
}

inline void check_tier(const Pool& pool, u32 tier) {
  if (tier >= pool.store.tiers())
    throw Error(Kind::Config, "there is no tier " + std::to_string(tier) + ": there are " + std::to_string(pool.store.tiers()),
                {{"tier", double(tier)}, {"tiers", double(pool.store.tiers())}});
}

inline u32 frame_of(const Pool& pool, u32 block) { return pool.store.device.slots[block].frame; }

inline std::vector<std::tuple<u32, u32, u32>> plain(const std::vector<Rewrite>& rewrites) {
  std::vector<std::tuple<u32, u32, u32>> out;
  for (const Rewrite& r : rewrites) out.emplace_back(r.position, r.old_frame, r.new_frame);
  return out;
}
inline std::vector<std::tuple<u32, u32, u32>> plain(const std::vector<Copy>& copies) {
  std::vector<std::tuple<u32, u32, u32>> out;
  for (const Copy& c : copies) out.emplace_back(c.source, c.target, c.tokens);
  return out;
}

}  // namespace tenure
