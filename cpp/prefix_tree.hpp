// The prefix tree: (parent block, the block's tokens) -> block. A hit is proven: parent, root, extra key and tokens
// are compared after the hash. Linear probing on 32-bit fingerprints; erasing shifts back, so there are no tombstones.
#pragma once
#include <cstring>
#include <vector>

#include "hash.hpp"
#include "store.hpp"

namespace tenure {

// A namespace's tree. Invalidation gives the namespace a new root; this one is then dead and dismantled at leisure.
struct Root {
  u64 salt = 0;
  u32 space = NONE;  // the namespace it belongs (or belonged) to
  u32 tenant = 0;
  u32 first_child = NONE;
  u32 live = 0;                              // blocks that name this root
  u32 cursor = NONE, cursor_generation = 0;  // where dismantling goes on
  float rebuild = 1;                         // price factor of its KV (quantised KV is dear to get back)
  bool dead = false;
};

class PrefixTree {
 public:
  explicit PrefixTree(Store& store)
      : store_(store), size_(u32(std::min<u64>(u64(store.blocks.size()) * 3 / 2 + 8, 0xFFFFFFF0u))), index_(size_) {}

  std::vector<Root> roots;

  u64 key(u32 root, u64 chain) const { return mix(chain ^ roots[root].salt); }

  void prefetch(u64 key) const { __builtin_prefetch(index_.at(home(print(key)))); }

  // The first block that the fingerprint suggests, unproven: only to fetch its record ahead of time.
  void prefetch_block(u64 key) const {
    const u32 want = print(key);
    const u32 at = home(want);
    const Entry& entry = index_[at];
    if (entry.print != want || entry.id == 0) return;
    __builtin_prefetch(store_.blocks.at(entry.id - 1));
    __builtin_prefetch(store_.tokens_of(entry.id - 1));
    __builtin_prefetch(store_.device.slots.at(entry.id - 1));
  }

  u32 find(u64 key, u32 root, u32 parent, u32 extra, const u32* tokens) const {
    const u32 want = print(key);
    for (u32 at = home(want);; at = after(at)) {
      const Entry& entry = index_[at];
      if (entry.id == 0) return NONE;
      if (entry.print != want) continue;
      const u32 id = entry.id - 1;
      const Block& b = store_.blocks[id];
      if (b.parent == parent && b.root == root && b.extra == extra &&
          std::memcmp(store_.tokens_of(id), tokens, store_.block_size * sizeof(u32)) == 0)
        return id;
    }
  }

  // Puts a full block under its parent. MUST not be there yet.
  void link(u32 id) {
    Block& b = store_.blocks[id];
    u32& head = b.parent == NONE ? roots[b.root].first_child : store_.blocks[b.parent].first_child;
    b.prev = NONE;
    b.next = head;
    if (head != NONE) store_.blocks[head].prev = id;
    head = id;
    b.flags |= IN_TREE;
    if (b.parent != NONE) store_.device.slots[b.parent].children++;
    const u32 want = print(key(b.root, b.chain));
    u32 at = home(want);
    while (index_[at].id != 0) at = after(at);
    index_[at] = Entry{want, id + 1};
  }

  // Takes a block out: nobody finds it any more. Its own children, if any, stay linked to it.
  void unlink(u32 id) {
    Block& b = store_.blocks[id];
    if (b.prev != NONE) {
      store_.blocks[b.prev].next = b.next;
    } else {
      (b.parent == NONE ? roots[b.root].first_child : store_.blocks[b.parent].first_child) = b.next;
    }
    if (b.next != NONE) store_.blocks[b.next].prev = b.prev;
    b.next = b.prev = NONE;
    b.flags &= u8(~IN_TREE);
    if (b.parent != NONE) store_.device.slots[b.parent].children--;
    erase(print(key(b.root, b.chain)), id);
  }

  std::size_t bytes() const { return std::size_t(size_) * sizeof(Entry); }

 private:
  struct Entry {
    u32 print;
    u32 id;  // block + 1; 0 = empty
  };

  static u32 print(u64 key) { return u32(key >> 32); }
  u32 home(u32 print) const { return u32((u64(print) * size_) >> 32); }
  u32 after(u32 at) const { return at + 1 == size_ ? 0 : at + 1; }

  void erase(u32 want, u32 id) {
    u32 hole = home(want);
    while (index_[hole].id != id + 1) hole = after(hole);
    for (u32 at = after(hole); index_[at].id != 0; at = after(at)) {
      // An entry may move back into the hole only if its home does not lie behind the hole.
      const u32 wanted = home(index_[at].print);
      const bool stays = hole <= at ? (hole < wanted && wanted <= at) : (hole < wanted || wanted <= at);
      if (stays) continue;
      index_[hole] = index_[at];
      hole = at;
    }
    index_[hole] = Entry{0, 0};
  }

  Store& store_;
  u32 size_;
  Array<Entry> index_;
};

}  // namespace tenure
