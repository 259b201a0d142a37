// Seeded 64-bit hashing of tokens by folded multiplication. It finds candidates; equality of tokens proves them.
#pragma once
#include <cstddef>
#include <cstring>

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

// The chain value of a block: everything before it (`before`), its extra key, its tokens.
inline u64 chain_hash(u64 before, u64 extra, const u32* tokens, std::size_t count) {
  u64 a = before ^ 0x9e3779b97f4a7c15ull, b = extra + 0xd1b54a32d192ed03ull;
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    u64 x, y;
    std::memcpy(&x, tokens + i, 8);
    std::memcpy(&y, tokens + i + 2, 8);
    const u64 f = fold(x ^ 0xa0761d6478bd642full ^ a, y ^ 0xe7037ed1a0b428dbull ^ (u64(i) << 32));
    a = b;
    b = f;
    a += f * 0x9fb21c651e98df25ull;
  }
  for (; i < count; ++i) {
    const u64 f = fold(tokens[i] ^ 0x8ebc6af09c88c6e3ull ^ a, b ^ 0x589965cc75374cc3ull);
    a = b;
    b = f;
  }
  return mix(fold(a ^ 0x1d8e4e27c47d124full, b ^ 0xeb44accab455d165ull) + before * 3);
}

}  // namespace tenure
