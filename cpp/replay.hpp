// Replays traffic through a pool in the trace's own time: the very calls that an engine makes, without Python between them.
#pragma once
#include <functional>

#include "pool.hpp"

namespace tenure {

struct Traffic {
  u64 requests;
  const i64* offsets;      // requests + 1: where each request's blocks lie
  const u32* blocks;       // one id per block; equal id = equal prefix. The pool's blocks are of one token: the id
  const double* arrival;   // s, not falling
  const double* duration;  // s
  const u32* output;       // tokens generated
  const u32* space;        // the namespace each request is in
  const u32* next_use;     // by block, for the optimum; or null
  bool overlap;            // false: one request after the other
};

struct Replayed {
  u64 asked = 0, hit = 0, evicted = 0, waited = 0, cut = 0;
  std::vector<u32> hits;  // by request
};

inline Replayed replay(Pool& pool, const Traffic& traffic, const std::function<void(u64)>& progress) {
  constexpr u64 REPORT_EVERY = 512;
  struct Running {
    double end;
    u64 order, handle;
    bool operator>(const Running& other) const { return end != other.end ? end > other.end : order > other.order; }
  };
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  const auto finish_first = [&](double not_before) {
    const double end = std::max(running.top().end, not_before);
    pool.release(running.top().handle, false, end);
    running.pop();
    return end;
  };
  Replayed result;
  result.hits.resize(traffic.requests);
  double now = 0;
  for (u64 i = 0; i < traffic.requests; ++i) {
    if (progress && i % REPORT_EVERY == 0) progress(i);
    const u64 asked = u64(traffic.offsets[i + 1] - traffic.offsets[i]);
    result.asked += asked;
    if (asked == 0) continue;
    const u64 kept = std::min<u64>(asked, pool.options.frames);  // what does not fit is computed and dropped
    result.cut += asked != kept;
    now = std::max(now, traffic.arrival[i]);
    while (!running.empty() && running.top().end <= now) finish_first(running.top().end);
    const u32* path = traffic.blocks + traffic.offsets[i];
    for (;;) {
      try {
        Request request;
        request.written = true;
        const Admission in = pool.admit(traffic.space[i], path, kept, std::move(request), now);
        Sequence& seq = pool.sequence(in.handle);
        seq.output = traffic.output[i];
        if (traffic.next_use) seq.next_use = traffic.next_use + traffic.offsets[i];
        result.hits[i] = u32(in.hit_tokens);
        result.hit += in.hit_tokens;
        if (traffic.overlap) {
          running.push({now + traffic.duration[i], i, in.handle});
        } else {
          pool.release(in.handle, false, now);
        }
        break;
      } catch (const Error& error) {
        if (running.empty() || (error.kind != Kind::Capacity && error.kind != Kind::Quota)) throw;
        now = std::max(now, finish_first(now));  // no room while so much is running: the request waits
        result.waited++;
      }
    }
  }
  while (!running.empty()) finish_first(running.top().end);
  for (u32 t = 0; t < pool.tenants.size(); ++t) result.evicted += pool.tenants[t].counters.evicted;
  return result;
}

}  // namespace tenure
