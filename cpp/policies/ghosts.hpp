// A bounded memory of blocks that are gone: direct-mapped by content hash, the newer entry wins its place.
#pragma once
#include <bit>

#include "../array.hpp"
#include "../block.hpp"

namespace tenure {

template <class Payload>
class Ghosts {
 public:
  // Remembers about `entries` at most; the table starts small and doubles as it fills, so a tenant with little costs little.
  explicit Ghosts(u64 entries)
      : most_(std::bit_ceil(std::max<u64>(entries, 8))), mask_(std::min<u64>(most_, FIRST) - 1), table_(mask_ + 1) {}

  struct Entry {
    u64 key;  // its lowest bit is always set; 0 = empty
    Payload payload;
  };

  // What was stored for this key, or null. Valid until the next call.
  Entry* find(u64 key) {
    Entry& entry = table_[home(key)];
    return entry.key == (key | 1) ? &entry : nullptr;
  }
  // Stores, and returns what it displaced (key 0: nothing).
  Entry put(u64 key, const Payload& payload) {
    if (++puts_ > mask_ && mask_ + 1 < most_) grow();
    Entry& entry = table_[home(key)];
    return std::exchange(entry, Entry{key | 1, payload});
  }
  void drop(Entry* entry) { entry->key = 0; }
  void prefetch(u64 key) const { __builtin_prefetch(table_.at(home(key))); }

 private:
  static constexpr u64 FIRST = 1024;

  u64 home(u64 key) const { return (key >> 1) & mask_; }
  void grow() {  // entries that did not meet do not meet in a table twice as large
    Array<Entry> old = std::move(table_);
    mask_ = 2 * mask_ + 1;
    table_ = Array<Entry>(mask_ + 1);
    puts_ = 0;
    for (u64 i = 0; i < old.size(); ++i)
      if (old[i].key) table_[home(old[i].key)] = old[i];
  }

  u64 most_, mask_, puts_ = 0;
  Array<Entry> table_;
};

}  // namespace tenure
