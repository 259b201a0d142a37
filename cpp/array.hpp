// One large zeroed array, committed page by page as it is touched; huge pages where the system has them.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

namespace tenure {

template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  explicit Array(std::size_t count) : count_(count) {
    if (count == 0) return;
    if (count > (std::size_t(-1) / 2) / sizeof(T)) throw std::bad_alloc();
#if defined(__unix__) || defined(__APPLE__)
    void* place = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (bytes() >= (8u << 20)) madvise(place, bytes(), MADV_HUGEPAGE);  // a random walk over 10^7 records lives on TLB hits
#endif
    data_ = static_cast<T*>(place);
#else
    data_ = static_cast<T*>(std::calloc(count, sizeof(T)));
    if (!data_) throw std::bad_alloc();
#endif
  }
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    if (!data_) return;
#if defined(__unix__) || defined(__APPLE__)
    munmap(data_, bytes());
#else
    std::free(data_);
#endif
  }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* at(std::size_t i) { return data_ + i; }
  const T* at(std::size_t i) const { return data_ + i; }
  std::size_t size() const { return count_; }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }
  void swap(Array& other) {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
  }
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace tenure
