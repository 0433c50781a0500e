// The collectives: see operations.h. In reductions elements are summed.
#include "operations.h"
#include "values.h"

#include <mpi.h>

namespace crosslane::bench {
namespace {

void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

class AllReduce : public Collective {
 public:
  AllReduce(std::size_t count, int rank, int ranks, int root) : Collective(count, rank, ranks, root) {
    send_count_ = receive_count_ = count;
  }
  void expect(std::span<float> receive) const override { expect_sums(receive, ranks_, 0); }
  void mpi(const void* send, void* receive) const override {
    MPI_Allreduce(send, receive, count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    return native.allreduce(at(send), at(receive), whole(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, stream);
  }
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    nccl.all_reduce(send, receive, count_, stream);
  }
};

class Reduce : public Collective {
 public:
  Reduce(std::size_t count, int rank, int ranks, int root) : Collective(count, rank, ranks, root) {
    send_count_ = count;
    receive_count_ = rank == root ? count : 0;
  }
  void expect(std::span<float> receive) const override { expect_sums(receive, ranks_, 0); }
  void mpi(const void* send, void* receive) const override {
    MPI_Reduce(send, receive, count(), MPI_FLOAT, MPI_SUM, root_, MPI_COMM_WORLD);
  }
  int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    return native.reduce(at(send), at(receive), whole(), MPI_FLOAT, MPI_SUM, root_, MPI_COMM_WORLD, stream);
  }
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    nccl.reduce(send, receive, count_, root_, stream);
  }
};

class Bcast : public Collective {
 public:
  Bcast(std::size_t count, int rank, int ranks, int root) : Collective(count, rank, ranks, root) {
    (rank == root ? send_count_ : receive_count_) = count;
  }
  void expect(std::span<float> receive) const override {
    for (std::size_t i = 0; i < receive.size(); ++i) receive[i] = value(root_, i);
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Bcast(rank_ == root_ ? const_cast<void*>(send) : receive, count(), MPI_FLOAT, root_, MPI_COMM_WORLD);
  }
  int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    return native.broadcast(at(rank_ == root_ ? send : receive), whole(), MPI_FLOAT, root_, MPI_COMM_WORLD, stream);
  }
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    const CUdeviceptr mine = rank_ == root_ ? send : receive;
    nccl.broadcast(mine, mine, count_, root_, stream);
  }
};

class AllGather : public Collective {
 public:
  AllGather(std::size_t count, int rank, int ranks, int root) : Collective(count, rank, ranks, root) {
    send_count_ = count;
    receive_count_ = count * static_cast<std::size_t>(ranks);
  }
  void expect(std::span<float> receive) const override {
    for (std::size_t i = 0; i < receive.size(); ++i) receive[i] = value(static_cast<int>(i / count_), i % count_);
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Allgather(send, count(), MPI_FLOAT, receive, count(), MPI_FLOAT, MPI_COMM_WORLD);
  }
  int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    return native.allgather(at(send), whole(), MPI_FLOAT, at(receive), whole(), MPI_FLOAT, MPI_COMM_WORLD, stream);
  }
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    nccl.all_gather(send, receive, count_, stream);
  }
};

class Gather : public AllGather {
 public:
  Gather(std::size_t count, int rank, int ranks, int root) : AllGather(count, rank, ranks, root) {
    if (rank != root) receive_count_ = 0;
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Gather(send, count(), MPI_FLOAT, receive, count(), MPI_FLOAT, root_, MPI_COMM_WORLD);
  }
  int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    return native.gather(at(send), whole(), MPI_FLOAT, at(receive), whole(), MPI_FLOAT, root_, MPI_COMM_WORLD, stream);
  }
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    nccl.group_start();
    nccl.send(send, count_, root_, stream);
    if (rank_ == root_)
      for (int peer = 0; peer < ranks_; ++peer)
        nccl.receive(element(receive, count_ * static_cast<std::size_t>(peer)), count_, peer, stream);
    nccl.group_end();
  }
};

class Scatter : public Collective {
 public:
  Scatter(std::size_t count, int rank, int ranks, int root) : Collective(count, rank, ranks, root) {
    send_count_ = rank == root ? count * static_cast<std::size_t>(ranks) : 0;
    receive_count_ = count;
  }
  void expect(std::span<float> receive) const override {
    for (std::size_t i = 0; i < receive.size(); ++i)
      receive[i] = value(root_, count_ * static_cast<std::size_t>(rank_) + i);
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Scatter(send, count(), MPI_FLOAT, receive, count(), MPI_FLOAT, root_, MPI_COMM_WORLD);
  }
  int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    return native.scatter(at(send), whole(), MPI_FLOAT, at(receive), whole(), MPI_FLOAT, root_, MPI_COMM_WORLD, stream);
  }
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    nccl.group_start();
    if (rank_ == root_)
      for (int peer = 0; peer < ranks_; ++peer)
        nccl.send(element(send, count_ * static_cast<std::size_t>(peer)), count_, peer, stream);
    nccl.receive(receive, count_, root_, stream);
    nccl.group_end();
  }
};

class AllToAll : public Collective {
 public:
  AllToAll(std::size_t count, int rank, int ranks, int root) : Collective(count, rank, ranks, root) {
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
  int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    return native.alltoall(at(send), whole(), MPI_FLOAT, at(receive), whole(), MPI_FLOAT, MPI_COMM_WORLD, stream);
  }
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    nccl.group_start();
    for (int peer = 0; peer < ranks_; ++peer) {
      const std::size_t block = count_ * static_cast<std::size_t>(peer);
      nccl.send(element(send, block), count_, peer, stream);
      nccl.receive(element(receive, block), count_, peer, stream);
    }
    nccl.group_end();
  }
};

class ReduceScatter : public Collective {
 public:
  ReduceScatter(std::size_t count, int rank, int ranks, int root) : Collective(count, rank, ranks, root) {
    send_count_ = count * static_cast<std::size_t>(ranks);
    receive_count_ = count;
  }
  void expect(std::span<float> receive) const override {
    expect_sums(receive, ranks_, count_ * static_cast<std::size_t>(rank_));
  }
  void mpi(const void* send, void* receive) const override {
    MPI_Reduce_scatter_block(send, receive, count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  int enqueue(const Native& native, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    return native.reduce_scatter(at(send), at(receive), whole(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, stream);
  }
  void nccl(const Nccl& nccl, CUdeviceptr send, CUdeviceptr receive, CUstream stream) const override {
    nccl.reduce_scatter(send, receive, count_, stream);
  }
};

}  // namespace

std::unique_ptr<Collective> Collective::make(std::string_view name, std::size_t bytes, int rank, int ranks, int root) {
  const std::size_t count = bytes / sizeof(float);
  if (name == "allreduce") return std::make_unique<AllReduce>(count, rank, ranks, root);
  if (name == "bcast") return std::make_unique<Bcast>(count, rank, ranks, root);
  if (name == "reduce") return std::make_unique<Reduce>(count, rank, ranks, root);
  if (name == "allgather") return std::make_unique<AllGather>(count, rank, ranks, root);
  if (name == "reduce_scatter") return std::make_unique<ReduceScatter>(count, rank, ranks, root);
  if (name == "alltoall") return std::make_unique<AllToAll>(count, rank, ranks, root);
  if (name == "gather") return std::make_unique<Gather>(count, rank, ranks, root);
  if (name == "scatter") return std::make_unique<Scatter>(count, rank, ranks, root);
  return nullptr;
}

}  // namespace crosslane::bench
