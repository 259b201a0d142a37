// Extra keys by number: equal bytes, equal number, so that comparing numbers proves that the bytes are equal.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "hash.hpp"

namespace tenure {

class Interner {
 public:
  // A number for these bytes; counts one more user. Never 0.
  u32 take(const std::string& bytes) {
    auto [place, fresh] = numbers_.try_emplace(bytes, 0);
    if (fresh) {
      if (spare_.empty()) {
        place->second = u32(entries_.size());
        entries_.push_back({});
      } else {
        place->second = spare_.back();
        spare_.pop_back();
      }
      entries_[place->second] = {&place->first, 0, bytes_hash(bytes)};
    }
    entries_[place->second].users++;
    return place->second;
  }
  void retain(u32 number) {
    if (number) entries_[number].users++;
  }
  void drop(u32 number) {
    if (!number || --entries_[number].users) return;
    numbers_.erase(*entries_[number].bytes);
    spare_.push_back(number);
  }
  const std::string& bytes(u32 number) const {
    static const std::string none;
    return number ? *entries_[number].bytes : none;
  }
  u64 hash(u32 number) const { return number ? entries_[number].hash : 0; }
  std::size_t size() const { return numbers_.size(); }

 private:
  struct Entry {
    const std::string* bytes;  // the map's key: its place does not move
    u64 users, hash;
  };
  std::unordered_map<std::string, u32> numbers_;
  std::vector<Entry> entries_{{nullptr, 1, 0}};
  std::vector<u32> spare_;
};

}  // namespace tenure
