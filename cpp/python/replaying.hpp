// Replay of a whole trace in one call.
#pragma once
#include "../replay.hpp"
#include "common.hpp"

namespace tenure {

inline void bind_replaying(PoolClass& pool) {
  pool.def(
      "replay",
      [](PyPool& p, nb::ndarray<const i64, nb::ndim<1>, nb::c_contig> offsets,
         nb::ndarray<const u32, nb::ndim<1>, nb::c_contig> blocks, nb::ndarray<const double, nb::ndim<1>, nb::c_contig> arrival,
         nb::ndarray<const double, nb::ndim<1>, nb::c_contig> duration, nb::ndarray<const u32, nb::ndim<1>, nb::c_contig> output,
         nb::ndarray<const u32, nb::ndim<1>, nb::c_contig> space,
         std::optional<nb::ndarray<const u32, nb::ndim<1>, nb::c_contig>> next_use, bool overlap,
         std::optional<nb::callable> progress) {
        const u64 n = arrival.shape(0);
        if (offsets.shape(0) != n + 1 || duration.shape(0) != n || output.shape(0) != n || space.shape(0) != n ||
            (next_use && next_use->shape(0) != blocks.shape(0)) || p.options.block_size != 1)
          throw Error(Kind::Config, "replay columns differ in length, or the pool's blocks are not of one token");
        for (u64 i = 0; i < n; ++i)
          if (offsets.data()[i] < 0 || offsets.data()[i] > offsets.data()[i + 1] || u64(offsets.data()[i + 1]) > blocks.shape(0))
            throw Error(Kind::Config, "replay offsets must rise and stay within the blocks", {{"request", double(i)}});
        const Traffic traffic{n,
                              offsets.data(),
                              blocks.data(),
                              arrival.data(),
                              duration.data(),
                              output.data(),
                              space.data(),
                              next_use ? next_use->data() : nullptr,
                              overlap};
        std::function<void(u64)> report;
        if (progress)
          report = [&](u64 done) {
            nb::gil_scoped_acquire gil;
            (*progress)(done);
          };
        const Replayed r = locked(p, [&] { return replay(p, traffic, report); });
        nb::dict d;
        put(d, {{"asked", r.asked}, {"hit", r.hit}, {"evictions", r.evicted}, {"waited", r.waited}, {"cut", r.cut}});
        d["hits"] = to_array(r.hits);
        return d;
      },
      "offsets"_a, "blocks"_a, "arrival"_a, "duration"_a, "output"_a, "space"_a, "next_use"_a.none(), "overlap"_a,
      "progress"_a.none());
}

}  // namespace tenure
