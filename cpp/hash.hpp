// Seeded 64-bit hashing of tokens by folded multiplication. It finds candidates; equality of tokens proves them.
#pragma once
#include <cstddef>
#include <cstring>
#include <string>

#include "block.hpp"

namespace tenure {

inline u64 fold(u64 a, u64 b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return u64(product) ^ u64(product >> 64);
}

inline u64 mix(u64 x) {  // a bijection with full avalanche (David Stafford's variant 13 of the MurmurHash3 finaliser)
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

inline u64 bytes_hash(const std::string& bytes) {  // FNV-1a, mixed: the same on every platform
  u64 h = 0xcbf29ce484222325ull;
  for (const char byte : bytes) h = (h ^ u8(byte)) * 0x100000001b3ull;
  return mix(h);
}

// The chain value of a block: everything before it (`before`), its extra key, its tokens. The tokens are folded pair by pair,
// each pair with its own constants and independent of the others, so that only the last step waits for `before`.
[[gnu::noinline]] inline u64 chain_hash(u64 before, u64 extra, const u32* tokens, std::size_t count) {
  u64 sum = 0, at = 0x9e3779b97f4a7c15ull;
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4, at += 0xa0761d6478bd642full) {
    u64 x, y;
    std::memcpy(&x, tokens + i, 8);
    std::memcpy(&y, tokens + i + 2, 8);
    sum += fold(x ^ at, y ^ 0xe7037ed1a0b428dbull ^ (at << 1));
  }
  for (; i < count; ++i, at += 0xa0761d6478bd642full) sum += fold(tokens[i] ^ at, 0x8ebc6af09c88c6e3ull ^ (at << 1));
  return mix(fold(before ^ 0x589965cc75374cc3ull, sum ^ 0x1d8e4e27c47d124full) + extra * 0xeb44accab455d165ull + sum);
}

}  // namespace tenure
