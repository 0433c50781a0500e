// What all operations share, and those between two ranks: see operations.h.
#include "operations.h"

#include "values.h"

#include <mpi.h>

#include <algorithm>

namespace crosslane::bench {
namespace {

constexpr int tag = 1;

void to_host(const Buffers& buffers, std::size_t first, std::size_t count) {
  if (count == 0) return;
  check(cuMemcpyDtoH(buffers.host_send.data() + first * sizeof(float), element(buffers.send.address(), first),
                     count * sizeof(float)),
        "cuMemcpyDtoH");
}

void to_gpu(const Buffers& buffers, std::size_t first, std::size_t count) {
  if (count == 0) return;
  check(cuMemcpyHtoD(element(buffers.receive.address(), first), buffers.host_receive.data() + first * sizeof(float),
                     count * sizeof(float)),
        "cuMemcpyHtoD");
}

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
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    if (rank_ == 0) nccl.send(send, count_, 1, stream);
    if (!idle()) nccl.receive(receive, count_, peer(), stream);
    if (rank_ == 1) nccl.send(send, count_, 0, stream);
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
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    if (idle()) return;
    nccl.group_start();
    for (std::size_t i = 0; i < window_; ++i) {
      if (sends()) nccl.send(element(send, i * count_), count_, peer(), stream);
      if (receives()) nccl.receive(element(receive, i * count_), count_, peer(), stream);
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
  return Collective::make(name, bytes, rank, ranks, 0);
}

}  // namespace crosslane::bench
