// Admission: match, find out whether it can be done, then do it. Nothing changes before the arithmetic has said yes.
#pragma once
#include "pool.hpp"

namespace tenure {

inline void Pool::check_count(u64 count) const {
  const u64 most = u64(options.frames) * options.block_size;
  if (count > most)
    throw Error(Kind::Capacity,
                std::to_string(count) + " tokens need " + std::to_string((count + options.block_size - 1) / options.block_size) +
                    " blocks; the pool has " + std::to_string(options.frames) + " frames",
                {{"tokens", double(count)}, {"frames", double(options.frames)}});
}

inline void Pool::refuse(u32 tenant, u64 more, const char* what) const {
  const auto verdict = tenants.may(tenant, more);
  if (verdict.ok()) return;
  const Tenant& t = tenants[tenant];
  const Error::Numbers numbers{{"needed", double(more)},
                               {"busy", double(t.busy)},
                               {"cap", double(t.device().cap)},
                               {"frames", double(options.frames)},
                               {"free", double(store.device.free())},
                               {"short", double(std::max(verdict.over_cap, verdict.over_frames))}};
  if (verdict.over_cap && t.device().cap < options.frames)
    throw Error(Kind::Quota,
                std::string(what) + " needs " + std::to_string(more) + " frames more in use: tenant '" + t.name + "' has " +
                    std::to_string(t.busy) + " in use and a cap of " + std::to_string(t.device().cap),
                numbers);
  throw Error(Kind::Capacity,
              std::string(what) + " needs " + std::to_string(more) + " frames more in use: of " + std::to_string(options.frames) +
                  " frames too many are in use or promised to other tenants (short of " + std::to_string(verdict.over_frames) +
                  ")",
              numbers);
}

inline std::vector<u32> Pool::intern_extras(const Request& request, u64 count) {
  std::vector<u32> extra;
  if (request.extras.empty()) return extra;
  const u64 blocks = (count + options.block_size - 1) / options.block_size;
  for (const auto& [block, bytes] : request.extras)
    if (block >= blocks)
      throw Error(Kind::Token,
                  "an extra key is given for block " + std::to_string(block) + "; the prompt has " + std::to_string(blocks),
                  {{"block", double(block)}, {"blocks", double(blocks)}});
  extra.assign(blocks, 0);
  for (const auto& [block, bytes] : request.extras) {
    extras_.drop(extra[block]);
    extra[block] = extras_.take(bytes);
  }
  return extra;
}

inline void Pool::drop_extras(const std::vector<u32>& extra) {
  for (u32 number : extra) extras_.drop(number);
}

// Fills found_ with the leading blocks that are on the device, lower_ with those after them that a lower tier has, and chains_
// for the full blocks from the first that is not on the device.
inline Pool::Found Pool::walk(u32 root, const u32* tokens, u64 count, const Request& request, const std::vector<u32>& extra) {
  constexpr u32 AHEAD = 8;
  const u32 size = options.block_size;
  const u64 full = count / size, limit = std::min(full, request.most_hit(count) / size);
  const auto chain_of = [&](u64 i, u64 before) {
    return chain_hash(before, extra.empty() ? 0 : extras_.hash(extra[i]), tokens + i * size, size);
  };
  found_.clear();
  lower_.clear();
  Found found;
  u32 parent = NONE;
  u64 chain = salt_;
  for (; found.all < limit; ++found.all) {
    const u64 i = found.all;
    const u32 id = tree.find(root, parent, extra.empty() ? 0 : extra[i], tokens + i * size, [&] { return chain_of(i, chain); });
    if (id == NONE) break;
    // A path's blocks mostly lie in a row, so the ones after it are asked for ahead of their use.
    if (const u32 ahead = id + (id - parent) * AHEAD; ahead < store.records()) {
      __builtin_prefetch(store.blocks.at(ahead));
      __builtin_prefetch(store.tokens_of(ahead));
      __builtin_prefetch(store.device.slots.at(ahead));
    }
    const Block& b = store.blocks[id];
    if (b.state == State::Swapped) {
      lower_.push_back(id);
    } else {
      found_.push_back(id);
      found.newly_busy += !b.busy();
    }
    chain = b.chain;
    parent = id;
  }
  found.matched = u32(found_.size());
  chains_.resize(full);
  for (u64 i = found.matched; i < found.all; ++i) chains_[i] = store.blocks[lower_[i - found.matched]].chain;
  for (u64 i = found.all; i < full; ++i) chains_[i] = chain = chain_of(i, chain);
  found.why = explain(root, found.all, tokens, count, request, extra);
  return found;
}

inline Why Pool::explain(u32 root, u32 matched, const u32* tokens, u64 count, const Request& request,
                         const std::vector<u32>& extra) {
  const u32 size = options.block_size;
  const u64 full = count / size;
  Why why;
  why.at = u64(matched) * size;
  if (matched == full) {
    if (full == 0) why.reason = Reason::TooShort;
    return why;
  }
  if ((u64(matched) + 1) * size > request.most_hit(count)) {
    why.reason = Reason::Limit;
    return why;
  }
  const Space& space = spaces_[tree.roots[root].space];
  const u64 chain = chains_[matched];
  if (const Ghost* ghost = ledger.find_gone(chain ^ space.salt)) {
    why = {ghost->reason, ghost->policy, ghost->tenant, NONE, why.at, ghost->when};
    return why;
  }
  const u32 key = extra.empty() ? 0 : extra[matched];
  if (matched == 0) {
    const u32 old = space.previous == NONE ? NONE : tree.find(space.previous, NONE, key, tokens, [&] { return chain; });
    if (old != NONE && store.blocks[old].depth == 0) {  // what was cut off from its parent hangs there too
      why.reason = Reason::Invalidated;
      return why;
    }
    const u32 other = ledger.who_began(chain);
    if (other != NONE && other != tree.roots[root].space) {
      why.reason = Reason::Foreign;
      why.space = other;
      return why;
    }
  }
  const u32 parent = !lower_.empty() ? lower_.back() : matched ? found_.back() : NONE;
  const auto [nearest, same] = diverging(root, parent, key, tokens + why.at, std::min<u64>(size, count - why.at), 4);
  why.reason = nearest != NONE && (matched || same) ? Reason::Diverged : Reason::NeverSeen;
  why.at += same;
  return why;
}

// The child of `parent` that shares most leading tokens, among its `limit` newest, and how many it shares.
inline std::pair<u32, u32> Pool::diverging(u32 root, u32 parent, u32 extra, const u32* tokens, u64 count, u32 limit) const {
  u32 best = NONE, most = 0;
  u32 child = parent == NONE ? tree.roots[root].first_child : store.blocks[parent].first_child;
  for (; child != NONE && limit > 0; child = store.blocks[child].next, --limit) {
    if (store.blocks[child].extra != extra) continue;
    const u32* theirs = store.tokens_of(child);
    u32 same = 0;
    while (same < count && same < options.block_size && theirs[same] == tokens[same]) ++same;
    if (best == NONE || same > most) {
      best = child;
      most = same;
    }
  }
  return {best, most};
}

inline Pool::Match Pool::match(u32 space, const u32* tokens, u64 count, const Request& request, double now) {
  tick(now);
  const std::vector<u32> extra = intern_extras(request, count);
  const Found found = walk(spaces_[space].root, tokens, count, request, extra);
  drop_extras(extra);
  Match match;
  match.why = found.why;
  for (u32 id : found_) match.frames.push_back(store.device.slots[id].frame);
  for (u32 id : lower_) match.tiers.push_back(store.fastest(id));
  return match;
}

// What refer() does for one block, for all of found_ (one tenant's): the books are brought up to date once.
inline void Pool::refer_found(u32 tenant, u32 newly_busy) {
  u32 revived = 0;
  for (const u32 id : found_) {
    Block& b = store.blocks[id];
    if (!b.busy()) unqueue(id);
    if (b.refs++ == 0 && b.state == State::Cached) {
      step(b, id, Step::Hit);
      ++revived;
    }
    note(Happened::Hit, id, b, tenant);
  }
  states[u8(State::Cached)] -= revived;
  states[u8(State::Sealed)] += revived;
  tenants.add_busy(tenant, newly_busy);
}

// Tells a tier's policy what the request that has just been looked up found in it, and what it missed.
inline void Pool::arrive(u32 k, Sequence& seq) {
  Policy& policy = *tenants[seq.tenant].in[k].policy;
  const std::vector<u32>* hits = &found_;
  if (k != DEVICE) {
    there_.clear();
    for (const auto* part : {&found_, &lower_})
      for (u32 id : *part)
        if (store.in(k, id)) there_.push_back(id);
    hits = &there_;
  }
  const u64 from = k == DEVICE ? found_.size() : std::min(chains_.size(), found_.size() + lower_.size());
  const Missing missing{chains_.data() + from, chains_.size() - from, spaces_[seq.space].salt};
  policy.arrive(seq.visits[k], *hits, missing, stamp_ + 1, now_);
}

inline Admission Pool::admit(u32 space, const u32* tokens, u64 count, Request&& request, double now) {
  constexpr u32 WIDTH = 64;  // children of one block that partial reuse looks at
  if (count == 0) throw Error(Kind::Token, "the prompt is empty: a sequence starts with at least one token", {{"tokens", 0}});
  check_count(count);
  check_places();
  tick(now);
  const u32 size = options.block_size, root = spaces_[space].root, tenant = spaces_[space].tenant;
  request.max_hit = request.most_hit(count);
  std::vector<u32> extra = intern_extras(request, count);
  const Found found = walk(root, tokens, count, request, extra);
  const u32 total = u32((count + size - 1) / size), fresh = total - found.matched;
  const u32 last = found.matched ? found_.back() : NONE;
  const bool loads = found.all != found.matched;

  // Reserve: can all of it be had? Hits count too: holding them takes them from what can be evicted.
  u32 source = NONE, copied = 0, source_busy = 0;
  const u64 known = u64(found.matched) * size;
  if (options.partial_reuse && fresh && !loads && request.max_hit > known) {
    const u64 most = std::min(count, request.max_hit) - known;
    const u32 key = extra.empty() ? 0 : extra[found.matched];
    std::tie(source, copied) = diverging(root, last, key, tokens + known, std::min<u64>(most, size), WIDTH);
    if (copied < options.partial_reuse || source == NONE) copied = 0;
    source_busy = copied && !store.blocks[source].busy();
    if (copied && !tenants.may(tenant, u64(found.newly_busy) + fresh + source_busy).ok()) copied = source_busy = 0;
  }
  Tenant& t = tenants[tenant];
  if (!tenants.may(tenant, u64(found.newly_busy) + fresh).ok()) {
    drop_extras(extra);
    t.counters.refused++;
    refuse(tenant, u64(found.newly_busy) + fresh, "the request");
  }

  // Commit: nothing below can fail.
  const u32 index = place(sequences, spare_sequences_);
  Sequence& seq = sequences[index];
  seq.alive = true;
  seq.space = space;
  seq.root = root;
  seq.tenant = tenant;
  seq.length = seq.prompt = count;
  seq.written = known + copied;
  seq.matched = seq.sealed = found.matched;
  seq.counts_from = seq.output = 0;
  seq.expires = request.expire_after < FOR_EVER ? now_ + request.expire_after : FOR_EVER;
  seq.next_use = nullptr;
  seq.extra = std::move(extra);
  const bool written = request.written;
  seq.request = std::move(request);
  tree.roots[root].live++;

  for (u32 k = 0; k < store.tiers(); ++k)
    if (t.in[k].policy->wants_visits) arrive(k, seq);
  refer_found(tenant, found.newly_busy);
  for (u32 id : lower_) {
    hold(id);
    const u32 k = store.fastest(id);
    seq.loads.push_back({id, k, store.tier(k).slots[id].frame});
  }
  if (copied) hold(source);
  make_room(tenant, fresh);
  seq.blocks.assign(found_.begin(), found_.end());
  seq.blocks.reserve(total);
  for (u32 i = found.matched; i < total; ++i) {
    const u32 id = take_block(root, tenant);
    Block& b = store.blocks[id];
    const u64 from = u64(i) * size;
    b.filled = u16(std::min<u64>(size, count - from));
    std::memcpy(store.tokens_of(id), tokens + from, b.filled * sizeof(u32));
    if (i < chains_.size()) {
      b.chain = chains_[i];
      b.flags |= HASHED;
    }
    if (!seq.extra.empty()) extras_.retain(b.extra = seq.extra[i]);
    seq.blocks.push_back(id);
    note(Happened::Allocate, id, b, tenant);
  }
  if (copied) {
    seq.copies.push_back({source, seq.blocks[found.matched], copied});
    t.counters.copies++;
  }
  if (written && !loads) {
    seq.written = count;
    seal_written(seq, 0, nullptr);
  }
  Counters& c = t.counters;
  c.requests++;
  c.blocks_asked += count / size;
  c.blocks_hit += found.matched;
  c.tokens_asked += count;
  c.tokens_hit += known + copied;
  c.endings[u8(found.why.reason)]++;
  c.missed[u8(found.why.reason)] += count / size - found.all;
  return {handle_of(index, seq.generation, false), known + copied, found.why, found.all - found.matched};
}

}  // namespace tenure
