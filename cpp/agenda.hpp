// What falls due when: a heap of deadlines. Entries whose owner has gone meanwhile are thrown out before they pile up.
#pragma once
#include <algorithm>
#include <vector>

#include "block.hpp"

namespace tenure {

class Agenda {
 public:
  struct Due {
    double when;
    u32 id, generation;
    bool operator<(const Due& other) const { return when > other.when; }  // the earliest on top
  };

  // `alive` tells whether an entry still means somebody.
  template <class Alive>
  void add(const Due& due, Alive&& alive) {
    if (heap_.size() >= limit_) {
      std::erase_if(heap_, [&](const Due& d) { return !alive(d); });
      std::make_heap(heap_.begin(), heap_.end());
      limit_ = std::max(LEAST, 2 * heap_.size());
    }
    heap_.push_back(due);
    std::push_heap(heap_.begin(), heap_.end());
  }
  bool due(double now) const { return !heap_.empty() && heap_.front().when <= now; }
  Due take() {
    std::pop_heap(heap_.begin(), heap_.end());
    const Due due = heap_.back();
    heap_.pop_back();
    return due;
  }

 private:
  static constexpr std::size_t LEAST = 1024;
  std::vector<Due> heap_;
  std::size_t limit_ = LEAST;
};

}  // namespace tenure
