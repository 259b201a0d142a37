// What Python sees: argument conversion, the GIL, the lock, errors. No rule of the pool lives here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "custom_policy.hpp"
#include "pool.hpp"
#include "replay.hpp"
#include "tokens.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tenure;

namespace {

constexpr std::array<const char*, 11> ERROR_CLASSES{"TokenError",     "ConfigError",      "CapacityError",      "QuotaError",
                                                    "BudgetError",    "StaleHandleError", "ForeignHandleError", "StateError",
                                                    "IntegrityError", "PolicyError",      "ReentrancyError"};

using Parameters = std::map<std::string, double>;
using Table = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<1>>;

Table to_array(const std::vector<u32>& values) {
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

nb::tuple why_tuple(const Why& why) {
  return nb::make_tuple(u8(why.reason), why.at, why.when, why.policy, why.tenant == NONE ? -1 : i64(why.tenant),
                        why.space == NONE ? -1 : i64(why.space));
}

void check_tier(const Pool& pool, u32 tier) {
  if (tier >= pool.store.tiers())
    throw Error(Kind::Config, "there is no tier " + std::to_string(tier) + ": there are " + std::to_string(pool.store.tiers()),
                {{"tier", double(tier)}, {"tiers", double(pool.store.tiers())}});
}

u32 frame_of(const Pool& pool, u32 block) { return pool.store.device.slots[block].frame; }

std::vector<std::tuple<u32, u32, u32>> plain(const std::vector<Rewrite>& rewrites) {
  std::vector<std::tuple<u32, u32, u32>> out;
  for (const Rewrite& r : rewrites) out.emplace_back(r.position, r.old_frame, r.new_frame);
  return out;
}
std::vector<std::tuple<u32, u32, u32>> plain(const std::vector<Copy>& copies) {
  std::vector<std::tuple<u32, u32, u32>> out;
  for (const Copy& c : copies) out.emplace_back(c.source, c.target, c.tokens);
  return out;
}

PolicyMaker maker_for(nb::handle policy, u8& index, std::shared_ptr<CustomState>& custom) {
  custom.reset();
  if (nb::isinstance<nb::str>(policy)) {
    index = find_policy(nb::cast<std::string>(policy));
    return POLICIES[index].make;
  }
  if (!nb::hasattr(policy, "priority") || !PyCallable_Check(nb::object(policy.attr("priority")).ptr()))
    throw Error(Kind::Policy, std::string("a policy of your own has a method priority(block) -> float: ") +
                                  Py_TYPE(policy.ptr())->tp_name + " has none");
  index = CUSTOM_POLICY;
  custom = share(nb::borrow(policy));
  return [state = custom](const PolicyContext& c) { return std::make_unique<CustomPolicy>(c, state); };
}

// A custom policy may well refer back to its manager: the collector must be able to see and break that ring.
int pool_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& custom : nb::inst_ptr<PyPool>(self)->custom) {
    if (!custom) continue;
    Py_VISIT(custom->object.ptr());
    Py_VISIT(custom->priority.ptr());
  }
  return 0;
}
int pool_clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  for (const auto& custom : nb::inst_ptr<PyPool>(self)->custom) {
    if (!custom) continue;
    custom->object.reset();
    custom->priority.reset();
  }
  return 0;
}
PyType_Slot POOL_SLOTS[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(pool_traverse)}, {Py_tp_clear, reinterpret_cast<void*>(pool_clear)}, {0, nullptr}};

nb::dict counters_dict(const Counters& c) {
  nb::dict d;
  d["requests"] = c.requests;
  d["refused"] = c.refused;
  d["blocks_asked"] = c.blocks_asked;
  d["blocks_hit"] = c.blocks_hit;
  d["tokens_asked"] = c.tokens_asked;
  d["tokens_hit"] = c.tokens_hit;
  d["evicted"] = c.evicted;
  d["evicted_by_others"] = c.evicted_by_others;
  d["expired"] = c.expired;
  d["invalidated"] = c.invalidated;
  d["duplicates"] = c.duplicates;
  d["copies"] = c.copies;
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

}  // namespace

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // a manager that lives until the interpreter ends is no leak
  m.doc() = "The core of Tenure: blocks, the prefix tree, policies, tenants. Metadata only.";

  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      nb::object type = nb::module_::import_("tenure.errors").attr(ERROR_CLASSES[std::size_t(error.kind)]);
      nb::dict numbers;
      for (const auto& [name, value] : error.numbers) {
        if (std::abs(value) < 9e15 && value == double(i64(value))) {
          numbers[name] = i64(value);
        } else {
          numbers[name] = value;
        }
      }
      nb::object instance = type(error.what(), **numbers);
      PyErr_SetObject(type.ptr(), instance.ptr());
    }
  });

  const auto names = [](const auto& array) { return std::vector<std::string>(array.begin(), array.end()); };
  m.attr("STATES") = nb::tuple(nb::cast(names(STATE_NAMES)));
  m.attr("STEPS") = nb::tuple(nb::cast(names(STEP_NAMES)));
  m.attr("REASONS") = nb::tuple(nb::cast(names(REASON_NAMES)));
  m.attr("EVENTS") = nb::tuple(nb::cast(names(HAPPENED_NAMES)));
  m.attr("LEASES") = nb::tuple(nb::cast(names(LEASE_NAMES)));
  std::vector<std::string> policies;
  for (const auto& entry : POLICIES) policies.push_back(entry.name);
  m.attr("POLICIES") = nb::tuple(nb::cast(policies));
  std::vector<std::tuple<std::string, std::string, std::string>> transitions;
  for (const auto& t : TRANSITIONS)
    transitions.emplace_back(STATE_NAMES[u8(t.from)], STEP_NAMES[u8(t.step)], STATE_NAMES[u8(t.to)]);
  m.attr("TRANSITIONS") = nb::tuple(nb::cast(transitions));
  m.def(
      "next_state",
      [](u8 state, u8 event, u32 block) {
        if (state >= STATE_NAMES.size() || event >= STEP_NAMES.size())
          throw Error(Kind::State, "no such state or event", {{"state", double(state)}, {"event", double(event)}});
        Block b{};
        b.state = State(state);
        step(b, block, Step(event));
        return u8(b.state);
      },
      "state"_a, "event"_a, "block"_a = 0, "The state after an event; raises StateError where R1 knows no transition.");
  m.def(
      "as_tokens",
      [](nb::handle tokens) {
        const Tokens ids(tokens);
        return to_array(std::vector<u32>(ids.data(), ids.data() + ids.size()));
      },
      "tokens"_a.none(), "Checked token ids as an int32 array; raises TokenError.");

  nb::class_<BlockView>(m, "BlockView", "What a user's policy is told of a block.")
      .def_ro("depth", &BlockView::depth)
      .def_ro("uses", &BlockView::uses)
      .def_ro("stamp", &BlockView::stamp)
      .def_ro("last_used", &BlockView::last_used)
      .def_ro("cost", &BlockView::cost)
      .def_ro("tenant", &BlockView::tenant);

  nb::class_<Request>(m, "Request", "What one admission asks for besides its tokens.")
      .def(nb::init<>())
      .def_rw("max_hit", &Request::max_hit)
      .def_rw("leave_last", &Request::leave_last)
      .def_rw("written", &Request::written)
      .def_rw("decode_priority", &Request::decode_priority)
      .def_rw("decode_duration", &Request::decode_duration)
      .def_rw("expire_after", &Request::expire_after)
      .def_rw("protect_for", &Request::protect_for)
      .def_rw("anchor_for", &Request::anchor_for)
      .def_rw("session", &Request::session)
      .def("add_priority", [](Request& r, u64 start, u64 end, u8 priority,
                              double duration) { r.priorities.push_back({start, end, priority, duration}); })
      .def("add_extra",
           [](Request& r, u32 block, nb::bytes key) { r.extras.emplace_back(block, std::string(key.c_str(), key.size())); });

  nb::class_<PyPool>(m, "Pool", nb::type_slots(POOL_SLOTS))
      .def(
          "__init__",
          [](PyPool* self, u32 frames, u32 block_size, nb::object policy, const Parameters& parameters, u64 seed,
             double pin_budget, u32 partial_reuse, bool rewrite, u32 events, u32 evict_batch, u32 tag, double slope,
             double block_tokens, const std::vector<std::tuple<u32, u8, u32>>& lower) {
            Options o{frames, block_size, seed, "lru", pin_budget, partial_reuse, rewrite, events, evict_batch, tag, {}};
            if (lower.size() >= MOST_TIERS)
              throw Error(Kind::Config, "there are at most " + std::to_string(MOST_TIERS - 1) + " tiers below the device");
            for (const auto& [count, write, uses] : lower) o.lower.push_back({count, Write(write), uses});
            u8 index = 0;
            std::shared_ptr<CustomState> custom;
            const PolicyMaker maker = maker_for(policy, index, custom);
            auto* pool = new (self) PyPool(o, PrefillCost{slope, block_tokens}, Parameters{});
            pool->custom[DEVICE] = std::move(custom);
            try {
              pool->set_policy(DEVICE, maker, index, parameters, -FOR_EVER);
            } catch (...) {
              pool->~PyPool();
              throw;
            }
          },
          "frames"_a, "block_size"_a, "policy"_a.none(), "parameters"_a, "seed"_a, "pin_budget"_a, "partial_reuse"_a, "rewrite"_a,
          "events"_a, "evict_batch"_a, "tag"_a, "slope"_a, "block_tokens"_a, "lower"_a)
      .def("open_tenant", [](PyPool& p, const std::string& name) { return locked(p, [&] { return p.open_tenant(name); }); })
      .def("open_space", [](PyPool& p, u32 tenant, float rebuild,
                            u32 tiers) { return locked(p, [&] { return p.open_space(tenant, rebuild, tiers); }); })
      .def("may_enter", [](PyPool& p) { p.refuse_reentry(); })
      .def("check_quota",
           [](PyPool& p, i64 tenant, double floor, double cap, double weight, double pins) {
             locked(p, [&] { p.tenants.check_quota(tenant < 0 ? NONE : u32(tenant), Quota{floor, cap, weight, pins}); });
           })
      .def("set_quota", [](PyPool& p, u32 tenant, double floor, double cap, double weight,
                           double pins) { locked(p, [&] { p.set_quota(tenant, Quota{floor, cap, weight, pins}); }); })
      .def(
          "admit",
          [](PyPool& p, u32 space, nb::handle tokens, double now, const Request* request, bool written) {
            const Tokens ids(tokens);
            Request wanted;
            if (request) wanted = *request;
            wanted.written |= written;
            const Admission in = locked(p, [&] { return p.admit(space, ids.data(), ids.size(), std::move(wanted), now); });
            return nb::make_tuple(in.handle, in.hit_tokens, why_tuple(in.why), in.loads);
          },
          "space"_a, "tokens"_a.none(), "now"_a, "request"_a.none(), "written"_a)
      .def(
          "match",
          [](PyPool& p, u32 space, nb::handle tokens, double now, const Request* request) {
            const Tokens ids(tokens);
            const Request none;
            const Pool::Match found =
                locked(p, [&] { return p.match(space, ids.data(), ids.size(), request ? *request : none, now); });
            return nb::make_tuple(to_array(found.frames), to_array(found.tiers), why_tuple(found.why));
          },
          "space"_a, "tokens"_a.none(), "now"_a, "request"_a.none())
      .def(
          "append",
          [](PyPool& p, u64 handle, nb::handle tokens, bool written, double now) {
            const Tokens ids(tokens);
            const Pool::Appended done = locked(p, [&] { return p.append(handle, ids.data(), ids.size(), written, now); });
            return nb::make_tuple(plain(done.copies), to_array(done.frames), plain(done.rewrites));
          },
          "handle"_a, "tokens"_a.none(), "written"_a, "now"_a)
      .def("seal", [](PyPool& p, u64 handle, u64 upto,
                      double now) { return plain(locked(p, [&] { return p.seal(handle, upto, now); })); })
      .def("fork", [](PyPool& p, u64 handle, double now) { return locked(p, [&] { return p.fork(handle, now); }); })
      .def("truncate", [](PyPool& p, u64 handle, u64 length, double now) { locked(p, [&] { p.truncate(handle, length, now); }); })
      .def("acknowledge", [](PyPool& p, u64 handle, double now) { locked(p, [&] { p.acknowledge(handle, now); }); })
      .def("release", [](PyPool& p, u64 handle, bool abort, double now) { locked(p, [&] { p.release(handle, abort, now); }); })
      .def("table",
           [](PyPool& p, u64 handle) {
             return to_array(locked(p, [&] {
               std::vector<u32> frames;
               const Sequence& seq = p.sequence(handle);
               frames.reserve(seq.blocks.size());
               for (u32 id : seq.blocks) frames.push_back(frame_of(p, id));
               return frames;
             }));
           })
      .def("sequence",
           [](PyPool& p, u64 handle) {
             return locked(p, [&] {
               const Sequence& seq = p.sequence(handle);
               return std::make_tuple(seq.length, seq.written, seq.matched, seq.sealed, seq.tenant);
             });
           })
      .def("copies",
           [](PyPool& p, u64 handle) {
             return plain(locked(p, [&] {
               std::vector<Copy> copies = p.sequence(handle).copies;
               for (Copy& c : copies) c = {frame_of(p, c.source), frame_of(p, c.target), c.tokens};
               return copies;
             }));
           })
      .def(
          "lease",
          [](PyPool& p, u8 kind, u32 space, nb::handle tokens, const Request* request, const std::string& owner, double ttl,
             double now) {
            const Tokens ids(tokens);
            const Request none;
            return locked(p, [&] {
              const u64 handle =
                  p.lease(LeaseKind(kind), space, ids.data(), ids.size(), request ? *request : none, owner, ttl, now);
              return std::make_pair(handle, p.leases[u32(handle & 0xFFFFFF)].blocks);
            });
          },
          "kind"_a, "space"_a, "tokens"_a.none(), "request"_a.none(), "owner"_a, "ttl"_a, "now"_a)
      .def("end_lease", [](PyPool& p, u64 handle, double now) { return locked(p, [&] { return p.end_lease(handle, now); }); })
      .def("lease_frames", [](PyPool& p, u64 handle) { return to_array(locked(p, [&] { return p.lease_frames(handle); })); })
      .def("leases",
           [](PyPool& p, double now) {
             const auto rows = locked(p, [&] {
               std::vector<std::tuple<u64, u8, u32, u32, double, std::string>> out;
               p.advance(now);
               for (u32 i = 0; i < p.leases.size(); ++i) {
                 const Lease& l = p.leases[i];
                 if (l.alive)
                   out.emplace_back(p.handle_of(i, l.generation, true), u8(l.kind), l.tenant, l.blocks, l.deadline, l.owner);
               }
               return out;
             });
             return rows;
           })
      .def("loads",
           [](PyPool& p, u64 handle) {
             return locked(p, [&] {
               std::vector<std::tuple<u32, u32, u32, u32, u32>> rows;
               const Sequence& seq = p.sequence(handle);
               for (u32 i = 0; i < seq.loads.size(); ++i) {
                 const Load& l = seq.loads[i];
                 rows.emplace_back(l.block, p.store.blocks[l.block].generation, l.tier, l.source,
                                   frame_of(p, seq.blocks[seq.matched + i]));
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
      .def("finish_write", [](PyPool& p, u32 transfer, bool done,
                              double now) { return locked(p, [&] { return p.finish_write(transfer, done, now); }); })
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
      .def("moved",
           [](PyPool& p, u32 tier) {
             check_tier(p, tier);
             const auto [m, free] = locked(p, [&] { return std::make_pair(p.moved[tier], p.store.tier(tier).free()); });
             nb::dict d;
             d["free"] = free;
             d["stored"] = m.stored;
             d["loaded"] = m.loaded;
             d["no_room"] = m.no_room;
             d["failed"] = m.failed;
             d["unloaded"] = m.unloaded;
             d["lost"] = m.lost;
             d["evicted"] = m.evicted;
             d["dropped"] = m.dropped;
             return d;
           })
      .def("invalidate", [](PyPool& p, u32 space, double now) { locked(p, [&] { p.invalidate(space, now); }); })
      .def("sweep", [](PyPool& p, double now) { return locked(p, [&] { return p.sweep(now); }); })
      .def("clear", [](PyPool& p, double now) { return locked(p, [&] { return p.clear(now); }); })
      .def(
          "set_policy",
          [](PyPool& p, u32 tier, nb::object policy, const Parameters& parameters, double now) {
            check_tier(p, tier);
            u8 index = 0;
            std::shared_ptr<CustomState> custom;
            const PolicyMaker maker = maker_for(policy, index, custom);
            locked(p, [&] { p.set_policy(tier, maker, index, parameters, now); });
            p.custom[tier] = std::move(custom);
          },
          "tier"_a, "policy"_a.none(), "parameters"_a, "now"_a)
      .def("set_parameters",
           [](PyPool& p, u32 tier, const Parameters& parameters, double now) {
             check_tier(p, tier);
             locked(p, [&] { p.set_policy_parameters(tier, parameters, now); });
           })
      .def("parameters",
           [](PyPool& p, u32 tier) {
             check_tier(p, tier);
             return locked(p, [&] { return p.policy_parameters(tier); });
           })
      .def("policy",
           [](PyPool& p, u32 tier) {
             check_tier(p, tier);
             return locked(p, [&] { return p.policies[tier]; });
           })
      .def("order",
           [](PyPool& p, u32 tier, u32 tenant, double now) {
             check_tier(p, tier);
             return to_array(locked(p, [&] {
               std::vector<u32> frames = p.order(tier, tenant, now);
               for (u32& id : frames) id = p.store.tier(tier).slots[id].frame;
               return frames;
             }));
           })
      .def("check", [](PyPool& p) { locked(p, [&] { p.check(); }); })
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
             d["floor"] = t.floor;
             d["cap"] = t.cap;
             d["pin_cap"] = t.pin_cap;
             d["used"] = t.used;
             d["busy"] = t.busy;
             d["pinned"] = t.pinned;
             d["queued"] = t.queued;
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
      .def("bytes_per_block", [](PyPool& p) { return sizeof(Block) + sizeof(Slot) + p.options.block_size * sizeof(u32); })
      .def(
          "replay",
          [](PyPool& p, nb::ndarray<const i64, nb::ndim<1>, nb::c_contig> offsets,
             nb::ndarray<const u32, nb::ndim<1>, nb::c_contig> blocks,
             nb::ndarray<const double, nb::ndim<1>, nb::c_contig> arrival,
             nb::ndarray<const double, nb::ndim<1>, nb::c_contig> duration,
             nb::ndarray<const u32, nb::ndim<1>, nb::c_contig> output, nb::ndarray<const u32, nb::ndim<1>, nb::c_contig> space,
             std::optional<nb::ndarray<const u32, nb::ndim<1>, nb::c_contig>> next_use, bool overlap,
             std::optional<nb::callable> progress) {
            const u64 n = arrival.shape(0);
            if (offsets.shape(0) != n + 1 || duration.shape(0) != n || output.shape(0) != n || space.shape(0) != n ||
                (next_use && next_use->shape(0) != blocks.shape(0)) || p.options.block_size != 1)
              throw Error(Kind::Config, "replay columns differ in length, or the pool's blocks are not of one token");
            for (u64 i = 0; i < n; ++i)
              if (offsets.data()[i] < 0 || offsets.data()[i] > offsets.data()[i + 1] ||
                  u64(offsets.data()[i + 1]) > blocks.shape(0))
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
            d["asked"] = r.asked;
            d["hit"] = r.hit;
            d["evictions"] = r.evicted;
            d["waited"] = r.waited;
            d["cut"] = r.cut;
            d["hits"] = to_array(r.hits);
            return d;
          },
          "offsets"_a, "blocks"_a, "arrival"_a, "duration"_a, "output"_a, "space"_a, "next_use"_a.none(), "overlap"_a,
          "progress"_a.none());
}
