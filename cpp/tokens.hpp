// Token ids as Python gives them (numpy, any buffer, list, tuple, tensor) to contiguous uint32, checked on the way, no Python
// loop.
#pragma once
#include <nanobind/nanobind.h>

#include <cstring>
#include <memory>

#include "block.hpp"
#include "error.hpp"

namespace tenure {

namespace nb = nanobind;

class Tokens {
 public:
  explicit Tokens(nb::handle object) {
    if (PyList_CheckExact(object.ptr()) || PyTuple_CheckExact(object.ptr())) {
      from_items(object);
    } else if (PyBytes_Check(object.ptr()) || PyByteArray_Check(object.ptr()) || PyUnicode_Check(object.ptr())) {
      throw Error(Kind::Token,
                  std::string("tokens are integers: got ") + Py_TYPE(object.ptr())->tp_name + "; tokenise text first");
    } else if (PyObject_CheckBuffer(object.ptr())) {
      from_buffer(object);
    } else if (nb::hasattr(object, "__array__") || nb::hasattr(object, "__dlpack__")) {
      nb::object array = nb::module_::import_("numpy").attr("asarray")(object);
      from_buffer(array);
    } else {
      const bool ordered = !PyAnySet_Check(object.ptr()) && !nb::hasattr(object, "keys");
      nb::object items = ordered ? nb::steal(PySequence_Tuple(object.ptr())) : nb::object();
      if (!items.is_valid()) {
        PyErr_Clear();
        throw Error(Kind::Token, std::string("tokens are a sequence of integers: got ") + Py_TYPE(object.ptr())->tp_name);
      }
      from_items(items);
    }
  }
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;
  ~Tokens() {
    if (borrowed_) PyBuffer_Release(&view_);
  }
  const u32* data() const { return borrowed_ ? static_cast<const u32*>(view_.buf) : data_.get(); }
  u64 size() const { return size_; }

 private:
  static constexpr long MOST = 0x7FFFFFFF;

  [[noreturn]] static void refuse_item(u64 at, PyObject* item) {
    const double value = PyLong_Check(item) ? PyLong_AsDouble(item) : 0;
    PyErr_Clear();
    std::string text = nb::str(nb::handle(item)).c_str();
    if (text.size() > 40) text = text.substr(0, 37) + "...";
    refuse(at, value, text);
  }

  static constexpr Py_ssize_t AHEAD = 16;

  // The value of an int of one digit (0 to 2^30 - 1), which nearly every token is, without a call.
  static bool small(PyObject* item, long& value) {
#if PY_VERSION_HEX >= 0x030C0000
    auto* number = reinterpret_cast<PyLongObject*>(item);
    if (!PyUnstable_Long_IsCompact(number)) return false;
    value = long(PyUnstable_Long_CompactValue(number));
    return value >= 0 && value <= MOST;
#else
    const Py_ssize_t digits = Py_SIZE(item);
    if (digits != 0 && digits != 1) return false;
    value = digits ? long(reinterpret_cast<PyLongObject*>(item)->ob_digit[0]) : 0;
    return true;
#endif
  }
  [[noreturn]] static void refuse(u64 at, double value, const std::string& text) {
    throw Error(Kind::Token, "token " + std::to_string(at) + " is " + text + ": ids are 0 to " + std::to_string(MOST),
                {{"position", double(at)}, {"value", value}});
  }
  void reserve(u64 count) {
    size_ = count;
    data_.reset(new u32[count ? count : 1]);
  }
  void from_items(nb::handle items) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
    PyObject** item = PySequence_Fast_ITEMS(items.ptr());
    reserve(u64(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (i + AHEAD < count) __builtin_prefetch(item[i + AHEAD]);
      long value;
      if (PyLong_CheckExact(item[i])) {
        if (!small(item[i], value)) value = read(u64(i), item[i]);
      } else if (PyTuple_CheckExact(items.ptr())) {
        value = read_index(u64(i), item[i]);
      } else {  // its __index__ may run any code, and that may change the list
        const nb::object frozen = nb::steal(PyList_AsTuple(items.ptr()));
        return from_items(frozen);
      }
      data_[std::size_t(i)] = u32(value);
    }
  }
  static long read(u64 at, PyObject* number) {
    int overflow = 0;
    const long value = PyLong_AsLongAndOverflow(number, &overflow);
    if (overflow || value < 0 || value > MOST) refuse_item(at, number);
    return value;
  }
  static long read_index(u64 at, PyObject* item) {
    const nb::object index = PyBool_Check(item) ? nb::object() : nb::steal(PyNumber_Index(item));
    if (!index.is_valid()) {
      PyErr_Clear();
      throw Error(Kind::Token, "token " + std::to_string(at) + " is a " + Py_TYPE(item)->tp_name + ": ids are integers",
                  {{"position", double(at)}});
    }
    return read(at, index.ptr());
  }
  // Checks every value; returns true where the values need not be copied.
  template <class T>
  bool copy(const Py_buffer& view) {
    const u64 count = u64(view.shape[0]);
    const Py_ssize_t stride = view.strides ? view.strides[0] : Py_ssize_t(sizeof(T));
    const char* from = static_cast<const char*>(view.buf);
    const bool plain = stride == Py_ssize_t(sizeof(T)) && reinterpret_cast<std::uintptr_t>(from) % alignof(T) == 0;
    u64 seen = 0;  // all bits of all values: one test at the end instead of one each
    if (plain && sizeof(T) == sizeof(u32)) {
      const T* values = reinterpret_cast<const T*>(from);
      u32 bits = 0;
      for (u64 i = 0; i < count; ++i) bits |= u32(values[i]);
      size_ = count;
      if (bits <= u32(MOST)) return true;
      seen = bits;
    } else if (plain) {
      const T* values = reinterpret_cast<const T*>(from);
      reserve(count);
      for (u64 i = 0; i < count; ++i) {
        seen |= u64(i64(values[i]));
        data_[i] = u32(values[i]);
      }
    } else {
      reserve(count);
      for (u64 i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, from + i64(i) * stride, sizeof(T));
        seen |= u64(i64(value));
        data_[i] = u32(value);
      }
    }
    if (seen <= u64(MOST)) return false;
    for (u64 i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, from + i64(i) * stride, sizeof(T));
      if (u64(i64(value)) > u64(MOST)) refuse(i, double(value), std::to_string(value));
    }
    return false;
  }
  void from_buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      throw Error(Kind::Token, "this buffer cannot be read as tokens");
    }
    try {
      borrowed_ = read_buffer();
    } catch (...) {
      PyBuffer_Release(&view_);
      throw;
    }
    if (!borrowed_) PyBuffer_Release(&view_);
  }
  // True: the buffer itself will do and stays held. (Another thread may still write to it: a token is then one it wrote.)
  bool read_buffer() {
    if (view_.ndim != 1)
      throw Error(Kind::Token, "tokens have one dimension: got " + std::to_string(view_.ndim),
                  {{"dimensions", double(view_.ndim)}});
    const char* format = view_.format ? view_.format : "B";
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    const bool is_signed = *format && std::strchr("bhilqn", *format), is_unsigned = *format && std::strchr("BHILQN", *format);
    if (!(is_signed || is_unsigned) || format[1] != 0)
      throw Error(Kind::Token, std::string("tokens are integers: got an array of format '") + format + "'");
    switch (view_.itemsize) {
      case 1:
        return is_signed ? copy<std::int8_t>(view_) : copy<u8>(view_);
      case 2:
        return is_signed ? copy<std::int16_t>(view_) : copy<u16>(view_);
      case 4:
        return is_signed ? copy<std::int32_t>(view_) : copy<u32>(view_);
      default:
        return is_signed ? copy<i64>(view_) : copy<u64>(view_);
    }
  }

  Py_buffer view_{};
  bool borrowed_ = false;
  std::unique_ptr<u32[]> data_;
  u64 size_ = 0;
};

}  // namespace tenure
