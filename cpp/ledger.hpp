// Why: a reason for every hit and miss, counters per tenant, and a bounded log of what happened to blocks.
#pragma once
#include <array>
#include <bit>
#include <limits>
#include <vector>

#include "policies/ghosts.hpp"
#include "store.hpp"

namespace tenure {

enum class Reason : u8 { Hit, NeverSeen, TooShort, Diverged, Evicted, Expired, Invalidated, Foreign, Limit, TierFailed };
inline constexpr std::array<const char*, 10> REASON_NAMES{"hit",     "never_seen",  "too_short", "diverged", "evicted",
                                                          "expired", "invalidated", "foreign",   "limit",    "tier_failed"};

// Why a look-up ended where it did.
struct Why {
  Reason reason = Reason::Hit;
  u8 policy = 0;                                           // evicted: the policy that chose it (index into POLICY_NAMES)
  u32 tenant = NONE;                                       // evicted: the tenant it made room for
  u32 space = NONE;                                        // foreign: the namespace that has it
  u64 at = 0;                                              // the first token that was not found
  double when = std::numeric_limits<double>::quiet_NaN();  // when it went, s, where that is known
};

struct Ghost {
  double when;
  u32 tenant;
  Reason reason;
  u8 policy;
};

enum class Happened : u8 {
  Allocate,
  Seal,
  Hit,
  Release,
  Evict,
  Expire,
  Invalidate,
  Free,
  Duplicate,
  Pin,
  Unpin,
  Store,
  SwapOut,
  SwapIn,
  Lose,
  Restore
};
inline constexpr std::array<const char*, 16> HAPPENED_NAMES{"allocate",   "seal",    "hit",       "release", "evict", "expire",
                                                            "invalidate", "free",    "duplicate", "pin",     "unpin", "store",
                                                            "swap_out",   "swap_in", "lose",      "restore"};

struct Event {
  double time;
  u32 block, generation, frame, tenant;
  Happened what;
  State state;  // after it
  u8 tier;      // of the frame
};

struct Counters {
  u64 requests = 0, refused = 0;
  u64 blocks_asked = 0, blocks_hit = 0, tokens_asked = 0, tokens_hit = 0;
  u64 evicted = 0, evicted_by_others = 0, expired = 0, invalidated = 0, duplicates = 0, copies = 0;
  std::array<u64, REASON_NAMES.size()> endings{};  // requests, by what ended their look-up
  std::array<u64, REASON_NAMES.size()> missed{};   // blocks not found, by what ended the look-up
};

// What came into one tier and left it.
struct Moved {
  u64 stored = 0, loaded = 0;    // blocks written to it; blocks of it that came back to the device
  u64 no_room = 0, failed = 0;   // writes refused for want of a frame; writes that failed
  u64 unloaded = 0, lost = 0;    // blocks found that did not come; blocks whose copy was bad
  u64 evicted = 0, dropped = 0;  // copies evicted; of them, the last of their block
};

class Ledger {
 public:
  // Keeps the last `events` events, rounded up to a power of two; 0 keeps none.
  Ledger(u32 frames, u32 events)
      : ghosts_(std::min<u64>(frames, 1 << 16)), seen_(1 << 12), log_(events ? std::bit_ceil(events) : 0) {}

  void log(Happened what, const Block& block, u32 id, u32 tier, u32 frame, u32 tenant, double now) {
    if (log_.empty()) return;
    log_[count_++ & (log_.size() - 1)] = Event{now, id, block.generation, frame, tenant, what, block.state, u8(tier)};
  }
  u64 logged() const { return count_; }
  // Events numbered from..logged(), as far as they are still kept; returns the number of the first one given.
  u64 read(u64 from, std::vector<Event>& out) const {
    const u64 kept = std::min<u64>(count_, log_.size());
    from = std::max(from, count_ - kept);
    for (u64 i = from; i < count_; ++i) out.push_back(log_[i & (log_.size() - 1)]);
    return from;
  }

  void gone(u64 key, const Ghost& ghost) { ghosts_.put(key, ghost); }
  const Ghost* find_gone(u64 key) {
    auto* entry = ghosts_.find(key);
    return entry ? &entry->payload : nullptr;
  }
  // Which namespace last began with these tokens (chain: no namespace in it).
  void began(u64 chain, u32 space) { seen_.put(chain, space); }
  u32 who_began(u64 chain) {
    auto* entry = seen_.find(chain);
    return entry ? entry->payload : NONE;
  }

 private:
  Ghosts<Ghost> ghosts_;
  Ghosts<u32> seen_;
  std::vector<Event> log_;
  u64 count_ = 0;
};

}  // namespace tenure
