// The prefix tree against a std::map and the queue of leaves against a std::set, at random; hash collisions made by hand.
//   units [--seed N]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "../../cpp/leaf_heap.hpp"
#include "../../cpp/prefix_tree.hpp"

using namespace tenure;

namespace {

void expect(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "units: line %d: %s\n", line, what);
  std::exit(1);
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

using Engine = std::mt19937_64;
u32 below(Engine& engine, u32 n) { return u32(engine() % n); }

// -- the prefix tree

// A tree and the same in a map. `chains`: how many chain values there are; few, and nearly all collide.
class Twin {
 public:
  using Key = std::tuple<u32, u32, u32, std::vector<u32>>;  // root, parent, extra key, tokens

  Twin(u32 frames, u32 size, u64 chains, u32 roots)
      : store_(std::vector<u32>{frames}, size), tree_(store_), size_(size), chains_(chains) {
    for (u32 r = 0; r < roots; ++r) tree_.roots.push_back(Root{r * 77, r, 0, NONE, 0, NONE, 0, 1, false});
  }

  u64 chain(u32 parent, u32 extra, const std::vector<u32>& tokens) const {
    u64 hash = chain_hash(parent == NONE ? 0 : store_.blocks[parent].chain, extra, tokens.data(), size_);
    return chains_ ? hash % chains_ : hash;
  }
  u32 find(const Key& key) const {
    const auto& [root, parent, extra, tokens] = key;
    return tree_.find(root, parent, extra, tokens.data(), [&] { return chain(parent, extra, tokens); });
  }
  u32 add(const Key& key) {
    const auto& [root, parent, extra, tokens] = key;
    const u32 id = store_.create();
    store_.device.take(id);
    Block& b = store_.blocks[id];
    b.root = root;
    b.parent = parent;
    b.extra = extra;
    b.chain = chain(parent, extra, tokens);
    std::copy(tokens.begin(), tokens.end(), store_.tokens_of(id));
    tree_.link(id);
    map_[key] = id;
    return id;
  }
  void take(const Key& key) {
    const u32 id = map_.at(key);
    tree_.unlink(id);
    map_.erase(key);
    store_.device.give(id);
    store_.destroy(id);
  }
  bool is_leaf(u32 id) const { return store_.device.slots[id].children == 0; }

  void compare() const {
    std::map<std::pair<u32, u32>, u32> children;
    for (const auto& [key, id] : map_) {
      EXPECT(find(key) == id);
      children[{std::get<0>(key), std::get<1>(key)}]++;
    }
    for (const auto& [key, id] : map_) {
      const auto found = children.find({std::get<0>(key), id});
      EXPECT(store_.device.slots[id].children == (found == children.end() ? 0 : found->second));
    }
    for (const auto& [place, count] : children) {
      u32 seen = 0, before = NONE;
      for (u32 id = tree_.first_child(place.first, place.second); id != NONE; id = store_.blocks[id].next) {
        EXPECT(store_.blocks[id].prev == before);
        before = id;
        ++seen;
      }
      EXPECT(seen == count);
    }
  }

  Store store_;
  PrefixTree tree_;
  u32 size_;
  u64 chains_;
  std::map<Key, u32> map_;
};

void tree_at_random(u64 seed, u32 frames, u64 chains) {
  Engine engine(seed);
  const u32 size = 1 + below(engine, 4), roots = 3;
  Twin twin(frames, size, chains, roots);
  for (int step = 0; step < 4000; ++step) {
    const u32 root = below(engine, roots);
    u32 parent = NONE;
    if (!twin.map_.empty() && below(engine, 3)) {
      auto place = twin.map_.begin();
      std::advance(place, below(engine, u32(twin.map_.size())));
      if (std::get<0>(place->first) == root) parent = place->second;
    }
    std::vector<u32> tokens(size);
    for (u32& token : tokens) token = below(engine, 3);
    const Twin::Key key{root, parent, below(engine, 4) ? 0 : 1 + below(engine, 2), tokens};
    const auto there = twin.map_.find(key);
    EXPECT(twin.find(key) == (there == twin.map_.end() ? NONE : there->second));
    if (there == twin.map_.end()) {
      if (twin.map_.size() < frames) twin.add(key);
    } else if (twin.is_leaf(there->second)) {
      twin.take(key);
    }
    if (step % 50 == 0) twin.compare();
  }
  while (!twin.map_.empty()) {
    for (auto place = twin.map_.begin(); place != twin.map_.end(); ++place) {
      if (!twin.is_leaf(place->second)) continue;
      twin.take(Twin::Key(place->first));
      break;
    }
  }
  twin.compare();
}

// Every block has the same hash: only what is compared after it tells them apart.
void collisions() {
  Twin twin(64, 2, 1, 2);
  const u32 a = twin.add({0, NONE, 0, {1, 2}});
  const u32 b = twin.add({0, NONE, 0, {1, 3}});
  const u32 c = twin.add({0, NONE, 7, {1, 2}});
  const u32 d = twin.add({1, NONE, 0, {1, 2}});
  const u32 e = twin.add({0, a, 0, {1, 2}});
  const u32 f = twin.add({0, b, 0, {1, 2}});
  const u32 g = twin.add({0, a, 0, {9, 9}});
  EXPECT((std::set<u32>{a, b, c, d, e, f, g}.size() == 7));
  twin.compare();
  EXPECT(twin.find({0, NONE, 0, {2, 1}}) == NONE);
  EXPECT(twin.find({0, NONE, 8, {1, 2}}) == NONE);
  EXPECT(twin.find({1, NONE, 0, {1, 3}}) == NONE);
  EXPECT(twin.find({0, c, 0, {1, 2}}) == NONE);
  EXPECT(twin.find({0, f, 0, {9, 9}}) == NONE);
  twin.take({0, a, 0, {1, 2}});
  EXPECT(twin.find({0, a, 0, {1, 2}}) == NONE);
  twin.compare();
}

// -- the queue of leaves

void heap_at_random(u64 seed, u32 blocks, u32 keys) {
  Engine engine(seed);
  Array<Slot> slots(blocks);
  for (u32 i = 0; i < blocks; ++i) slots[i].queued = NONE;
  LeafHeap heap(slots);
  std::set<std::tuple<double, u64, u32>> model;
  std::vector<double> key_of(blocks);
  u64 stamp = 0;
  const auto take = [&](u32 block) {
    heap.erase(block);
    model.erase({key_of[block], slots[block].stamp, block});
    EXPECT(slots[block].queued == NONE);
  };
  for (int step = 0; step < 20000; ++step) {
    const u32 block = below(engine, blocks);
    const u32 what = below(engine, 10);
    if (slots[block].queued == NONE) {
      double key = double(below(engine, keys)) - keys / 2;
      if (below(engine, 50) == 0) key = below(engine, 2) ? INFINITY : -INFINITY;
      key_of[block] = key;
      slots[block].stamp = ++stamp;
      heap.push(block, key);
      model.insert({key, stamp, block});
    } else if (what < 2) {
      take(block);
    } else if (what < 7) {  // evict the first, and often queue another in its place
      const u32 first = heap.top();
      EXPECT(first == std::get<2>(*model.begin()));
      EXPECT(heap.top_key() == std::get<0>(*model.begin()));
      take(first);
    }
    EXPECT(heap.size() == model.size());
    EXPECT(heap.empty() == model.empty());
    if (step % 100 == 0) {
      const std::vector<u32> order = heap.order();
      EXPECT(order.size() == model.size());
      auto expected = model.begin();
      for (u32 id : order) EXPECT(id == std::get<2>(*expected++));
    }
  }
  while (!model.empty()) take(heap.top());
  EXPECT(heap.empty());
}

}  // namespace

int main(int argc, char** argv) {
  const u64 seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  collisions();
  for (u64 i = 0; i < 6; ++i)
    for (u64 chains : {u64(0), u64(1), u64(3), u64(50)}) tree_at_random(seed + i, 5 + u32(i) * 40, chains);
  for (u64 i = 0; i < 6; ++i)
    for (u32 keys : {1u, 3u, 1000u}) heap_at_random(seed + i, 2 + u32(i) * 60, keys);
  std::printf("units: all well (seed %llu)\n", static_cast<unsigned long long>(seed));
  return 0;
}
