// Bytes between tiers: loads, writes, what was lost and what outlived a restart.
#pragma once
#include "common.hpp"

namespace tenure {

inline void bind_tiers(PoolClass& pool) {
  pool.def("loads",
           [](PyPool& p, u64 handle) {
             return locked(p, [&] {
               std::vector<std::tuple<u32, u32, u32, u32, u32>> rows;
               const Sequence& seq = p.sequence(handle);
               for (u32 i = 0; i < seq.loads.size(); ++i) {
                 const Load& l = seq.loads[i];
                 const bool there = p.store.in(DEVICE, l.block);  // another request has brought it
                 rows.emplace_back(l.block, p.store.blocks[l.block].generation, there ? DEVICE : l.tier,
                                   there ? frame_of(p, l.block) : l.source, frame_of(p, seq.blocks[seq.matched + i]));
               }
               return rows;
             });
           })
      .def("finish_loads", [](PyPool& p, u64 handle, u32 loaded,
                              double now) { return locked(p, [&] { return p.finish_loads(handle, loaded, now); }); })
      .def("take_writes",
           [](PyPool& p, u32 tier, u32 most, u32 demote, double now) {
             return locked(p, [&] {
               std::vector<std::tuple<u32, u32, u32, u32, u32, u32>> rows;
               for (const Pool::Order& o : p.take_writes(tier, most, demote, now))
                 rows.emplace_back(o.transfer, o.block, o.generation, o.from, o.source, o.target);
               return rows;
             });
           })
      .def("let_go", [](PyPool& p, u32 transfer, double now) { locked(p, [&] { p.let_go(transfer, now); }); })
      .def("finish_write", [](PyPool& p, u32 transfer, bool done,
                              double now) { return locked(p, [&] { return p.finish_write(transfer, done, now); }); })
      .def("offer",
           [](PyPool& p, u64 handle, u32 tier, double now) {
             check_tier(p, tier);
             return locked(p, [&] { return p.offer(handle, tier, now); });
           })
      .def("offer_again",
           [](PyPool& p, u32 tier, u32 block, u32 generation, double now) {
             check_tier(p, tier);
             locked(p, [&] { p.offer_again(tier, block, generation, now); });
           })
      .def("held_by_copies", [](PyPool& p) { return locked(p, [&] { return p.held_by_copies(); }); })
      .def("waiting",
           [](PyPool& p, u32 tier) {
             check_tier(p, tier);
             return locked(p, [&] { return p.waiting(tier); });
           })
      .def("lose",
           [](PyPool& p, u32 tier, u32 block, u32 generation, double now) {
             check_tier(p, tier);
             locked(p, [&] { p.lose(tier, block, generation, now); });
           })
      .def("content",
           [](PyPool& p, u32 block, u32 generation) {
             const Pool::Content c = locked(p, [&] { return p.content(block, generation); });
             return nb::make_tuple(c.space, c.parent == NONE ? -1 : i64(c.parent), c.parent_generation, c.depth, c.expires,
                                   nb::bytes(c.extra.data(), c.extra.size()), to_array(c.tokens));
           })
      .def("restore",
           [](PyPool& p, u32 space, i64 parent, nb::handle tokens, nb::bytes extra, u32 tier, u32 frame, double expires,
              double now) {
             const Tokens ids(tokens);
             const std::string key(extra.c_str(), extra.size());
             const u32 id = locked(p, [&] {
               if (ids.size() != p.options.block_size)
                 throw Error(Kind::Token,
                             "a block has " + std::to_string(p.options.block_size) + " tokens, not " + std::to_string(ids.size()),
                             {{"tokens", double(ids.size())}, {"block_size", double(p.options.block_size)}});
               return p.restore(space, parent < 0 ? NONE : u32(parent), ids.data(), key, tier, frame, expires, now);
             });
             return std::make_pair(id == NONE ? i64(-1) : i64(id), id == NONE ? 0 : p.store.blocks[id].generation);
           })
      .def("restored",
           [](PyPool& p, u32 tier) {
             check_tier(p, tier);
             locked(p, [&] { p.restored(tier); });
           })
      .def(
          "reach",
          [](PyPool& p, u32 space, nb::handle tokens, u32 tier, double now, const Request* request) {
            check_tier(p, tier);
            const Tokens ids(tokens);
            const Request none;
            const Pool::Reach r =
                locked(p, [&] { return p.reach(space, ids.data(), ids.size(), request ? *request : none, tier, now); });
            return std::make_tuple(r.full, r.nearer, r.here);
          },
          "space"_a, "tokens"_a, "tier"_a, "now"_a, "request"_a.none())
      .def(
          "discover",
          [](PyPool& p, u32 space, nb::handle tokens, u32 tier, u32 from, u32 upto, double now, const Request* request) {
            const Tokens ids(tokens);
            const Request none;
            std::vector<std::tuple<u32, u32, u32, u32>> rows;
            const auto seen = locked(
                p, [&] { return p.discover(space, ids.data(), ids.size(), request ? *request : none, tier, from, upto, now); });
            for (const Pool::Seen& s : seen) rows.emplace_back(s.at, s.block, s.generation, s.frame);
            return rows;
          },
          "space"_a, "tokens"_a, "tier"_a, "first"_a, "upto"_a, "now"_a, "request"_a.none())
      .def("moved", [](PyPool& p, u32 tier) {
        check_tier(p, tier);
        const auto [m, free] = locked(p, [&] { return std::make_pair(p.moved[tier], p.store.tier(tier).free()); });
        nb::dict d;
        put(d, {{"free", free},
                {"stored", m.stored},
                {"loaded", m.loaded},
                {"no_room", m.no_room},
                {"failed", m.failed},
                {"unloaded", m.unloaded},
                {"lost", m.lost},
                {"evicted", m.evicted},
                {"dropped", m.dropped}});
        return d;
      });
}

}  // namespace tenure
