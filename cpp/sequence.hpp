// What the pool keeps for a request, and what a caller may ask for with it. Data only.
#pragma once
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "ledger.hpp"
#include "policies/policy.hpp"

namespace tenure {

inline constexpr double FOR_EVER = std::numeric_limits<double>::infinity();

// Retention by token range, as TensorRT-LLM has it: a block's first token decides which range it is in.
struct PriorityRange {
  u64 start = 0, end = 0;
  u8 priority = DEFAULT_PRIORITY;
  double duration = -1;  // s after release; < 0 = no end
};

struct Request {
  u64 max_hit = std::numeric_limits<u64>::max();  // tokens that may be hits
  bool leave_last = false;                        // at least the last token is computed
  bool written = false;                           // the engine writes in lock-step: prompt blocks seal at admission
  std::vector<PriorityRange> priorities;          // of the prompt
  u8 decode_priority = NO_PRIORITY;
  double decode_duration = -1;
  double expire_after = FOR_EVER;  // s from admission, for what this request computes
  double protect_for = 0;          // s after release
  double anchor_for = 0;           // s after release, for `session`
  std::string session;
  std::vector<std::pair<u32, std::string>> extras;  // (block of the prompt, its extra key), ascending

  u64 most_hit(u64 count) const { return leave_last && count ? std::min(max_hit, count - 1) : max_hit; }
};

// Bytes the engine must copy before it writes on. The source is held until the copy is acknowledged.
struct Copy {
  u32 source, target;  // blocks
  u32 tokens;
};

// A table entry that changed at sealing: an equal block was there first.
struct Rewrite {
  u32 position, old_frame, new_frame;
};

// A hit whose bytes are in a lower tier: they come into the frame of the sequence's own block at the same place of its table,
// which then becomes the tree's; until then, and where that fails, the own block is one to be computed.
struct Load {
  u32 block;          // the tree's, held
  u32 tier, source;   // where its bytes are
  bool lost = false;  // the frame has been given away: whatever was read from it does not count
};

// One life of a block.
struct Life {
  u32 block, generation;
};

struct Sequence {
  u32 generation = 0;
  bool alive = false;
  u32 space = NONE, root = NONE, tenant = 0;
  u64 length = 0;       // tokens that have a slot
  u64 written = 0;      // tokens whose KV is there
  u64 prompt = 0;       // tokens at admission
  u32 output = 0;       // tokens generated so far
  u32 sealed = 0;       // leading blocks that need no more sealing
  u32 matched = 0;      // leading blocks that were hits
  u32 counts_from = 0;  // blocks from here on count this sequence's touch (a fork's shared part was counted)
  double expires = FOR_EVER;
  const u32* next_use = nullptr;  // replay of the optimum: by block, owned by the caller
  std::vector<u32> blocks;
  std::vector<u32> twins;  // beside blocks, or empty: the tree's block where an own copy is kept
  std::vector<u32> extra;  // beside blocks, or empty: interned extra keys
  std::vector<Copy> copies;
  std::vector<Load> loads;      // of the blocks from `matched` on
  std::vector<Life> announced;  // sealed, and perhaps not computed before its next step: no lower tier may copy them yet
  std::array<Visit, MOST_TIERS> visits{};
  Request request;

  u32 tree_block(u32 i) const { return i < twins.size() && twins[i] != NONE ? twins[i] : blocks[i]; }
};

enum class LeaseKind : u8 { Pin, Anchor, Protect, Lookup };
inline constexpr std::array<const char*, 4> LEASE_NAMES{"pin", "anchor", "protect", "lookup"};

// A claim on a prefix, named by its deepest block. All but a look-up pin (budgeted); a look-up holds (it will be read).
struct Lease {
  u32 generation = 0;
  bool alive = false;
  LeaseKind kind = LeaseKind::Pin;
  u32 block = NONE, root = NONE, tenant = 0, blocks = 0;
  double deadline = FOR_EVER;
  std::string owner;
};

struct Admission {
  u64 handle = 0;
  u64 hit_tokens = 0;
  Why why;
  u32 loads = 0;  // blocks more that a lower tier has: they are hits once they are loaded
};

// When a sealed block is written to a lower tier: at once, at its n-th use, or when it is about to be evicted from the tier
// above.
enum class Write : u8 { Through, Selective, Back };

struct TierOptions {
  u32 frames = 0;
  Write write = Write::Through;
  u32 uses = 2;  // selective: from so many uses on
};

struct Options {
  u32 frames = 0, block_size = 16;
  u64 seed = 0;
  std::string policy = "lru";
  double pin_budget = 0.5;
  u32 partial_reuse = 0;  // least tokens worth copying out of a diverging block; 0 = never
  bool rewrite = false;   // duplicates: rewrite the table, or keep the own copy until release
  u32 events = 4096;
  u32 evict_batch = 1;
  u32 tag = 0;                     // tells one manager's handles from another's
  std::vector<TierOptions> lower;  // below the device, the fastest first

  std::vector<u32> tier_frames() const {
    std::vector<u32> all{frames};
    for (const TierOptions& tier : lower) all.push_back(tier.frames);
    return all;
  }
};

}  // namespace tenure
