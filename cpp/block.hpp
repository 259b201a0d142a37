// The data first: a block's states, the transition table of R1, and the records that live and die by it.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "error.hpp"

namespace tenure {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

inline constexpr u32 NONE = 0xFFFFFFFFu;
inline constexpr u32 DEVICE = 0, MOST_TIERS = 4;  // tiers by number, the fastest first

enum class State : u8 { Free, Active, Sealed, Cached, Swapped };
enum class Step : u8 { Allocate, Seal, Release, Hit, SwapOut, SwapIn, Drop, ReleasePartial, ReleaseInvalid };

inline constexpr std::array<const char*, 5> STATE_NAMES{"Free", "Active", "Sealed", "Cached", "Swapped"};
inline constexpr std::array<const char*, 9> STEP_NAMES{
    "allocate", "seal", "release", "hit", "swap_out", "swap_in", "drop", "release_partial", "release_invalid"};

struct Transition {
  State from;
  Step step;
  State to;
};

// Requirement R1, line by line. Nothing else may happen to a block.
inline constexpr std::array<Transition, 10> TRANSITIONS{{
    {State::Free, Step::Allocate, State::Active},
    {State::Active, Step::Seal, State::Sealed},
    {State::Sealed, Step::Release, State::Cached},
    {State::Cached, Step::Hit, State::Sealed},
    {State::Cached, Step::SwapOut, State::Swapped},
    {State::Swapped, Step::SwapIn, State::Sealed},
    {State::Cached, Step::Drop, State::Free},
    {State::Swapped, Step::Drop, State::Free},
    {State::Active, Step::ReleasePartial, State::Free},
    {State::Sealed, Step::ReleaseInvalid, State::Free},
}};

inline constexpr u8 ILLEGAL = 0xFF;

consteval auto transition_matrix() {
  std::array<std::array<u8, STEP_NAMES.size()>, STATE_NAMES.size()> next{};
  for (auto& row : next) row.fill(ILLEGAL);
  for (const auto& t : TRANSITIONS) next[u8(t.from)][u8(t.step)] = u8(t.to);
  return next;
}
inline constexpr auto NEXT_STATE = transition_matrix();

// A node of the prefix tree. `generation` counts its lives, so that an old handle never names a new block.
struct Block {
  u64 chain;        // seeded hash of all tokens up to this block's end; names it to the ledger, never proves it
  u32 parent;       // the block before it, NONE for the first
  u32 root;         // the namespace's root it hangs under
  u32 first_child;  // children in the tree, newest first
  u32 next, prev;   // siblings; `next` chains free records
  u32 refs;         // sequences that refer to it
  u32 pins;         // leases that pin it
  u32 generation;
  u32 extra;   // interned extra key (an image's digest and offset), 0 = none
  u32 depth;   // blocks before it
  u32 holds;   // transfers and look-ups that read it
  u16 filled;  // tokens written, at most block_size
  State state;
  u8 flags;

  bool busy() const { return (refs | pins | holds) != 0; }
};

inline constexpr u8 IN_TREE = 1;     // indexed and linked under its parent: may be hit
inline constexpr u8 EXPIRES = 2;     // has a deadline after which it must be gone
inline constexpr u8 DOOMED = 4;      // unhittable, goes to Free when nobody reads it
inline constexpr u8 INDEXED = 32;    // found by hash; an only child is found by its parent
inline constexpr u8 HASHED = 16;     // its chain is known
inline constexpr u8 ENTERED = 8;     // its policy knows it
inline constexpr u8 ANNOUNCED = 64;  // sealed in lock-step, and perhaps not computed yet: no tier may copy it

// A block's place in one tier: its frame, its queue state, and what the tier's policy remembers of it.
struct Slot {
  u32 frame = NONE;   // NONE: no bytes here
  u32 queued = NONE;  // place in the policy's queue, NONE: not evictable
  u32 children = 0;   // children with a frame in this tier
  u32 uses = 0;       // requests that used it, one touch each
  u64 stamp = 0;      // order of the last touch, leaf before root
  double last = 0;    // time of the last touch, s
  double value = 0;   // the policy's own: a score, a birth, an inflation
  u32 aux = 0;        // the policy's own
  u8 queue = 0;       // the policy's own: which of its queues
  u8 kind = 0;        // the policy's own: class of block
  u8 turn = 0;        // how often its chain of requests has come back
  u8 spare = 0;       // the policy's own; without a frame: WAITS, WRITING
};

inline constexpr u8 WAITS = 1;    // in the queue of blocks to be written to this tier
inline constexpr u8 WRITING = 2;  // a write to this tier is under way

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_step(const Block& block, u32 id, Step event) {
  throw Error(
      Kind::State,
      "block " + std::to_string(id) + " is " + STATE_NAMES[u8(block.state)] + ": no transition by " + STEP_NAMES[u8(event)],
      {{"block", double(id)}});
}

inline void step(Block& block, u32 id, Step event) {
  const u8 next = NEXT_STATE[u8(block.state)][u8(event)];
  if (next == ILLEGAL) [[unlikely]]
    refuse_step(block, id, event);
  block.state = State(next);
}

}  // namespace tenure
