// See operations.h. Element i of rank r's input is a small integer, so that sums over ranks are exact in a float and a
// block that arrives in the wrong place, or from the wrong rank, shows.
#include "operations.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace crosslane::bench {
namespace {

constexpr std::size_t period = 251;  // prime: no power-of-two block repeats the pattern
constexpr int root = 0;
constexpr int tag = 1;

float value(int rank, std::size_t index) {
  return static_cast<float>((index + 13 * static_cast<std::size_t>(rank)) % period);
}

/// Sums over all ranks of value(rank, i), for i below the period.
std::array<float, period> sums(int ranks) {
  std::array<float, period> result{};
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < period; ++i) result[i] += value(rank, i);
  return result;
}

void expect_sums(std::span<float> receive, int ranks, std::size_t offset) {
  const auto table = sums(ranks);
  for (std::size_t i = 0; i < receive.size(); ++i) receive[i] = table[(offset + i) % period];
}

CUdeviceptr element(const DeviceBuffer& buffer, std::size_t index) { return buffer.address() + index * sizeof(float); }

const float* element(const void* buffer, std::size_t index) { return static_cast<const float*>(buffer) + index; }
float* element(void* buffer, std::size_t index) { return static_cast<float*>(buffer) + index; }

void to_host(const Buffers& buffers, std::size_t first, std::size_t count) {
  if (count == 0) return;
  check(cuMemcpyDtoH(buffers.host_send.data() + first * sizeof(float), element(buffers.send, first),
                     count * sizeof(float)),
        "cuMemcpyDtoH");
}

void to_gpu(const Buffers& buffers, std::size_t first, std::size_t count) {
  if (count == 0) return;
  check(cuMemcpyHtoD(element(buffers.receive, first), buffers.host_receive.data() + first * sizeof(float),
                     count * sizeof(float)),
        "cuMemcpyHtoD");
}

class AllReduce : public Operation {
 public:
  AllReduce(std::size_t count, int rank, int ranks) : Operation(count, rank, ranks) {
    send_count_ = receive_count_ = count;
  }
  void expect(std::span<float> receive) const override { expect_sums(receive, ranks_, 0); }
  void mpi(const void* send, void* receive) const override {
    MPI_Allreduce(send, receive, count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    nccl.all_reduce(buffers.send.address(), buffers.receive.address(), count_, stream);
  }
};

class Reduce : public Operation {
 public:
  Reduce(std::size_t count, int rank, int ranks) : Operation(count, rank, ranks) {
    send_count_ = count;
    receive_count_ = rank == root ? count : 0;
  }
  void expect(std::span<float> receive) const override { expect_sums(receive, ranks_, 0); }
  void mpi(const void* send, void* receive) const override {
    MPI_Reduce(send, receive, count(), MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    nccl.reduce(buffers.send.address(), buffers.receive.address(), count_, root, stream);
  }
};

class Bcast : public Operation {
 public:
  Bcast(std::size_t count, int rank, int ranks) : Operation(count, rank, ranks) {
    (rank == root ? send_count_ : receive_count_) = count;
  }
  void expect(std::span<float> receive) const override {
    for (std::size_t i = 0; i < receive.size(); ++i) receive[i] = value(root, i);
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Bcast(rank_ == root ? const_cast<void*>(send) : receive, count(), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    const CUdeviceptr mine = rank_ == root ? buffers.send.address() : buffers.receive.address();
    nccl.broadcast(mine, mine, count_, root, stream);
  }
};

class AllGather : public Operation {
 public:
  AllGather(std::size_t count, int rank, int ranks) : Operation(count, rank, ranks) {
    send_count_ = count;
    receive_count_ = count * static_cast<std::size_t>(ranks);
  }
  void expect(std::span<float> receive) const override {
    for (std::size_t i = 0; i < receive.size(); ++i) receive[i] = value(static_cast<int>(i / count_), i % count_);
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Allgather(send, count(), MPI_FLOAT, receive, count(), MPI_FLOAT, MPI_COMM_WORLD);
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    nccl.all_gather(buffers.send.address(), buffers.receive.address(), count_, stream);
  }
};

class Gather : public AllGather {
 public:
  Gather(std::size_t count, int rank, int ranks) : AllGather(count, rank, ranks) {
    if (rank != root) receive_count_ = 0;
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Gather(send, count(), MPI_FLOAT, receive, count(), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    nccl.group_start();
    nccl.send(buffers.send.address(), count_, root, stream);
    if (rank_ == root)
      for (int peer = 0; peer < ranks_; ++peer)
        nccl.receive(element(buffers.receive, count_ * static_cast<std::size_t>(peer)), count_, peer, stream);
    nccl.group_end();
  }
};

class Scatter : public Operation {
 public:
  Scatter(std::size_t count, int rank, int ranks) : Operation(count, rank, ranks) {
    send_count_ = rank == root ? count * static_cast<std::size_t>(ranks) : 0;
    receive_count_ = count;
  }
  void expect(std::span<float> receive) const override {
    for (std::size_t i = 0; i < receive.size(); ++i)
      receive[i] = value(root, count_ * static_cast<std::size_t>(rank_) + i);
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Scatter(send, count(), MPI_FLOAT, receive, count(), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    nccl.group_start();
    if (rank_ == root)
      for (int peer = 0; peer < ranks_; ++peer)
        nccl.send(element(buffers.send, count_ * static_cast<std::size_t>(peer)), count_, peer, stream);
    nccl.receive(buffers.receive.address(), count_, root, stream);
    nccl.group_end();
  }
};

class AllToAll : public Operation {
 public:
  AllToAll(std::size_t count, int rank, int ranks) : Operation(count, rank, ranks) {
    send_count_ = receive_count_ = count * static_cast<std::size_t>(ranks);
  }
  void expect(std::span<float> receive) const override {
    const std::size_t mine = count_ * static_cast<std::size_t>(rank_);
    for (std::size_t i = 0; i < receive.size(); ++i)
      receive[i] = value(static_cast<int>(i / count_), mine + i % count_);
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Alltoall(send, count(), MPI_FLOAT, receive, count(), MPI_FLOAT, MPI_COMM_WORLD);
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    nccl.group_start();
    for (int peer = 0; peer < ranks_; ++peer) {
      const std::size_t block = count_ * static_cast<std::size_t>(peer);
      nccl.send(element(buffers.send, block), count_, peer, stream);
      nccl.receive(element(buffers.receive, block), count_, peer, stream);
    }
    nccl.group_end();
  }
};

class ReduceScatter : public Operation {
 public:
  ReduceScatter(std::size_t count, int rank, int ranks) : Operation(count, rank, ranks) {
    send_count_ = count * static_cast<std::size_t>(ranks);
    receive_count_ = count;
  }
  void expect(std::span<float> receive) const override {
    expect_sums(receive, ranks_, count_ * static_cast<std::size_t>(rank_));
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Reduce_scatter_block(send, receive, count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    nccl.reduce_scatter(buffers.send.address(), buffers.receive.address(), count_, stream);
  }
};

/// Between ranks 0 and 1; the others wait in the barrier that precedes each run.
class PointToPoint : public Operation {
 public:
  using Operation::Operation;

 protected:
  [[nodiscard]] bool idle() const noexcept { return rank_ > 1; }
  [[nodiscard]] int peer() const noexcept { return 1 - rank_; }
};

class Latency : public PointToPoint {
 public:
  Latency(std::size_t count, int rank, int ranks) : PointToPoint(count, rank, ranks) {
    if (!idle()) send_count_ = receive_count_ = count;
  }
  [[nodiscard]] double operations() const override { return 2; }
  [[nodiscard]] double moved() const override { return 2 * Operation::moved(); }
  void expect(std::span<float> receive) const override {
    for (std::size_t i = 0; i < receive.size(); ++i) receive[i] = value(peer(), i);
  }
  void mpi(const void* send, void* receive) const override {
    if (rank_ == 0) MPI_Send(send, count(), MPI_FLOAT, 1, tag, MPI_COMM_WORLD);
    if (!idle()) MPI_Recv(receive, count(), MPI_FLOAT, peer(), tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank_ == 1) MPI_Send(send, count(), MPI_FLOAT, 0, tag, MPI_COMM_WORLD);
  }
  void by_hand(const Buffers& buffers) const override {
    const auto send = [&] {
      to_host(buffers, 0, count_);
      MPI_Send(buffers.host_send.data(), count(), MPI_FLOAT, peer(), tag, MPI_COMM_WORLD);
    };
    if (rank_ == 0) send();
    if (!idle()) {
      MPI_Recv(buffers.host_receive.data(), count(), MPI_FLOAT, peer(), tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      to_gpu(buffers, 0, count_);
    }
    if (rank_ == 1) send();
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    if (rank_ == 0) nccl.send(buffers.send.address(), count_, 1, stream);
    if (!idle()) nccl.receive(buffers.receive.address(), count_, peer(), stream);
    if (rank_ == 1) nccl.send(buffers.send.address(), count_, 0, stream);
  }
};

/// A window of messages in flight: one way, or both ways at once. Every message has a block of its own.
class Stream : public PointToPoint {
 public:
  Stream(std::size_t count, int rank, int ranks, bool both)
      : PointToPoint(count, rank, ranks),
        window_(std::clamp<std::size_t>(most_bytes / (count * sizeof(float)), 1, 64)),
        both_(both) {
    if (sends()) send_count_ = window_ * count;
    if (receives()) receive_count_ = window_ * count;
  }
  [[nodiscard]] double operations() const override { return static_cast<double>(window_); }
  [[nodiscard]] double moved() const override {
    return (both_ ? 2 : 1) * static_cast<double>(window_) * Operation::moved();
  }
  void expect(std::span<float> receive) const override {
    for (std::size_t i = 0; i < receive.size(); ++i) receive[i] = value(peer(), i);
  }
  void mpi(const void* send, void* receive) const override {
    if (idle()) return;
    std::vector<MPI_Request> requests;
    if (receives())
      for (std::size_t i = 0; i < window_; ++i)
        MPI_Irecv(element(receive, i * count_), count(), MPI_FLOAT, peer(), tag, MPI_COMM_WORLD,
                  &requests.emplace_back());
    if (sends())
      for (std::size_t i = 0; i < window_; ++i)
        MPI_Isend(element(send, i * count_), count(), MPI_FLOAT, peer(), tag, MPI_COMM_WORLD, &requests.emplace_back());
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    acknowledge();
  }
  void by_hand(const Buffers& buffers) const override {
    if (idle()) return;
    std::vector<MPI_Request> incoming;
    std::vector<MPI_Request> outgoing;
    if (receives())
      for (std::size_t i = 0; i < window_; ++i)
        MPI_Irecv(element(static_cast<void*>(buffers.host_receive.data()), i * count_), count(), MPI_FLOAT, peer(), tag,
                  MPI_COMM_WORLD, &incoming.emplace_back());
    if (sends()) {
      for (std::size_t i = 0; i < window_; ++i) {
        to_host(buffers, i * count_, count_);
        MPI_Isend(element(static_cast<const void*>(buffers.host_send.data()), i * count_), count(), MPI_FLOAT, peer(),
                  tag, MPI_COMM_WORLD, &outgoing.emplace_back());
      }
    }
    // As they arrive, so that copies overlap with the messages behind them.
    for (std::size_t left = incoming.size(); left > 0; --left) {
      int done = 0;
      MPI_Waitany(static_cast<int>(incoming.size()), incoming.data(), &done, MPI_STATUS_IGNORE);
      to_gpu(buffers, static_cast<std::size_t>(done) * count_, count_);
    }
    MPI_Waitall(static_cast<int>(outgoing.size()), outgoing.data(), MPI_STATUSES_IGNORE);
    acknowledge();
  }
  void nccl(const Nccl& nccl, const Buffers& buffers, CUstream stream) const override {
    if (idle()) return;
    nccl.group_start();
    for (std::size_t i = 0; i < window_; ++i) {
      if (sends()) nccl.send(element(buffers.send, i * count_), count_, peer(), stream);
      if (receives()) nccl.receive(element(buffers.receive, i * count_), count_, peer(), stream);
    }
    nccl.group_end();
  }

 private:
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;  // bounds the memory, not the message

  [[nodiscard]] bool sends() const noexcept { return rank_ == 0 || (both_ && rank_ == 1); }
  [[nodiscard]] bool receives() const noexcept { return rank_ == 1 || (both_ && rank_ == 0); }

  /// One way, the sender's time must include the arrival.
  void acknowledge() const {
    if (both_) return;
    if (rank_ == 0) MPI_Recv(nullptr, 0, MPI_FLOAT, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank_ == 1) MPI_Send(nullptr, 0, MPI_FLOAT, 0, tag, MPI_COMM_WORLD);
  }

  const std::size_t window_;
  const bool both_;
};

}  // namespace

void Operation::fill(std::span<float> send) const {
  for (std::size_t i = 0; i < send.size(); ++i) send[i] = value(rank_, i);
}

void Operation::by_hand(const Buffers& buffers) const {
  to_host(buffers, 0, send_count_);
  mpi(buffers.host_send.data(), buffers.host_receive.data());
  to_gpu(buffers, 0, receive_count_);
}

std::unique_ptr<Operation> Operation::make(std::string_view name, std::size_t bytes, int rank, int ranks) {
  const std::size_t count = bytes / sizeof(float);
  if (name == "latency") return std::make_unique<Latency>(count, rank, ranks);
  if (name == "bandwidth") return std::make_unique<Stream>(count, rank, ranks, false);
  if (name == "bidirectional") return std::make_unique<Stream>(count, rank, ranks, true);
  if (name == "allreduce") return std::make_unique<AllReduce>(count, rank, ranks);
  if (name == "bcast") return std::make_unique<Bcast>(count, rank, ranks);
  if (name == "reduce") return std::make_unique<Reduce>(count, rank, ranks);
  if (name == "allgather") return std::make_unique<AllGather>(count, rank, ranks);
  if (name == "reduce_scatter") return std::make_unique<ReduceScatter>(count, rank, ranks);
  if (name == "alltoall") return std::make_unique<AllToAll>(count, rank, ranks);
  if (name == "gather") return std::make_unique<Gather>(count, rank, ranks);
  if (name == "scatter") return std::make_unique<Scatter>(count, rank, ranks);
  return nullptr;
}

}  // namespace crosslane::bench
