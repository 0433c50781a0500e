// What the ranks' buffers hold in the benchmark: element i of rank r's input is a small integer, so that sums over ranks are exact in a
// float and a block that arrives in the wrong place, or from the wrong rank, shows.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <span>

namespace crosslane::bench {

inline constexpr std::size_t period = 251;  // prime: no power-of-two block repeats the pattern

inline float value(int rank, std::size_t index) {
  return static_cast<float>((index + 13 * static_cast<std::size_t>(rank)) % period);
}

/// Sums over all ranks of value(rank, offset + i).
inline void expect_sums(std::span<float> receive, int ranks, std::size_t offset) {
  std::array<float, period> table{};
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < period; ++i) table[i] += value(rank, i);
  for (std::size_t i = 0; i < receive.size(); ++i) receive[i] = table[(offset + i) % period];
}

inline CUdeviceptr element(CUdeviceptr buffer, std::size_t index) { return buffer + index * sizeof(float); }
inline const float* element(const void* buffer, std::size_t index) { return static_cast<const float*>(buffer) + index; }
inline float* element(void* buffer, std::size_t index) { return static_cast<float*>(buffer) + index; }

}  // namespace crosslane::bench
