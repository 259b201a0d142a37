// A user's policy: a Python object with priority(block) -> float, asked when a block becomes evictable. The least goes first.
#pragma once
#include <nanobind/nanobind.h>

#include "pool.hpp"

namespace tenure {

namespace nb = nanobind;

// What a user's policy is told of a block.
struct BlockView {
  u32 depth;         // blocks before it in its prefix
  u32 uses;          // requests that used it
  u64 stamp;         // order of its last use
  double last_used;  // s, the manager's clock
  double cost;       // prefill FLOPs relative to a first block
  u32 tenant;        // its tenant's number
};

// The Python object, shared by the policies of all tenants and dropped only with the GIL held.
struct CustomState {
  explicit CustomState(nb::object object) : priority(object.attr("priority")), object(std::move(object)) {}
  nb::object priority, object;
  u64 errors = 0;
};

inline std::shared_ptr<CustomState> share(nb::object object) {
  return {new CustomState(std::move(object)), [](CustomState* state) {
            nb::gil_scoped_acquire gil;
            delete state;
          }};
}

// The pool as Python holds it: it knows its custom policies, by tier, so that the garbage collector sees through it.
struct PyPool : Pool {
  using Pool::Pool;
  std::array<std::shared_ptr<CustomState>, MOST_TIERS> custom;
};

class CustomPolicy final : public KeyedPolicy {
 public:
  CustomPolicy(const PolicyContext& c, std::shared_ptr<CustomState> state)
      : KeyedPolicy(c.store, c.tier), state_(std::move(state)), tree_(c.tree), cost_(c.cost) {
    wants_touch = false;
  }
  const char* name() const override { return "custom"; }
  double key(u32 block) override {
    const Block& b = store.blocks[block];
    const Slot& s = slots[block];
    const Root& root = tree_.roots[b.root];
    nb::gil_scoped_acquire gil;
    try {
      nb::object view = nb::cast(BlockView{b.depth, s.uses, s.stamp, s.last, cost_(b, root), root.tenant});
      if (!state_->priority.is_valid()) return 0;  // the collector has taken it: nobody will ask again
      nb::object result = state_->priority(view);
      const double value = PyFloat_AsDouble(result.ptr());
      if (value == -1 && PyErr_Occurred()) nb::raise_python_error();
      if (value == value) return value;
      report("it returned NaN");
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();  // not the policy's failure: it comes after the call
      report(told(error).c_str());
    }
    return 0;
  }

 private:
  static std::string told(const nb::python_error& error) {
    try {
      return nb::str(error.value()).c_str();
    } catch (const nb::python_error&) {
      return "an error that cannot be printed";
    }
  }
  // A broken policy must not break the engine: its blocks fall back to LRU order, and it is said once.
  void report(const char* what) {
    if (state_->errors++ != 0) return;
    if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "policy %s: priority() failed (%s); its blocks go in LRU order",
                         Py_TYPE(state_->object.ptr())->tp_name, what) != 0)
      PyErr_Clear();  // warnings are errors here: it has still been said
  }

  std::shared_ptr<CustomState> state_;
  const PrefixTree& tree_;
  const PrefillCost& cost_;
};

}  // namespace tenure
