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
      nb::object items = nb::steal(PySequence_List(object.ptr()));
      if (!items.is_valid()) {
        PyErr_Clear();
        throw Error(Kind::Token, std::string("tokens are a sequence of integers: got ") + Py_TYPE(object.ptr())->tp_name);
      }
      from_items(items);
    }
  }
  const u32* data() const { return data_.get(); }
  u64 size() const { return size_; }

 private:
  static constexpr long MOST = 0x7FFFFFFF;

  [[noreturn]] static void refuse(u64 at, double value) {
    throw Error(Kind::Token,
                "token " + std::to_string(at) + " is " + std::to_string(i64(value)) + ": ids are 0 to " + std::to_string(MOST),
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
      long value;
      int overflow = 0;
      if (PyLong_CheckExact(item[i])) {
        value = PyLong_AsLongAndOverflow(item[i], &overflow);
      } else {
        nb::object index = PyBool_Check(item[i]) ? nb::object() : nb::steal(PyNumber_Index(item[i]));
        if (!index.is_valid()) {
          PyErr_Clear();
          throw Error(Kind::Token, "token " + std::to_string(i) + " is a " + Py_TYPE(item[i])->tp_name + ": ids are integers",
                      {{"position", double(i)}});
        }
        value = PyLong_AsLongAndOverflow(index.ptr(), &overflow);
      }
      if (overflow) refuse(u64(i), overflow > 0 ? 9.2e18 : -9.2e18);
      if (value < 0 || value > MOST) refuse(u64(i), double(value));
      data_[std::size_t(i)] = u32(value);
    }
  }
  template <class T>
  void copy(const Py_buffer& view) {
    const u64 count = u64(view.shape[0]);
    const Py_ssize_t stride = view.strides ? view.strides[0] : Py_ssize_t(sizeof(T));
    const char* from = static_cast<const char*>(view.buf);
    reserve(count);
    u64 seen = 0;  // all bits of all values: one test at the end instead of one each
    if (stride == Py_ssize_t(sizeof(T)) && reinterpret_cast<std::uintptr_t>(from) % alignof(T) == 0) {
      const T* values = reinterpret_cast<const T*>(from);
      for (u64 i = 0; i < count; ++i) {
        seen |= u64(i64(values[i]));
        data_[i] = u32(values[i]);
      }
    } else {
      for (u64 i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, from + i64(i) * stride, sizeof(T));
        seen |= u64(i64(value));
        data_[i] = u32(value);
      }
    }
    if (seen <= u64(MOST)) return;
    for (u64 i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, from + i64(i) * stride, sizeof(T));
      if (u64(i64(value)) > u64(MOST)) refuse(i, double(value));
    }
  }
  void from_buffer(nb::handle object) {
    struct View {
      Py_buffer buffer{};
      bool held = false;
      ~View() {
        if (held) PyBuffer_Release(&buffer);
      }
    } view;
    if (PyObject_GetBuffer(object.ptr(), &view.buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      throw Error(Kind::Token, "this buffer cannot be read as tokens");
    }
    view.held = true;
    if (view.buffer.ndim != 1)
      throw Error(Kind::Token, "tokens have one dimension: got " + std::to_string(view.buffer.ndim),
                  {{"dimensions", double(view.buffer.ndim)}});
    const char* format = view.buffer.format ? view.buffer.format : "B";
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    const bool is_signed = std::strchr("bhilqn", *format) && *format, is_unsigned = std::strchr("BHILQN", *format) && *format;
    if (!(is_signed || is_unsigned) || format[1] != 0)
      throw Error(Kind::Token, std::string("tokens are integers: got an array of format '") + view.buffer.format + "'");
    switch (view.buffer.itemsize) {
      case 1:
        return is_signed ? copy<std::int8_t>(view.buffer) : copy<u8>(view.buffer);
      case 2:
        return is_signed ? copy<std::int16_t>(view.buffer) : copy<u16>(view.buffer);
      case 4:
        return is_signed ? copy<std::int32_t>(view.buffer) : copy<u32>(view.buffer);
      default:
        return is_signed ? copy<i64>(view.buffer) : copy<u64>(view.buffer);
    }
  }

  std::unique_ptr<u32[]> data_;
  u64 size_ = 0;
};

}  // namespace tenure
