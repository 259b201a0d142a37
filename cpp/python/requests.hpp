// The life of a request: admission, growth, release, leases.
#pragma once
#include "common.hpp"

namespace tenure {

inline void bind_requests(PoolClass& pool) {
  pool.def(
          "admit",
          [](PyPool& p, u32 space, nb::handle tokens, double now, const Request* request, bool written) {
            const Tokens ids(tokens);
            Request wanted;
            if (request) wanted = *request;
            wanted.written |= written;
            const Admission in = locked(p, [&] { return p.admit(space, ids.data(), ids.size(), std::move(wanted), now); });
            return nb::make_tuple(in.handle, in.hit_tokens, why_tuple(in.why), in.loads);
          },
          "space"_a, "tokens"_a.none(), "now"_a, "request"_a.none(), "written"_a)
      .def(
          "match",
          [](PyPool& p, u32 space, nb::handle tokens, double now, const Request* request) {
            const Tokens ids(tokens);
            const Request none;
            const Pool::Match found =
                locked(p, [&] { return p.match(space, ids.data(), ids.size(), request ? *request : none, now); });
            return nb::make_tuple(to_array(found.frames), to_array(found.tiers), why_tuple(found.why));
          },
          "space"_a, "tokens"_a.none(), "now"_a, "request"_a.none())
      .def(
          "append",
          [](PyPool& p, u64 handle, nb::handle tokens, bool written, double now) {
            const Tokens ids(tokens);
            const Pool::Appended done = locked(p, [&] { return p.append(handle, ids.data(), ids.size(), written, now); });
            return nb::make_tuple(plain(done.copies), to_array(done.frames), plain(done.rewrites));
          },
          "handle"_a, "tokens"_a.none(), "written"_a, "now"_a)
      .def("seal", [](PyPool& p, u64 handle, u64 upto,
                      double now) { return plain(locked(p, [&] { return p.seal(handle, upto, now); })); })
      .def("fork", [](PyPool& p, u64 handle, double now) { return locked(p, [&] { return p.fork(handle, now); }); })
      .def("truncate", [](PyPool& p, u64 handle, u64 length, double now) { locked(p, [&] { p.truncate(handle, length, now); }); })
      .def("acknowledge", [](PyPool& p, u64 handle, double now) { locked(p, [&] { p.acknowledge(handle, now); }); })
      .def("release", [](PyPool& p, u64 handle, bool abort, double now) { locked(p, [&] { p.release(handle, abort, now); }); })
      .def("table",
           [](PyPool& p, u64 handle) {
             return to_array(locked(p, [&] {
               std::vector<u32> frames;
               const Sequence& seq = p.sequence(handle);
               frames.reserve(seq.blocks.size());
               for (u32 id : seq.blocks) frames.push_back(frame_of(p, id));
               return frames;
             }));
           })
      .def("sequence",
           [](PyPool& p, u64 handle) {
             return locked(p, [&] {
               const Sequence& seq = p.sequence(handle);
               return std::make_tuple(seq.length, seq.written, seq.matched, seq.sealed, seq.tenant);
             });
           })
      .def("tokens",
           [](PyPool& p, u64 handle) {
             return to_array(locked(p, [&] {
               std::vector<u32> tokens;
               const Sequence& seq = p.sequence(handle);
               tokens.reserve(seq.length);
               for (const u32 id : seq.blocks) {
                 const u32* ids = p.store.tokens_of(id);
                 const u64 count = std::min<u64>(p.options.block_size, seq.length - tokens.size());
                 tokens.insert(tokens.end(), ids, ids + count);
               }
               return tokens;
             }));
           })
      .def("copies",
           [](PyPool& p, u64 handle) {
             return plain(locked(p, [&] {
               std::vector<Copy> copies = p.sequence(handle).copies;
               for (Copy& c : copies) c = {frame_of(p, c.source), frame_of(p, c.target), c.tokens};
               return copies;
             }));
           })
      .def(
          "lease",
          [](PyPool& p, u8 kind, u32 space, nb::handle tokens, const Request* request, const std::string& owner, double ttl,
             double now) {
            const Tokens ids(tokens);
            const Request none;
            return locked(p, [&] {
              const u64 handle =
                  p.lease(LeaseKind(kind), space, ids.data(), ids.size(), request ? *request : none, owner, ttl, now);
              return std::make_pair(handle, p.leases[u32(handle & 0xFFFFFF)].blocks);
            });
          },
          "kind"_a, "space"_a, "tokens"_a.none(), "request"_a.none(), "owner"_a, "ttl"_a, "now"_a)
      .def("end_lease", [](PyPool& p, u64 handle, double now) { return locked(p, [&] { return p.end_lease(handle, now); }); })
      .def("lease_frames", [](PyPool& p, u64 handle) { return to_array(locked(p, [&] { return p.lease_frames(handle); })); })
      .def("leases", [](PyPool& p, double now) {
        const auto rows = locked(p, [&] {
          std::vector<std::tuple<u64, u8, u32, u32, double, std::string>> out;
          p.advance(now);
          for (u32 i = 0; i < p.leases.size(); ++i) {
            const Lease& l = p.leases[i];
            if (l.alive)
              out.emplace_back(p.handle_of(i, l.generation, true), u8(l.kind), l.tenant, l.blocks, l.deadline, l.owner);
          }
          return out;
        });
        return rows;
      });
}

}  // namespace tenure
