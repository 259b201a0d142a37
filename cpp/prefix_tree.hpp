// The prefix tree: (parent block, the block's tokens) -> block. A hit is proven: parent, root, extra key and tokens are compared,
// whatever suggested it. Only siblings are indexed: linear probing on 32-bit fingerprints; erasing shifts back, no tombstones.
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
  u32 live = 0;                              // blocks, sequences and leases that name this root
  u32 cursor = NONE, cursor_generation = 0;  // where dismantling goes on
  u32 leases = 0;                            // leases on its blocks
  u32 place = NONE;                          // in the list of dead roots
  float rebuild = 1;                         // price factor of its KV (quantised KV is dear to get back)
  bool dead = false;
};

class PrefixTree {
 public:
  explicit PrefixTree(Store& store)
      : store_(store), size_(u32(std::min<u64>(u64(store.blocks.size()) * 3 / 2 + 8, 0xFFFFFFF0u))), index_(size_) {}

  std::vector<Root> roots;

  u64 key(u32 root, u64 chain) const { return mix(chain ^ roots[root].salt); }

  u32 first_child(u32 root, u32 parent) const {
    return parent == NONE ? roots[root].first_child : store_.blocks[parent].first_child;
  }

  // Is this block these tokens, under this parent? What a hash suggests must still pass here.
  bool proven(u32 id, u32 root, u32 parent, u32 extra, const u32* tokens) const {
    const Block& b = store_.blocks[id];
    return b.parent == parent && b.root == root && b.extra == extra &&
           std::memcmp(store_.tokens_of(id), tokens, store_.block_size * sizeof(u32)) == 0;
  }

  // The child with these tokens, or NONE. `chain` is called for the hash only where the parent has several children.
  template <class Chain>
  u32 find(u32 root, u32 parent, u32 extra, const u32* tokens, Chain&& chain) const {
    const u32 child = first_child(root, parent);
    if (child == NONE) return NONE;
    if (store_.blocks[child].next == NONE) return proven(child, root, parent, extra, tokens) ? child : NONE;
    const u32 want = print(key(root, chain()));
    for (u32 at = home(want);; at = after(at)) {
      const Entry& entry = index_[at];
      if (entry.id == 0) return NONE;
      if (entry.print == want && proven(entry.id - 1, root, parent, extra, tokens)) return entry.id - 1;
    }
  }

  // Puts a full block under its parent. MUST not be there yet. An only child needs no index entry: its parent names it.
  void link(u32 id) {
    Block& b = store_.blocks[id];
    u32& head = b.parent == NONE ? roots[b.root].first_child : store_.blocks[b.parent].first_child;
    b.prev = NONE;
    b.next = head;
    b.flags |= IN_TREE;
    if (head != NONE) {
      store_.blocks[head].prev = id;
      index(head);
      index(id);
    }
    head = id;
    count_child(id, 1);
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
    count_child(id, -1);
    if (b.flags & INDEXED) erase(print(key(b.root, b.chain)), id);
    b.flags &= u8(~(IN_TREE | INDEXED));
  }

  // A child with a frame in a tier keeps its parent's frame there.
  void count_child(u32 id, i64 change) {
    count_child(store_.device, id, change);
    for (u32 k = 1; k < store_.tiers(); ++k) count_child(store_.tier(k), id, change);
  }
  void count_child(Tier& tier, u32 id, i64 change) {
    const u32 parent = store_.blocks[id].parent;
    if (parent == NONE || tier.slots[id].frame == NONE) return;
    u32& children = tier.slots[parent].children;
    children = u32(children + change);
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

  void index(u32 id) {
    Block& b = store_.blocks[id];
    if (b.flags & INDEXED) return;
    b.flags |= INDEXED;
    const u32 want = print(key(b.root, b.chain));
    u32 at = home(want);
    while (index_[at].id != 0) at = after(at);
    index_[at] = Entry{want, id + 1};
  }

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
