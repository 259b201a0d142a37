// Where the records lie: blocks, their tokens, and one array of slots a tier. Hands out record ids; knows no rules.
#pragma once
#include <algorithm>
#include <vector>

#include "array.hpp"
#include "block.hpp"

namespace tenure {

// One tier: a number of frames and, for each block, its slot.
struct Tier {
  explicit Tier(u32 frames, u32 blocks) : frames(frames), slots(blocks), holder(frames), spare(frames) {}

  u32 take(u32 block) {
    const u32 frame = spare_count ? spare[--spare_count] : untouched++;
    holder[frame] = block;
    slots[block].frame = frame;
    return frame;
  }
  void give(u32 block) {
    const u32 frame = slots[block].frame;
    holder[frame] = NONE;
    spare[spare_count++] = frame;
    slots[block].frame = NONE;
  }
  u32 free() const { return spare_count + (frames - untouched); }

  u32 frames;
  Array<Slot> slots;  // by block
  Array<u32> holder;  // by frame: the block in it (NONE, or never used)
  Array<u32> spare;   // frames that were used and came back, newest last
  u32 spare_count = 0;
  u32 untouched = 0;  // frames from here on were never used: their pages cost nothing yet
};

class Store {
 public:
  Store(u32 frames, u32 block_size)
      : block_size(block_size), blocks(frames), tokens(std::size_t(frames) * block_size), device(frames, frames) {}

  u32 create() {
    u32 id;
    if (spare_ != NONE) {
      id = spare_;
      spare_ = blocks[id].next;
    } else {
      id = untouched_++;
    }
    Block& b = blocks[id];
    const u32 generation = b.generation + 1;
    b = Block{};
    b.parent = b.first_child = b.next = b.prev = NONE;
    b.generation = generation;
    Slot& s = device.slots[id];
    s = Slot{};
    s.frame = s.queued = NONE;
    return id;
  }
  void destroy(u32 id) {
    blocks[id].generation++;
    blocks[id].next = spare_;
    spare_ = id;
  }
  u32 records() const { return untouched_; }  // ids below this have been used at least once
  u32* tokens_of(u32 id) { return tokens.at(std::size_t(id) * block_size); }
  const u32* tokens_of(u32 id) const { return tokens.at(std::size_t(id) * block_size); }

  u32 block_size;
  Array<Block> blocks;
  Array<u32> tokens;
  Tier device;

 private:
  u32 spare_ = NONE;
  u32 untouched_ = 0;
};

}  // namespace tenure
