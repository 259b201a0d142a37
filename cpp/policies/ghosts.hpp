// A bounded memory of blocks that are gone: direct-mapped by content hash, the newer entry wins its place.
#pragma once
#include <bit>

#include "../array.hpp"
#include "../block.hpp"

namespace tenure {

template <class Payload>
class Ghosts {
 public:
  explicit Ghosts(u64 entries) : mask_(std::bit_ceil(std::max<u64>(entries, 8)) - 1), table_(mask_ + 1) {}

  struct Entry {
    u64 key;  // 0 = empty
    Payload payload;
  };

  // What was stored for this key, or null. Valid until the next call.
  Entry* find(u64 key) {
    Entry& entry = table_[key & mask_];
    return entry.key == (key | 1) ? &entry : nullptr;
  }
  // Stores, and returns what it displaced (key 0: nothing).
  Entry put(u64 key, const Payload& payload) {
    Entry& entry = table_[key & mask_];
    return std::exchange(entry, Entry{key | 1, payload});
  }
  void drop(Entry* entry) { entry->key = 0; }
  void prefetch(u64 key) const { __builtin_prefetch(table_.at(key & mask_)); }

 private:
  u64 mask_;
  Array<Entry> table_;
};

}  // namespace tenure
