// What a running sequence does: append, seal, fork, truncate, release.
#pragma once
#include "pool.hpp"

namespace tenure {

inline void Pool::acknowledge_copies(Sequence& seq) {
  for (const Copy& copy : seq.copies) unhold(copy.source);
  seq.copies.clear();
}

inline void Pool::acknowledge(u64 handle, double now) {
  Sequence& seq = sequence(handle);
  tick(now);
  acknowledge_copies(seq);
}

// The own copy of a duplicate goes, and with it what was to be copied into it.
inline void Pool::drop_own(Sequence& seq, u32 i, u32 first, std::vector<Rewrite>* rewrites) {
  const u32 id = seq.blocks[i];
  for (Copy& copy : seq.copies)
    if (copy.target == id) unhold(copy.source);
  std::erase_if(seq.copies, [&](const Copy& copy) { return copy.target == id; });
  if (rewrites) rewrites->push_back({i, store.device.slots[id].frame, store.device.slots[first].frame});
  seq.blocks[i] = first;
  unrefer(id);
}

// Seals every full block below `written`. An equal block that is there already wins: the table takes it (rewrite), or the own
// copy stays private until release and the tree's block is referenced beside it (keep). `promised`: frames that the caller still
// needs; a duplicate that would make one of them busy, or that a fork shares, waits unsealed.
inline void Pool::seal_written(Sequence& seq, u32 promised, std::vector<Rewrite>* rewrites, bool leaving) {
  const u32 size = options.block_size;
  Policy& policy = *tenants[seq.tenant].device().policy;
  bool fresh_parent = false;  // nothing can be below a block that has just joined the tree
  for (; (u64(seq.sealed) + 1) * size <= seq.written; ++seq.sealed) {
    const u32 i = seq.sealed, id = seq.blocks[i];
    Block& b = store.blocks[id];
    if (b.state != State::Active) {  // a fork has sealed it
      fresh_parent = false;
      continue;
    }
    const u32 parent = i ? seq.tree_block(i - 1) : NONE;
    if (!(b.flags & HASHED))
      b.chain = chain_hash(i ? store.blocks[parent].chain : salt_, extras_.hash(b.extra), store.tokens_of(id), size);
    const bool is_dead = tree.roots[seq.root].dead || (i && dead(store.blocks[parent]));
    const u32 first =
        is_dead || fresh_parent ? NONE : tree.find(seq.root, parent, b.extra, store.tokens_of(id), [&] { return b.chain; });
    if (first != NONE && store.blocks[first].state == State::Swapped) {  // it gets its bytes back from here
      if (!adopt(seq, i, first)) return;
      announce(seq, first);
      fresh_parent = false;
      continue;
    }
    if (first != NONE) {
      const bool can_swap = b.holds == 0;  // one frame becomes busy, another free
      const bool can_keep = store.blocks[first].busy() || tenants.may(seq.tenant, u64(promised) + 1).ok();
      const bool swaps = options.rewrite || (leaving && !can_keep);
      if (b.refs > 1 || !(can_keep || (swaps && can_swap))) return;
      fresh_parent = false;
      tenants[seq.tenant].counters.duplicates++;
      note(Happened::Duplicate, id);
      refer(first);
      note(Happened::Hit, first);
      if (swaps) {
        drop_own(seq, i, first, rewrites);
      } else {
        seq.twins.resize(seq.blocks.size(), NONE);
        seq.twins[i] = first;
      }
      continue;
    }
    b.parent = parent;
    b.depth = i;
    b.filled = u16(size);
    if (is_dead) {
      b.flags |= DOOMED;
      b.parent = NONE;  // nobody may find it, so it hangs nowhere
      move(id, Step::Seal);
      note(Happened::Seal, id);
      continue;
    }
    move(id, Step::Seal);
    tree.link(id);
    fresh_parent = true;
    b.flags |= ENTERED;
    if (policy.wants_life) policy.enter(id, ghost_key(b), now_);
    if (i == 0) ledger.began(b.chain, seq.space);
    if (seq.expires < FOR_EVER) set_expiry(id, seq.expires);
    note(Happened::Seal, id, b, seq.tenant);
    announce(seq, id);
  }
}

inline std::vector<Rewrite> Pool::seal(u64 handle, u64 upto, double now) {
  Sequence& seq = running(handle);
  if (upto > seq.length)
    throw Error(Kind::Token,
                "cannot seal up to token " + std::to_string(upto) + ": the sequence has " + std::to_string(seq.length),
                {{"upto", double(upto)}, {"length", double(seq.length)}});
  tick(now);
  acknowledge_copies(seq);
  std::vector<Rewrite> rewrites;
  seq.written = std::max(seq.written, upto);
  seal_written(seq, 0, &rewrites);
  conclude(seq, 0, true);
  return rewrites;
}

// May others still read what a write at `offset` would change?
inline bool shared_for_writing(const Block& b, u32 offset) {
  return b.state != State::Active || b.refs > 1 || (b.holds && offset < b.filled);
}

inline Pool::Appended Pool::append(u64 handle, const u32* tokens, u64 count, bool written, double now) {
  Sequence& seq = running(handle);
  check_count(seq.length + count);
  tick(now);
  const u32 size = options.block_size;
  Appended result;
  if (count == 0) return result;
  const u32 offset = u32(seq.length % size);
  const u32 total = u32((seq.length + count + size - 1) / size);
  // The half-full block at the end may be written only if it is this sequence's alone and was never sealed.
  const u32 tail = offset ? seq.blocks.back() : NONE;
  const bool copy = tail != NONE && shared_for_writing(store.blocks[tail], offset);
  const u32 fresh = total - u32(seq.blocks.size()) + copy;
  if (!tenants.may(seq.tenant, fresh).ok()) {
    tenants[seq.tenant].counters.refused++;
    refuse(seq.tenant, fresh, "append");
  }
  acknowledge_copies(seq);
  if (written) seq.written = seq.length;
  seal_written(seq, fresh, &result.rewrites);
  conclude(seq, 0, true);
  Tenant& t = tenants[seq.tenant];
  make_room(seq.tenant, fresh);
  if (copy) {
    const u32 target = take_block(seq.root, seq.tenant);
    Block& b = store.blocks[target];
    std::memcpy(store.tokens_of(target), store.tokens_of(tail), offset * sizeof(u32));
    extras_.retain(b.extra = store.blocks[tail].extra);
    hold(tail);
    depart(seq);
    touch(seq, u32(seq.blocks.size()) - 1, tail);
    seq.blocks.back() = target;
    unrefer(tail);
    seq.copies.push_back({tail, target, offset});
    t.counters.copies++;
    note(Happened::Allocate, target);
  }
  u64 done = 0;
  u32 at = offset;
  u32 block = offset ? u32(seq.blocks.size()) - 1 : u32(seq.blocks.size());
  while (done < count) {
    if (block == seq.blocks.size()) {
      const u32 id = take_block(seq.root, seq.tenant);
      seq.blocks.push_back(id);
      if (block < seq.extra.size()) extras_.retain(store.blocks[id].extra = seq.extra[block]);
      note(Happened::Allocate, id);
      result.frames.push_back(store.device.slots[id].frame);
    }
    const u32 id = seq.blocks[block];
    const u32 part = u32(std::min<u64>(size - at, count - done));
    std::memcpy(store.tokens_of(id) + at, tokens + done, part * sizeof(u32));
    store.blocks[id].filled = u16(at + part);
    store.blocks[id].flags &= u8(~HASHED);
    done += part;
    at = 0;
    block++;
  }
  if (!seq.twins.empty()) seq.twins.resize(seq.blocks.size(), NONE);
  seq.length += count;
  seq.output += u32(count);
  if (written) seq.written = seq.length;
  seal_written(seq, 0, &result.rewrites);
  for (const Copy& c : seq.copies)
    result.copies.push_back({store.device.slots[c.source].frame, store.device.slots[c.target].frame, c.tokens});
  return result;
}

inline u64 Pool::fork(u64 handle, double now) {
  running(handle);
  check_places();
  tick(now);
  Sequence& parent = sequence(handle);
  const u32 index = place(sequences, spare_sequences_);
  Sequence& child = sequences[index];
  const u32 generation = child.generation;
  child = parent;
  child.generation = generation;
  child.copies.clear();
  child.announced.clear();  // the parent's to offer
  child.counts_from = u32(child.blocks.size());
  if (child.length % options.block_size) child.counts_from--;  // the open block will be the child's own
  for (u32 id : child.blocks) refer(id);
  for (u32 id : child.twins)
    if (id != NONE) refer(id);
  for (u32 number : child.extra) extras_.retain(number);
  tree.roots[child.root].live++;
  return handle_of(index, child.generation, false);
}

// Touches of this sequence follow: the policies are told of the request as a whole.
inline void Pool::depart(const Sequence& seq) {
  for (u32 k = 0; k < store.tiers(); ++k)
    if (Policy& policy = *tenants[seq.tenant].in[k].policy; policy.wants_visits)
      policy.depart(seq.visits[k], seq.output, seq.sealed);
}

inline void Pool::touch(const Sequence& seq, u32 i, u32 id) {
  Block& b = store.blocks[id];
  if (!(b.flags & IN_TREE) || dead(b)) return;
  ++stamp_;
  touch_in(DEVICE, seq, i, id);
  for (u32 k = 1; k < store.tiers(); ++k) {
    if (store.in(k, id)) {
      touch_in(k, seq, i, id);
    } else if (const TierOptions& tier = options.lower[k - 1];
               tier.write == Write::Selective && store.device.slots[id].uses >= tier.uses) {
      want_written(k, id);
    }
  }
}

inline void Pool::touch_in(u32 k, const Sequence& seq, u32 i, u32 id) {
  Slot& s = store.tier(k).slots[id];
  const u64 before = s.stamp;
  s.stamp = stamp_;
  s.last = now_;
  if (i >= seq.counts_from) s.uses++;
  Policy& policy = *tenants[seq.tenant].in[k].policy;
  if (!policy.wants_touch) return;
  Use use{now_,
          seq.output,
          i,
          seq.matched,
          seq.next_use ? seq.next_use[i] : NONE,
          seq.request.decode_priority,
          i >= seq.matched,
          before == 0,
          seq.request.decode_duration,
          before,
          policy.wants_visits ? ghost_key(store.blocks[id]) : 0};
  const u64 token = u64(i) * options.block_size;
  if (token < seq.prompt) {
    use.priority = NO_PRIORITY;
    for (const PriorityRange& range : seq.request.priorities) {
      if (token < range.start || token >= range.end) continue;
      use.priority = range.priority;
      use.duration = range.duration;
    }
  }
  policy.touch(id, use);
}

// Gives back the blocks from position `from` on, the last first.
inline void Pool::give_back(Sequence& seq, u32 from) {
  depart(seq);
  const bool plain = seq.twins.empty() && !tree.roots[seq.root].dead;
  u32 cached = 0, idle = 0;
  for (u32 i = u32(seq.blocks.size()); i-- > from;) {
    const u32 id = seq.blocks[i];
    touch(seq, i, seq.tree_block(i));
    if (Block& b = store.blocks[id]; plain && b.state == State::Sealed && !(b.flags & DOOMED)) {
      // What unrefer() does, with the books brought up to date once.
      if (--b.refs) continue;
      step(b, id, Step::Release);
      ++cached;
      note(Happened::Release, id, b, seq.tenant);
      if (b.busy()) continue;
      ++idle;
      if (store.device.slots[id].children == 0 || store.tiers() > 1) queue_if_evictable(id);
      continue;
    }
    if (i < seq.twins.size() && seq.twins[i] != NONE) unrefer(seq.twins[i]);
    unrefer(id);
  }
  states[u8(State::Sealed)] -= cached;
  states[u8(State::Cached)] += cached;
  tenants.add_busy(seq.tenant, -i64(idle));
  seq.blocks.resize(from);
  if (!seq.twins.empty()) seq.twins.resize(from);
}

inline void Pool::truncate(u64 handle, u64 length, double now) {
  Sequence& seq = running(handle);
  if (length > seq.length)
    throw Error(Kind::Token,
                "cannot truncate to " + std::to_string(length) + " tokens: the sequence has " + std::to_string(seq.length),
                {{"length", double(seq.length)}, {"asked", double(length)}});
  tick(now);
  acknowledge_copies(seq);
  const u32 size = options.block_size;
  conclude(seq, u32(length / size), false);
  give_back(seq, u32((length + size - 1) / size));
  seq.output -= u32(std::min<u64>(seq.output, seq.length - length));
  seq.length = length;
  seq.written = std::min(seq.written, length);
  seq.sealed = std::min(seq.sealed, u32(length / size));
  seq.matched = std::min(seq.matched, u32(length / size));
  seq.counts_from = std::min(seq.counts_from, u32(length / size));
  if (const u32 open = u32(length / size); length % size && open < seq.twins.size() && seq.twins[open] != NONE) {
    unrefer(seq.twins[open]);  // what follows will not be what the twin holds
    seq.twins[open] = NONE;
  }
}

inline void Pool::release(u64 handle, bool abort, double now) {
  Sequence& seq = sequence(handle);
  tick(now);
  drop_loads(seq, 0);
  acknowledge_copies(seq);
  if (!abort) seq.written = seq.length;
  seal_written(seq, 0, nullptr, true);
  if (!abort) {
    conclude(seq, 0, true);
    keep_after_release(seq);
  }
  conclude(seq, 0, false);
  give_back(seq, 0);
  drop_extras(seq.extra);
  seq.extra.clear();
  seq.twins.clear();
  seq.alive = false;
  seq.generation++;
  if (--tree.roots[seq.root].live == 0) reap(seq.root);
  spare_sequences_.push_back(u32(handle & 0xFFFFFF));
}

}  // namespace tenure
