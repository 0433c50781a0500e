// NCCL where it is installed, opened at run time so that nobody needs it to build: the few functions that the
// benchmark compares with. It must not know the operations.
#pragma once

#include <cuda.h>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>

namespace crosslane::bench {

/// NCCL's communicator over all ranks of a communicator, one GPU each.
class Nccl {
 public:
  /// Collective. Null on every rank, with the same reason, where one rank cannot: no library, emulated GPUs, several
  /// ranks on one GPU. `path` is libnccl's file, or empty for the loader's own search.
  static std::unique_ptr<Nccl> open(const std::string& path, bool gpu_of_its_own, bool emulated, std::string& reason);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // All on float elements; reductions are sums. Each throws std::runtime_error with NCCL's message.
  void all_reduce(CUdeviceptr send, CUdeviceptr receive, std::size_t count, CUstream stream) const;
  void reduce(CUdeviceptr send, CUdeviceptr receive, std::size_t count, int root, CUstream stream) const;
  void broadcast(CUdeviceptr send, CUdeviceptr receive, std::size_t count, int root, CUstream stream) const;
  void all_gather(CUdeviceptr send, CUdeviceptr receive, std::size_t count, CUstream stream) const;
  void reduce_scatter(CUdeviceptr send, CUdeviceptr receive, std::size_t count, CUstream stream) const;
  void send(CUdeviceptr from, std::size_t count, int peer, CUstream stream) const;
  void receive(CUdeviceptr to, std::size_t count, int peer, CUstream stream) const;
  void group_start() const;
  void group_end() const;

  [[nodiscard]] int version() const noexcept { return version_; }

 private:
  friend class NcclMemory;
  // nccl.h's types, as its ABI has had them since 2.0: results and enumerations are ints, the communicator is opaque.
  struct Id {
    std::array<char, 128> bytes;
  };
  using Handle = struct ncclComm*;
  using Window = struct ncclWindow*;
  struct Functions {
    int (*get_version)(int*) = nullptr;
    const char* (*get_error_string)(int) = nullptr;
    int (*get_unique_id)(Id*) = nullptr;
    int (*comm_init_rank)(Handle*, int, Id, int) = nullptr;
    int (*comm_destroy)(Handle) = nullptr;
    int (*all_reduce)(const void*, void*, std::size_t, int, int, Handle, CUstream) = nullptr;
    int (*reduce)(const void*, void*, std::size_t, int, int, int, Handle, CUstream) = nullptr;
    int (*broadcast)(const void*, void*, std::size_t, int, int, Handle, CUstream) = nullptr;
    int (*all_gather)(const void*, void*, std::size_t, int, Handle, CUstream) = nullptr;
    int (*reduce_scatter)(const void*, void*, std::size_t, int, int, Handle, CUstream) = nullptr;
    int (*send)(const void*, std::size_t, int, int, Handle, CUstream) = nullptr;
    int (*receive)(void*, std::size_t, int, int, Handle, CUstream) = nullptr;
    int (*group_start)() = nullptr;
    int (*group_end)() = nullptr;
    // Of later releases (2.27): null where the library has none.
    int (*memory_allocate)(void**, std::size_t) = nullptr;
    int (*memory_free)(void*) = nullptr;
    int (*window_register)(Handle, void*, std::size_t, Window*, int) = nullptr;
    int (*window_deregister)(Handle, Window) = nullptr;
  };

  Nccl() = default;
  std::string load(const std::string& path);  // the reason why not; empty: loaded
  void check(int result, const char* call) const;

  Functions functions_;
  Handle comm_ = nullptr;
  int version_ = 0;
};

/// GPU memory that NCCL allocated and knows as symmetric: all ranks have as much, mapped by all. Calls between such buffers may take
/// NCCL's kernels for them.
class NcclMemory {
 public:
  /// Collective over the communicator's ranks. Null on every rank where one cannot: an older NCCL, or no memory.
  static std::unique_ptr<NcclMemory> open(const Nccl& nccl, std::size_t bytes);
  ~NcclMemory();
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;

  [[nodiscard]] CUdeviceptr address() const noexcept { return reinterpret_cast<CUdeviceptr>(memory_); }

 private:
  explicit NcclMemory(const Nccl& nccl) noexcept : nccl_(nccl) {}

  const Nccl& nccl_;
  void* memory_ = nullptr;
  Nccl::Window window_ = nullptr;
};

}  // namespace crosslane::bench
