// What Python sees: argument conversion, the GIL, the lock, errors. No rule of the pool lives here.
#include "python/operating.hpp"
#include "python/reading.hpp"
#include "python/replaying.hpp"
#include "python/requests.hpp"
#include "python/tiers.hpp"

using namespace tenure;

namespace {

constexpr std::array<const char*, 11> ERROR_CLASSES{"TokenError",     "ConfigError",      "CapacityError",      "QuotaError",
                                                    "BudgetError",    "StaleHandleError", "ForeignHandleError", "StateError",
                                                    "IntegrityError", "PolicyError",      "ReentrancyError"};

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

  PoolClass pool(m, "Pool", nb::type_slots(POOL_SLOTS));
  pool.def(
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
      .def("set_quota", [](PyPool& p, u32 tenant, double floor, double cap, double weight, double pins) {
        locked(p, [&] { p.set_quota(tenant, Quota{floor, cap, weight, pins}); });
      });
  bind_requests(pool);
  bind_tiers(pool);
  bind_operating(pool);
  bind_reading(pool);
  bind_replaying(pool);
}
