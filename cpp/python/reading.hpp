// What a pool tells of itself: the books, counters, blocks, events.
#pragma once
#include "common.hpp"

namespace tenure {

inline nb::dict counters_dict(const Counters& c) {
  nb::dict d;
  put(d, {{"requests", c.requests},
          {"refused", c.refused},
          {"blocks_asked", c.blocks_asked},
          {"blocks_hit", c.blocks_hit},
          {"tokens_asked", c.tokens_asked},
          {"tokens_hit", c.tokens_hit},
          {"evicted", c.evicted},
          {"evicted_by_others", c.evicted_by_others},
          {"expired", c.expired},
          {"invalidated", c.invalidated},
          {"duplicates", c.duplicates},
          {"copies", c.copies}});
  nb::dict endings, missed;
  for (std::size_t i = 0; i < REASON_NAMES.size(); ++i) {
    endings[REASON_NAMES[i]] = c.endings[i];
    missed[REASON_NAMES[i]] = c.missed[i];
  }
  d["endings"] = endings;
  d["missed"] = missed;
  return d;
}

// A block as it is now, read under the lock; made a Python tuple after it.
struct BlockRow {
  Block block;
  Slot slot;
  u32 id, tenant;
  i64 parent_frame;
  bool hittable;
  std::vector<u32> tokens;
};

inline void bind_reading(PoolClass& pool) {
  pool.def("check", [](PyPool& p) { locked(p, [&] { p.check(); }); })
      .def("states",
           [](PyPool& p) {
             return locked(p, [&] {
               std::vector<u32> states(p.states.begin(), p.states.end());
               states[u8(State::Free)] = p.store.device.free();
               return states;
             });
           })
      .def("totals",
           [](PyPool& p) {
             return locked(p, [&] {
               return std::make_tuple(p.pinned, p.refused_leases, p.ledger.logged(),
                                      u64(p.sequences.size()) - p.idle_sequences());
             });
           })
      .def("held",
           [](PyPool& p) {
             std::vector<std::tuple<u32, u32, u32, u32>> rows;
             for (const Pool::Held& h : locked(p, [&] { return p.held(); }))
               rows.emplace_back(h.space, h.sequences, h.blocks, h.valid);
             return rows;
           })
      .def("tenant",
           [](PyPool& p, u32 tenant, u32 tier) {
             check_tier(p, tier);
             struct Copy {
               Counters counters;
               u32 floor, cap, pin_cap, used, busy, pinned, queued;
             };
             const Copy t = locked(p, [&] {
               const Tenant& x = p.tenants[tenant];
               const Share& s = x.in[tier];
               return Copy{x.counters, s.floor, s.cap, x.pin_cap, s.used, x.busy, x.pinned, s.queued};
             });
             nb::dict d = counters_dict(t.counters);
             put(d, {{"floor", t.floor},
                     {"cap", t.cap},
                     {"pin_cap", t.pin_cap},
                     {"used", t.used},
                     {"busy", t.busy},
                     {"pinned", t.pinned},
                     {"queued", t.queued}});
             return d;
           })
      .def("block",
           [](PyPool& p, u32 tier, u32 frame) -> nb::object {
             check_tier(p, tier);
             BlockRow row{};
             const bool found = locked(p, [&] {
               const Tier& frames = p.store.tier(tier);
               if (frame >= frames.frames)
                 throw Error(Kind::Config,
                             "frame " + std::to_string(frame) + " does not exist: there are " + std::to_string(frames.frames),
                             {{"frame", double(frame)}, {"frames", double(frames.frames)}});
               const u32 id = frame < frames.untouched ? frames.holder[frame] : NONE;
               if (id == NONE) return false;
               const Block& b = p.store.blocks[id];
               const u32* tokens = p.store.tokens_of(id);
               row = {b,
                      frames.slots[id],
                      id,
                      p.tree.roots[b.root].tenant,
                      b.parent == NONE ? -1 : i64(frames.slots[b.parent].frame),
                      (b.flags & IN_TREE) && !p.dead(b),
                      {tokens, tokens + b.filled}};
               return true;
             });
             if (!found) return nb::none();
             const Block& b = row.block;
             return nb::make_tuple(row.id, b.generation, u8(b.state), row.slot.frame, b.refs, b.pins, b.holds, b.depth,
                                   row.parent_frame, row.tenant, row.slot.uses, row.slot.last, row.slot.queued != NONE,
                                   row.hittable, row.tokens);
           })
      .def("events",
           [](PyPool& p, u64 from) {
             std::vector<Event> events;
             const u64 first = locked(p, [&] { return p.ledger.read(from, events); });
             nb::list out;
             for (const Event& e : events)
               out.append(nb::make_tuple(e.time, u8(e.what), e.block, e.generation, e.frame == NONE ? -1 : i64(e.frame), e.tenant,
                                         u8(e.state), e.tier));
             return nb::make_tuple(first, out);
           })
      .def("inventory",
           [](PyPool& p) {
             std::vector<Pool::Listed> held;
             const auto [logged, hidden] = locked(p, [&] {
               held = p.inventory();
               return std::make_pair(p.ledger.logged(), p.hidden);
             });
             std::stable_sort(held.begin(), held.end(), [](const auto& a, const auto& b) { return a.depth < b.depth; });
             nb::list rows;
             for (const Pool::Listed& h : held) rows.append(nb::make_tuple(h.block, h.generation, h.tiers));
             return nb::make_tuple(logged, hidden, rows);
           })
      .def("hidden", [](PyPool& p) { return locked(p, [&] { return p.hidden; }); })
      .def("bytes_per_block", [](PyPool& p) { return sizeof(Block) + sizeof(Slot) + p.options.block_size * sizeof(u32); });
}

}  // namespace tenure
