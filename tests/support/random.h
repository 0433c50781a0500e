// Seeded random choices for tests: the same seed gives the same choices on every rank and machine.
// It must not know MPI or CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

namespace crosslane::tests {

/// The step and the output of splitmix64.
inline constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
[[nodiscard]] constexpr std::uint64_t spread(std::uint64_t state) noexcept {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ULL;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebULL;
  return state ^ (state >> 31);
}

/// Mixes `values` into one well-spread 64-bit number: seeds for a case, a message, a rank.
template <class... Values>
[[nodiscard]] constexpr std::uint64_t mix(Values... values) noexcept {
  std::uint64_t state = golden;
  ((state = spread(state + static_cast<std::uint64_t>(values) + golden)), ...);
  return state;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// A number of [0, end); end must be positive.
  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return engine_() % end; }
  /// A number of [low, high], both included.
  template <class Number>
  [[nodiscard]] Number between(Number low, Number high) {
    const auto span = static_cast<std::uint64_t>(static_cast<std::int64_t>(high) - static_cast<std::int64_t>(low)) + 1;
    return static_cast<Number>(static_cast<std::int64_t>(low) + static_cast<std::int64_t>(below(span)));
  }
  /// True in `percent` of 100 cases.
  [[nodiscard]] bool chance(unsigned percent) { return below(100) < percent; }
  template <class Container>
  [[nodiscard]] const auto& pick(const Container& choices) {
    return *std::next(std::begin(choices), static_cast<std::ptrdiff_t>(below(std::size(choices))));
  }
  template <class Value>
  void shuffle(std::vector<Value>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }
  /// A message's size in bytes, at most `most`: often none, often near the sizes where protocols change
  /// (1 KiB, 64 KiB, 1 to 4 MiB), seldom 16 MiB, else spread evenly over the powers of two.
  [[nodiscard]] std::size_t bytes(std::size_t most = std::size_t{16} << 20);
  [[nodiscard]] std::uint64_t next() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

/// The same for contents, of which there are many: a few times as fast.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] std::uint64_t next() { return spread(state_ += golden); }
  /// A number of [low, high], both included, not 2^32 apart.
  [[nodiscard]] int between(int low, int high) {
    const auto span = static_cast<std::uint64_t>(std::int64_t{high} - low) + 1;
    return static_cast<int>(low + static_cast<std::int64_t>(((next() >> 32) * span) >> 32));
  }

 private:
  std::uint64_t state_;
};

/// `bytes` bytes that depend on `seed` only.
[[nodiscard]] std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes);

}  // namespace crosslane::tests
