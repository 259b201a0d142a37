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

  void take(u32 block) { attach(block, spare_count ? spare[--spare_count] : untouched++); }
  void give(u32 block) {
    give_frame(slots[block].frame);
    slots[block].frame = NONE;
  }
  // A frame that no block has yet: a write's target.
  u32 take_frame() {
    const u32 frame = spare_count ? spare[--spare_count] : untouched++;
    holder[frame] = NONE;
    return frame;
  }
  void give_frame(u32 frame) {
    holder[frame] = NONE;
    spare[spare_count++] = frame;
  }
  void attach(u32 block, u32 frame) {
    holder[frame] = block;
    slots[block].frame = frame;
  }
  // Puts back what outlived a restart: attach() for each frame that is nobody's, then settle(), before anything else is asked of
  // the tier.
  bool is_nobodys(u32 frame) {
    while (untouched <= frame) holder[untouched++] = NONE;
    return holder[frame] == NONE;
  }
  void settle() {
    spare_count = 0;
    for (u32 frame = untouched; frame-- > 0;)
      if (holder[frame] == NONE) spare[spare_count++] = frame;
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
  // `frames`: of each tier, the device first. Every block has a frame somewhere, so there are as many records as frames.
  Store(const std::vector<u32>& frames, u32 block_size)
      : block_size(block_size),
        blocks(records_for(frames)),
        tokens(blocks.size() * block_size),
        device(frames[DEVICE], u32(blocks.size())),
        tiers_(u32(frames.size())) {
    for (std::size_t k = 1; k < frames.size(); ++k) lower_.emplace_back(frames[k], u32(blocks.size()));
  }

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
    device.slots[id] = Slot{};
    for (Tier& tier : lower_) tier.slots[id] = Slot{};
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

  u32 tiers() const { return tiers_; }
  Tier& tier(u32 k) { return k == DEVICE ? device : lower_[k - 1]; }
  const Tier& tier(u32 k) const { return k == DEVICE ? device : lower_[k - 1]; }
  bool in(u32 k, u32 id) const { return tier(k).slots[id].frame != NONE; }
  bool elsewhere(u32 k, u32 id) const {
    for (u32 other = 0; tiers_ > 1 && other < tiers_; ++other)
      if (other != k && in(other, id)) return true;
    return false;
  }
  // The fastest tier that has the block; NONE: there is none.
  u32 fastest(u32 id) const {
    for (u32 k = DEVICE; k < tiers_; ++k)
      if (in(k, id)) return k;
    return NONE;
  }

  u32 block_size;
  Array<Block> blocks;
  Array<u32> tokens;
  Tier device;

 private:
  static std::size_t records_for(const std::vector<u32>& frames) {
    u64 records = 0;
    for (const u32 count : frames) records += count;
    if (records >= NONE)
      throw Error(Kind::Config,
                  "the tiers have " + std::to_string(records) + " frames in all; at most " + std::to_string(NONE - 1) +
                      " can be told apart",
                  {{"frames", double(records)}, {"most", double(NONE - 1)}});
    return std::size_t(records);
  }

  const u32 tiers_;
  std::vector<Tier> lower_;
  u32 spare_ = NONE;
  u32 untouched_ = 0;
};

}  // namespace tenure
