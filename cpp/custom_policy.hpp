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

// The pool as Python holds it: it knows its custom policy, so that the garbage collector sees through it.
struct PyPool : Pool {
  using Pool::Pool;
  std::shared_ptr<CustomState> custom;
};

class CustomPolicy final : public KeyedPolicy {
 public:
  CustomPolicy(const PolicyContext& c, std::shared_ptr<CustomState> state)
      : KeyedPolicy(c.store, c.frames), state_(std::move(state)), tree_(c.tree), cost_(c.cost) {
    wants_touch = false;
  }
  const char* name() const override { return "custom"; }
  double key(u32 block) override {
    const Block& b = store.blocks[block];
    const Slot& s = slots[block];
    const Root& root = tree_.roots[b.root];
    nb::gil_scoped_acquire gil;
    PyObject* result = nullptr;
    try {
      nb::object view = nb::cast(BlockView{b.depth, s.uses, s.stamp, s.last, cost_(b, root), root.tenant});
      if (state_->priority.is_valid()) result = PyObject_CallOneArg(state_->priority.ptr(), view.ptr());
    } catch (const std::exception&) {
      PyErr_Clear();
    }
    const double value = result ? PyFloat_AsDouble(result) : 0;
    Py_XDECREF(result);
    if (result && !PyErr_Occurred() && value == value) return value;
    report();
    return 0;
  }

 private:
  // A broken policy must not break the engine: its blocks fall back to LRU order, and it is said once.
  void report() {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    if (state_->errors++ == 0) {
      PyObject* text = value ? PyObject_Str(value) : nullptr;
      PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "policy %s: priority() failed (%U); its blocks go in LRU order",
                       Py_TYPE(state_->object.ptr())->tp_name, text ? text : nb::str("it returned no number").ptr());
      PyErr_Clear();
      Py_XDECREF(text);
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
  }

  std::shared_ptr<CustomState> state_;
  const PrefixTree& tree_;
  const PrefillCost& cost_;
};

}  // namespace tenure
