// The operations that are measured, each written several times: MPI on whatever pointers it is given, copies by hand
// around it, NCCL, and for collectives Crosslane's own calls on a stream. It must not know how they are timed.
#pragma once

#include "common/device.h"
#include "native.h"
#include "nccl.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace crosslane::bench {

/// One rank's buffers for one size: what it sends and what it receives, on the GPU and pinned beside it.
struct Buffers {
  Buffers(std::size_t send_bytes, std::size_t receive_bytes)
      : send(send_bytes), receive(receive_bytes), host_send(send_bytes), host_receive(receive_bytes) {}
  DeviceBuffer send, receive;
  PinnedBuffer host_send, host_receive;
};

/// One operation at one size. Elements are floats whose sums are exact. `bytes` is, for messages, a message; for
/// all-reduce, reduce and bcast the vector; for the others the block that one rank contributes (or gets) for each peer.
class Operation {
 public:
  virtual ~Operation() = default;

  /// The operation of this name; null if there is none. `bytes` is a multiple of 4.
  static std::unique_ptr<Operation> make(std::string_view name, std::size_t bytes, int rank, int ranks);

  [[nodiscard]] std::size_t send_count() const noexcept { return send_count_; }
  [[nodiscard]] std::size_t receive_count() const noexcept { return receive_count_; }
  /// Operations as a user counts them in one run: a ping-pong is two messages, a window is as many as it holds.
  [[nodiscard]] virtual double operations() const { return 1; }
  /// Bytes that one run moves, as the GB/s column counts them.
  [[nodiscard]] virtual double moved() const { return static_cast<double>(count_) * sizeof(float); }

  virtual void fill(std::span<float> send) const;
  virtual void expect(std::span<float> receive) const = 0;

  /// The MPI calls, on device pointers (Crosslane) or host pointers.
  virtual void mpi(const void* send, void* receive) const = 0;
  /// What one writes today: copy to the host, MPI there, copy back.
  virtual void by_hand(const Buffers& buffers) const;
  /// The same through NCCL; the caller waits for the stream.
  virtual void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const = 0;

 protected:
  Operation(std::size_t count, int rank, int ranks) : count_(count), rank_(rank), ranks_(ranks) {}
  [[nodiscard]] int count() const noexcept { return static_cast<int>(count_); }

  const std::size_t count_;
  const int rank_;
  const int ranks_;
  std::size_t send_count_ = 0;
  std::size_t receive_count_ = 0;
};

/// A collective over all ranks.
class Collective : public Operation {
 public:
  /// As Operation::make; null where the name is none of a collective.
  static std::unique_ptr<Collective> make(std::string_view name, std::size_t bytes, int rank, int ranks, int root);

  [[nodiscard]] int root() const noexcept { return root_; }
  /// Crosslane's call of its own on the stream; MPI's error.
  [[nodiscard]] virtual int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive,
                                    CUstream stream) const = 0;

 protected:
  Collective(std::size_t count, int rank, int ranks, int root) : Operation(count, rank, ranks), root_(root) {}
  [[nodiscard]] MPI_Count whole() const noexcept { return static_cast<MPI_Count>(count_); }

  const int root_;
};

}  // namespace crosslane::bench
