// What a kernel functor sees of the machine: its block of threads, memory, flags. On the GPU it costs nothing; under
// emulation loads and stores translate device addresses, and one CPU thread plays a block's threads one after another.
// Functors are written once over the concept Block; this file alone knows whether a GPU compiler reads it.
#pragma once

#include <concepts>
#include <cstdint>

#if !defined(__CUDACC__)
#include "gpu/emulated/image.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#endif

// Marks what runs inside kernels.
#if defined(__CUDACC__)
#define CROSSLANE_DEVICE __device__ __forceinline__
#else
#define CROSSLANE_DEVICE inline
#endif

namespace crosslane::kernel {

/// Sixteen bytes: the widest load and store.
struct alignas(16) Word16 {
  std::uint64_t low, high;
};

/// How long a wait may last. `abort` (may be null) points to a word that ends it when it is not zero: what a watchdog
/// or a failed peer sets.
struct WaitLimit {
  std::uint64_t nanoseconds;
  const std::uint32_t* abort;
};

// Flags carry epochs, 64-bit numbers that only grow, so nothing is ever reset.
//
//   flag       who writes it                  what an observer of it may read
//   < epoch    earlier epochs' signal         nothing of this epoch
//   >= epoch   signal(flag, epoch), once its  all that the signalling block's threads wrote before it
//              block's threads wrote their part
//
// signal: barrier (all threads' writes are before the next step), then thread 0 stores with release at system scope;
// the fence before it makes the other threads' writes part of what is released. wait: thread 0 loads with acquire at
// system scope, then a barrier hands what it has seen to the block's other threads.

namespace detail {
// What for_each takes, in the concept: lambdas are not understood there by all compilers.
struct AnyItem {
  CROSSLANE_DEVICE void operator()(std::uint64_t) const {}
};
struct AnyGroup {
  CROSSLANE_DEVICE void operator()(std::uint64_t, std::uint64_t, std::uint64_t) const {}
};
}  // namespace detail

/// Threads count from 0 to size() - 1 in a block; blocks from 0 to count() - 1 in the grid.
template <class B>
concept Block = requires(const B block, std::uint64_t n, std::uint32_t* word, std::uint64_t* flag, WaitLimit limit) {
  { block.index() } -> std::same_as<std::uint64_t>;
  { block.count() } -> std::same_as<std::uint64_t>;
  { block.rank() } -> std::same_as<std::uint64_t>;
  { block.size() } -> std::same_as<std::uint64_t>;
  block.barrier();
  block.for_each(n, detail::AnyItem{});            // [0, n) shared by this block's threads
  block.for_each_in_grid(n, detail::AnyItem{});    // [0, n) shared by all threads of the grid
  block.for_each_group(n, n, detail::AnyGroup{});  // by groups of so many threads
  { block.load(word) } -> std::same_as<std::uint32_t>;
  block.store(word, std::uint32_t{});
  block.copy(word, word, n, n, n);
  block.signal(flag, n);
  { block.wait(flag, n, limit) } -> std::same_as<bool>;
};

#if defined(__CUDACC__)

class GpuBlock {
 public:
  CROSSLANE_DEVICE std::uint64_t index() const { return blockIdx.x; }
  CROSSLANE_DEVICE std::uint64_t count() const { return gridDim.x; }
  CROSSLANE_DEVICE std::uint64_t rank() const { return threadIdx.x; }
  CROSSLANE_DEVICE std::uint64_t size() const { return blockDim.x; }
  CROSSLANE_DEVICE void barrier() const { __syncthreads(); }

  template <class F>
  CROSSLANE_DEVICE void for_each(std::uint64_t n, F f) const {
    for (std::uint64_t i = rank(); i < n; i += size()) f(i);
  }
  template <class F>
  CROSSLANE_DEVICE void for_each_in_grid(std::uint64_t n, F f) const {
    for (std::uint64_t i = index() * size() + rank(); i < n; i += count() * size()) f(i);
  }
  /// f(item, lane, lanes); `lanes` divides the block's size.
  template <class F>
  CROSSLANE_DEVICE void for_each_group(std::uint64_t n, std::uint64_t lanes, F f) const {
    const std::uint64_t thread = index() * size() + rank();
    const std::uint64_t step = count() * size() / lanes;
    for (std::uint64_t i = thread / lanes; i < n; i += step) f(i, thread % lanes, lanes);
  }

  template <class T>
  CROSSLANE_DEVICE T load(const T* from) const {
    return *from;
  }
  template <class T>
  CROSSLANE_DEVICE void store(T* to, T value) const {
    *to = value;
  }
  /// Words first, first + step, ... below n. Loads run ahead of stores, so that several are in flight.
  template <class T>
  CROSSLANE_DEVICE void copy(T* to, const T* from, std::uint64_t n, std::uint64_t first, std::uint64_t step) const {
    std::uint64_t i = first;
    for (; i + 3 * step < n; i += 4 * step) {
      const T a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
      to[i] = a;
      to[i + step] = b;
      to[i + 2 * step] = c;
      to[i + 3 * step] = d;
    }
    for (; i < n; i += step) to[i] = from[i];
  }

  CROSSLANE_DEVICE void signal(std::uint64_t* flag, std::uint64_t epoch) const {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(epoch) : "memory");
    }
  }

  /// False if the limit was reached before the flag. All threads of the block get the same answer.
  CROSSLANE_DEVICE bool wait(const std::uint64_t* flag, std::uint64_t epoch, WaitLimit limit) const {
    __shared__ int reached;
    if (threadIdx.x == 0) {
      const std::uint64_t start = now();
      reached = 1;
      while (static_cast<std::int64_t>(acquire(flag) - epoch) < 0) {
        const bool aborted = limit.abort != nullptr && *const_cast<const volatile std::uint32_t*>(limit.abort) != 0;
        if (aborted || now() - start > limit.nanoseconds) {
          reached = 0;
          break;
        }
      }
    }
    __syncthreads();
    const bool result = reached != 0;
    __syncthreads();  // before the next wait writes `reached` again
    return result;
  }

 private:
  CROSSLANE_DEVICE static std::uint64_t acquire(const std::uint64_t* flag) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
  }
  CROSSLANE_DEVICE static std::uint64_t now() {
    std::uint64_t nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
  }
};
static_assert(Block<GpuBlock>);

#else

class EmulatedBlock {
 public:
  explicit EmulatedBlock(const gpu::EmulatedLaunch& launch) noexcept : launch_(launch) {}

  std::uint64_t index() const { return launch_.block_index[0]; }
  std::uint64_t count() const { return launch_.grid[0]; }
  std::uint64_t rank() const { return 0; }
  std::uint64_t size() const { return 1; }
  void barrier() const {}

  template <class F>
  void for_each(std::uint64_t n, F f) const {
    for (std::uint64_t i = 0; i < n; ++i) f(i);
  }
  template <class F>
  void for_each_in_grid(std::uint64_t n, F f) const {
    for (std::uint64_t i = index(); i < n; i += count()) f(i);
  }
  template <class F>
  void for_each_group(std::uint64_t n, std::uint64_t /*lanes*/, F f) const {
    for (std::uint64_t i = index(); i < n; i += count()) f(i, std::uint64_t{0}, std::uint64_t{1});
  }

  template <class T>
  T load(const T* from) const {
    T value;
    std::memcpy(&value, here(from), sizeof(T));
    return value;
  }
  template <class T>
  void store(T* to, T value) const {
    std::memcpy(here(to), &value, sizeof(T));
  }
  template <class T>
  void copy(T* to, const T* from, std::uint64_t n, std::uint64_t first, std::uint64_t step) const {
    if (first == 0 && step == 1) {
      if (n != 0) std::memcpy(here(to), here(from), n * sizeof(T));
      return;
    }
    for (std::uint64_t i = first; i < n; i += step) store(to + i, load(from + i));
  }

  void signal(std::uint64_t* flag, std::uint64_t epoch) const {
    std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(here(flag))).store(epoch, std::memory_order_release);
  }

  bool wait(const std::uint64_t* flag, std::uint64_t epoch, WaitLimit limit) const {
    const std::atomic_ref<std::uint64_t> word(*static_cast<std::uint64_t*>(here(flag)));
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit.nanoseconds);
    while (static_cast<std::int64_t>(word.load(std::memory_order_acquire) - epoch) < 0) {
      if (launch_.aborted() || std::chrono::steady_clock::now() > end) return false;
      if (limit.abort != nullptr) {
        const std::atomic_ref<std::uint32_t> abort(*static_cast<std::uint32_t*>(here(limit.abort)));
        if (abort.load(std::memory_order_relaxed) != 0) return false;
      }
      std::this_thread::yield();  // the block that signals may need this core
    }
    return true;
  }

 private:
  void* here(const void* address) const { return launch_.translate(reinterpret_cast<std::uintptr_t>(address)); }

  const gpu::EmulatedLaunch& launch_;
};
static_assert(Block<EmulatedBlock>);

#endif

}  // namespace crosslane::kernel
