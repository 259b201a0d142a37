// The queue of evictable leaves: a 4-ary heap on (key, stamp), its place kept in the block's slot.
// Blocks of one request have neighbouring stamps, so the parent of a victim nearly always stays on top: O(1) a victim.
#pragma once
#include <algorithm>
#include <vector>

#include "store.hpp"

namespace tenure {

class LeafHeap {
 public:
  explicit LeafHeap(Array<Slot>& slots) : slots_(slots) {}

  bool empty() const { return items_.size() == std::size_t(hole_); }
  std::size_t size() const { return items_.size() - std::size_t(hole_); }

  u32 top() {
    mend();
    return items_[0].block;
  }
  double top_key() {
    mend();
    return items_[0].key;
  }

  void push(u32 block, double key) {
    if (hole_) {  // what follows a victim is mostly its parent: it takes the victim's place
      hole_ = false;
      place(0, Item{key, block});
      if (second_ == 0) second_ = least_child(0);
      if (second_ < items_.size() && before(items_[second_], items_[0])) down(0);
      return;
    }
    second_ = 0;
    items_.push_back(Item{key, block});
    place(items_.size() - 1, items_.back());
    up(items_.size() - 1);
  }

  void erase(u32 block) {
    if (slots_[block].queued == 0 && !hole_) {
      slots_[block].queued = NONE;
      hole_ = true;
      return;
    }
    mend();  // may move the block: its place is read after it
    const std::size_t at = slots_[block].queued;
    slots_[block].queued = NONE;
    cut(at);
  }

  // Takes the next victim out.
  u32 take() {
    const u32 block = top();
    erase(block);
    return block;
  }
  // The same after a push, without queueing what goes at once.
  u32 take(u32 block, double key) {
    if (follows(block, key)) return block;
    push(block, key);
    return take();
  }
  // Would this block, pushed now, be the next victim after the one that has just been taken?
  bool follows(u32 block, double key) {
    if (!hole_) return false;
    if (second_ == 0) second_ = least_child(0);
    return second_ >= items_.size() || !before(items_[second_], Item{key, block});
  }

  // Every queued block, the next victim first.
  std::vector<u32> order() {
    mend();
    std::vector<Item> sorted = items_;
    std::sort(sorted.begin(), sorted.end(), [this](const Item& a, const Item& b) { return before(a, b); });
    std::vector<u32> blocks;
    for (const Item& item : sorted) blocks.push_back(item.block);
    return blocks;
  }

 private:
  struct Item {
    double key;
    u32 block;
  };

  bool before(const Item& a, const Item& b) const {
    if (a.key != b.key) return a.key < b.key;
    return slots_[a.block].stamp < slots_[b.block].stamp;
  }
  std::size_t least_child(std::size_t at) const {  // beyond the end: it has none
    const std::size_t first = at * 4 + 1, end = std::min(first + 4, items_.size());
    std::size_t least = first;
    for (std::size_t child = first + 1; child < end; ++child)
      if (before(items_[child], items_[least])) least = child;
    return least;
  }
  void place(std::size_t at, Item item) {
    items_[at] = item;
    slots_[item.block].queued = u32(at);
  }
  void up(std::size_t at) {
    const Item item = items_[at];
    while (at > 0) {
      const std::size_t above = (at - 1) / 4;
      if (!before(item, items_[above])) break;
      place(at, items_[above]);
      at = above;
    }
    place(at, item);
  }
  void down(std::size_t at) {
    const Item item = items_[at];
    second_ = 0;
    for (;;) {
      const std::size_t least = least_child(at);
      if (least >= items_.size() || !before(items_[least], item)) break;
      place(at, items_[least]);
      at = least;
    }
    place(at, item);
  }
  void cut(std::size_t at) {
    second_ = 0;
    const Item last = items_.back();
    items_.pop_back();
    if (at == items_.size()) return;
    place(at, last);
    if (at > 0 && before(items_[at], items_[(at - 1) / 4])) {
      up(at);
    } else {
      down(at);
    }
  }
  void mend() {
    if (!hole_) return;
    hole_ = false;
    cut(0);
  }

  Array<Slot>& slots_;
  std::vector<Item> items_;
  std::size_t second_ = 0;  // the least child of the top, as long as nothing below the top has changed; 0 = unknown
  bool hole_ = false;       // the top was taken and nothing has taken its place yet
};

}  // namespace tenure
