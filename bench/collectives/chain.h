// Calls of one collective in a row, each of which sends what the one before has brought, so that none can start early: two buffers a rank
// change places, or the root goes from rank to rank. It must not know by which means a call is made, nor how it is timed.
#pragma once

#include "operation/operations.h"

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace crosslane::bench {

/// What a chain runs on: two buffers of a rank on the GPU, and pinned ones beside them for calls by hand, where there are any.
struct ChainMemory {
  std::array<CUdeviceptr, 2> gpu{};
  std::array<std::byte*, 2> host{};
};

struct ChainBuffers {
  ChainBuffers(std::size_t bytes, bool by_hand)
      : first(bytes), second(bytes), host_first(by_hand ? bytes : 0), host_second(by_hand ? bytes : 0) {}
  [[nodiscard]] ChainMemory memory() const noexcept {
    return {{first.address(), second.address()}, {host_first.data(), host_second.data()}};
  }
  DeviceBuffer first, second;
  PinnedBuffer host_first, host_second;
};

/// Whether each rank has a block of a collective's vector, or one for each rank.
[[nodiscard]] bool has_blocks(const std::string& name);

class Chain {
 public:
  using Call = std::function<void(const Collective& collective, CUdeviceptr send, CUdeviceptr receive)>;

  /// `bytes` of the whole vector: where each rank has a block of it, the next lower multiple of 4 for each, at least 4.
  /// Needs two ranks. Throws std::runtime_error for an unknown name.
  Chain(const std::string& name, std::size_t bytes, int rank, int ranks);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// What moves at least, as benchmarks of GPU collectives count it: of all-reduces 2 (n - 1) / n of the vector, ...
  [[nodiscard]] double bus_bytes() const;
  /// The vector's bytes: the room that a buffer needs.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// How many ranks take turns as the root; 1 where there is no root.
  [[nodiscard]] std::size_t roots() const noexcept { return by_root_.size(); }

  /// The first `calls` of the chain on the GPU's buffers.
  void run(const ChainMemory& memory, int calls, const Call& call) const;
  /// The same by copies to the host, MPI there and copies back, of what each call reads and writes.
  void run_by_hand(const ChainMemory& memory, int calls) const;

  /// True if a few calls give this rank what they give on host memory; both buffers are compared as wholes.
  [[nodiscard]] bool right(const ChainMemory& memory, const std::function<void(int calls)>& run_calls);

 private:
  struct Places {
    const Collective* collective;
    int send, receive;  // 0: the first buffer, 1: the second
  };
  [[nodiscard]] Places places(int call) const;

  const std::string name_;
  const int rank_, ranks_;
  std::vector<std::unique_ptr<Collective>> by_root_;
  std::size_t bytes_ = 0;
  // What the buffers hold before and behind a few calls: made when first wanted.
  std::array<std::vector<float>, 2> before_, behind_;
};

/// The first calls of a chain, by one means.
using ChainCalls = std::function<void(const Chain& chain, int calls)>;

}  // namespace crosslane::bench
