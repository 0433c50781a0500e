// Sizes and contents of test messages. It must not know MPI or CUDA.
#include "support/random.h"

#include <algorithm>
#include <cstring>

namespace crosslane::tests {

std::size_t Random::bytes(std::size_t most) {
  constexpr std::size_t kilo = 1024;
  std::size_t size = 0;
  const auto kind = below(100);
  if (kind < 8)
    size = 0;
  else if (kind < 34)
    size = kilo + below(161) - 80;
  else if (kind < 54)
    size = 64 * kilo + below(4097) - 2048;
  else if (kind < 62)
    size = kilo * kilo + below(3 * kilo * kilo + 1);
  else if (kind < 63)
    size = 16 * kilo * kilo - below(3);
  else
    size = (std::size_t{1} << below(18)) + below(64);
  return std::min(size, most);
}

std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  std::uint64_t state = mix(seed) | 1;
  for (std::size_t at = 0; at < bytes; at += sizeof state) {
    state ^= state << 13;  // xorshift64
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(result.data() + at, &state, std::min(sizeof state, bytes - at));
  }
  return result;
}

}  // namespace crosslane::tests
