// What a kernel functor sees of the machine: its block of threads, memory, flags. On the GPU it costs nothing; under
// emulation loads and stores translate device addresses, and one CPU thread plays a block's threads one after another.
// Functors are written once over the concept Block; this file alone knows whether a GPU compiler reads it.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>

#if !defined(__CUDACC__)
#include "gpu/emulated/image.h"

#include <atomic>
#include <bit>
#include <chrono>
#include <thread>
#endif

// Marks what runs inside kernels; and what stays a function of its own there, shared by kernels, because it is long and
// its speed does not matter. CROSSLANE_ROLLED stands before a loop of few rounds that is not to be unrolled, CROSSLANE_UNROLLED before one
// that must be, for what it indexes is to stay in registers.
#if defined(__CUDACC__)
#define CROSSLANE_DEVICE __device__ __forceinline__
#define CROSSLANE_DEVICE_CALL static __device__ __noinline__
#define CROSSLANE_ROLLED _Pragma("unroll 1")
#define CROSSLANE_UNROLLED _Pragma("unroll")
#else
#define CROSSLANE_DEVICE inline
#define CROSSLANE_DEVICE_CALL inline
#define CROSSLANE_ROLLED
#define CROSSLANE_UNROLLED
#endif

namespace crosslane::kernel {

/// Sixteen bytes: the widest load and store. As a packet (load_packet) each half is atomic by itself.
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
//
// post and reach are the same for one thread: between barriers, several threads may each serve a flag of their own. What
// post releases is what its thread wrote or saw through a barrier (release is cumulative); what reach acquires goes to
// the block's other threads with the next barrier. What launches before this one stored into their own GPU's memory needs no
// release: it is at rest there, where peers read it, too; so who has stored nothing yet announces instead, which does not wait for a
// fence. A GPU's acquire also drops the SM's cached lines, so that plain loads
// after it see what the flag vouches for, even of lines that were read before.

/// Sixteen-bit reals: IEEE 754's binary16, and the upper half of a float.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

namespace detail {
// What for_each takes, in the concept: lambdas are not understood there by all compilers.
struct AnyItem {
  CROSSLANE_DEVICE bool operator()(std::uint64_t) const { return true; }
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
  block.uncached().load(word);  // the same block, but what it loads is what is in memory now
  { block.template shared<std::uint64_t>() } -> std::same_as<std::uint64_t*>;
  block.for_each(n, detail::AnyItem{});            // [0, n) shared by this block's threads
  block.for_each_in_grid(n, detail::AnyItem{});    // [0, n) shared by all threads of the grid
  block.for_each_group(n, n, detail::AnyGroup{});  // by groups of so many threads
  { block.load(word) } -> std::same_as<std::uint32_t>;
  block.store(word, std::uint32_t{});
  block.copy(word, word, n, n, n);
  block.copy_pairs(static_cast<Word16*>(nullptr), flag, n, n, n);
  block.signal(flag, n);
  { block.wait(flag, n, limit) } -> std::same_as<bool>;
  // By the calling thread alone.
  block.post(flag, n);
  block.announce(flag, n);  // post, but of what went before in this launch nothing is released
  { block.reached(flag, n) } -> std::same_as<bool>;
  { block.patience(limit).over() } -> std::same_as<bool>;   // asked once a poll
  { block.load_now(flag) } -> std::same_as<std::uint64_t>;  // what is there at this moment, ordering nothing
  block.store_now(flag, n);
  block.store_and_fence(flag, n);                    // what is loaded behind it is no older; sequentially consistent
  { block.alarm(n).rings() } -> std::same_as<bool>;  // once so many nanoseconds have gone by since the first question
  { block.add(flag, n) } -> std::same_as<std::uint64_t>;      // acquire and release within the grid; the value before
  { block.add_now(flag, n) } -> std::same_as<std::uint64_t>;  // the same, but it orders nothing
  // Words that peers poll: each half is atomic, and orders nothing on a GPU.
  { block.load_packet(static_cast<const Word16*>(nullptr)) } -> std::same_as<Word16>;
  block.store_packet(static_cast<Word16*>(nullptr), Word16{});
  // This thread's part of a line of 128 bytes, of which its seven neighbours store or load the others at once, and the line's last word.
  block.store_line(static_cast<Word16*>(nullptr), Word16{});
  { block.line_flag(block.load_line(static_cast<const Word16*>(nullptr))) } -> std::same_as<std::uint64_t>;
  { block.template any<8>(true) } -> std::same_as<bool>;  // of so many neighbouring threads that do the same
  // [0, n) shared by this block's threads; a barrier; true to all of them if it was for each.
  { block.all_of(n, detail::AnyItem{}) } -> std::same_as<bool>;
};

#if defined(__CUDACC__)

CROSSLANE_DEVICE float to_float(Float16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
CROSSLANE_DEVICE float to_float(BFloat16 value) { return __uint_as_float(std::uint32_t{value.bits} << 16); }
/// To nearest, ties to even; NaN stays NaN.
template <class T>
CROSSLANE_DEVICE T from_float(float value) {
  T result;
  if constexpr (std::same_as<T, Float16>) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  } else {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  }
  return result;
}

/// Byte `index` of a number. By a permutation, as ptxas (of CUDA 13.0) makes one more conversion of a store of the low
/// byte of what was just converted to half precision: of 121.3, which is 0x5795, it stores 121, which is 0x79.
CROSSLANE_DEVICE std::uint8_t byte_of(std::uint16_t number, unsigned index) {
  return static_cast<std::uint8_t>(__byte_perm(number, 0, 0x4440 + index));
}

/// How long one thread goes on polling. Time and abort word are looked at only once in many polls: reading host memory
/// takes longer than a flag takes to come. And it takes a microsecond for each who reads, one after the other: so of a
/// grid that waits hardly anyone looks at the abort word at a time, and the others see what that one makes of it.
/// (Measured on two H200: with 64 blocks that looked together, every 128 polls, a wait of 50 us took 105, with 128 175.)
class GpuPatience {
 public:
  CROSSLANE_DEVICE explicit GpuPatience(WaitLimit limit) : limit_(limit) {}

  CROSSLANE_DEVICE bool over() {
    if ((++polls_ & 127) != 0) return false;
    if (limit_.abort != nullptr && is_turn() && *const_cast<const volatile std::uint32_t*>(limit_.abort) != 0)
      return true;
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (polls_ == 128) start_ = now;
    return now - start_ > limit_.nanoseconds;
  }
  /// True when over() has just looked at the clock: the moment for other things that are rarely so.
  CROSSLANE_DEVICE bool looked() const { return (polls_ & 127) == 0; }

 private:
  // Once in 256 looks, some ten milliseconds, of each thread that waits.
  CROSSLANE_DEVICE bool is_turn() const { return (((polls_ >> 7) + blockIdx.x + 37 * threadIdx.x) & 255) == 0; }

  WaitLimit limit_;
  std::uint64_t polls_ = 0, start_ = 0;
};

/// The clock, looked at with each question: for who asks rarely.
class GpuAlarm {
 public:
  CROSSLANE_DEVICE explicit GpuAlarm(std::uint64_t nanoseconds) : nanoseconds_(nanoseconds) {}
  CROSSLANE_DEVICE bool rings() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (start_ == 0) start_ = now;
    return now - start_ >= nanoseconds_;
  }

 private:
  std::uint64_t nanoseconds_, start_ = 0;
};

namespace detail {
/// So many bytes, in the low ones of what it returns.
template <unsigned bytes>
CROSSLANE_DEVICE auto load_strongly(const void* from) {
  if constexpr (bytes == 16) {
    Word16 value;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(value.low), "=l"(value.high)
                 : "l"(from)
                 : "memory");
    return value;
  } else if constexpr (bytes == 8) {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  } else if constexpr (bytes == 4) {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  } else if constexpr (bytes == 2) {
    std::uint16_t value;
    asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(value) : "l"(from) : "memory");
    return value;
  } else {
    static_assert(bytes == 1);
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
}
}  // namespace detail

/// `cached`: loads may come from the multiprocessor's cache, which knows nothing of what others store, until a launch begins or this block
/// acquires something.
template <bool cached>
class GpuBlockOf {
 public:
  CROSSLANE_DEVICE GpuBlockOf<false> uncached() const { return {}; }

  CROSSLANE_DEVICE std::uint64_t index() const { return blockIdx.x; }
  CROSSLANE_DEVICE std::uint64_t count() const { return gridDim.x; }
  CROSSLANE_DEVICE std::uint64_t rank() const { return threadIdx.x; }
  CROSSLANE_DEVICE std::uint64_t size() const { return blockDim.x; }
  CROSSLANE_DEVICE void barrier() const { __syncthreads(); }
  /// The block's own memory, as large as the launch asked for.
  template <class T>
  CROSSLANE_DEVICE T* shared() const {
    extern __shared__ __align__(16) unsigned char crosslane_shared[];
    return reinterpret_cast<T*>(crosslane_shared);
  }

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
    if constexpr (cached) {
      return *from;
    } else {
      static_assert(alignof(T) == sizeof(T), "one load gets all of it");
      const auto bits = detail::load_strongly<sizeof(T)>(from);
      T value;
      std::memcpy(&value, &bits, sizeof(T));
      return value;
    }
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
      const T a = load(from + i), b = load(from + i + step), c = load(from + i + 2 * step),
              d = load(from + i + 3 * step);
      to[i] = a;
      to[i + step] = b;
      to[i + 2 * step] = c;
      to[i + 3 * step] = d;
    }
    for (; i < n; i += step) to[i] = load(from + i);
  }

  /// The same from words of 8 bytes that are not aligned to 16: a word of 16 is stored of each two. The second load of the two finds its
  /// sector in the cache, and half as many stores leave more of memory's rate.
  CROSSLANE_DEVICE void copy_pairs(Word16* to, const std::uint64_t* from, std::uint64_t n, std::uint64_t first,
                                   std::uint64_t step) const {
    const auto pair = [&](std::uint64_t i) { return Word16{load(from + 2 * i), load(from + 2 * i + 1)}; };
    std::uint64_t i = first;
    for (; i + 3 * step < n; i += 4 * step) {
      const Word16 a = pair(i), b = pair(i + step), c = pair(i + 2 * step), d = pair(i + 3 * step);
      to[i] = a;
      to[i + step] = b;
      to[i + 2 * step] = c;
      to[i + 3 * step] = d;
    }
    for (; i < n; i += step) to[i] = pair(i);
  }

  CROSSLANE_DEVICE void signal(std::uint64_t* flag, std::uint64_t epoch) const {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      post(flag, epoch);
    }
  }

  /// False if the limit was reached before the flag. All threads of the block get the same answer.
  CROSSLANE_DEVICE bool wait(const std::uint64_t* flag, std::uint64_t epoch, WaitLimit limit) const {
    return all_of(1, [&](std::uint64_t) {
      GpuPatience mine(limit);
      while (!reached(flag, epoch)) {
        if (mine.over()) return false;
      }
      return true;
    });
  }

  CROSSLANE_DEVICE void post(std::uint64_t* flag, std::uint64_t epoch) const {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(epoch) : "memory");
  }
  CROSSLANE_DEVICE void announce(std::uint64_t* flag, std::uint64_t epoch) const { store_now(flag, epoch); }
  CROSSLANE_DEVICE bool reached(const std::uint64_t* flag, std::uint64_t epoch) const {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value >= epoch;
  }
  CROSSLANE_DEVICE GpuPatience patience(WaitLimit limit) const { return GpuPatience(limit); }
  CROSSLANE_DEVICE GpuAlarm alarm(std::uint64_t nanoseconds) const { return GpuAlarm(nanoseconds); }

  CROSSLANE_DEVICE std::uint64_t load_now(const std::uint64_t* from) const {
    return detail::load_strongly<sizeof(std::uint64_t)>(from);
  }
  CROSSLANE_DEVICE void store_now(std::uint64_t* to, std::uint64_t value) const {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  CROSSLANE_DEVICE void store_and_fence(std::uint64_t* to, std::uint64_t value) const {
    store_now(to, value);
    asm volatile("fence.sc.sys;" ::: "memory");
  }
  CROSSLANE_DEVICE std::uint64_t add(std::uint64_t* to, std::uint64_t value) const {
    std::uint64_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(to), "l"(value) : "memory");
    return before;
  }
  CROSSLANE_DEVICE std::uint64_t add_now(std::uint64_t* to, std::uint64_t value) const {
    std::uint64_t before;
    asm volatile("atom.add.relaxed.gpu.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(to), "l"(value) : "memory");
    return before;
  }

  CROSSLANE_DEVICE Word16 load_packet(const Word16* from) const {
    Word16 word;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(word.low), "=l"(word.high) : "l"(from));
    return word;
  }
  CROSSLANE_DEVICE void store_packet(Word16* to, Word16 word) const {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(word.low), "l"(word.high) : "memory");
  }

  struct LinePart {
    Word16 word;
  };
  // By one instruction, whatever parted the eight before: apart, the flag's thread could be ahead of the data's. A warp's threads go on together
  // from such a place on all GPUs there are, though PTX does not promise it.
  CROSSLANE_DEVICE void store_line(Word16* to, Word16 part) const {
    __syncwarp(neighbours(8));
    store_packet(to, part);
  }
  CROSSLANE_DEVICE LinePart load_line(const Word16* from) const {
    __syncwarp(neighbours(8));
    return {load_packet(from)};
  }
  CROSSLANE_DEVICE std::uint64_t line_flag(const LinePart& part) const {
    return __shfl_sync(neighbours(8), part.word.high, 7, 8);
  }
  template <unsigned threads>
  CROSSLANE_DEVICE bool any(bool mine) const {
    if constexpr (threads == 1) {
      return mine;
    } else {
      return __any_sync(neighbours(threads), mine ? 1 : 0) != 0;
    }
  }

  template <class F>
  CROSSLANE_DEVICE bool all_of(std::uint64_t n, F f) const {
    bool mine = true;
    for (std::uint64_t i = rank(); i < n; i += size()) mine = f(i) && mine;
    return __syncthreads_and(mine ? 1 : 0) != 0;
  }

 private:
  // The lanes of this thread's warp that are in its group of so many, at most 16.
  CROSSLANE_DEVICE static unsigned neighbours(unsigned threads) {
    return ((1U << threads) - 1) << (threadIdx.x % 32 / threads * threads);
  }
};
using GpuBlock = GpuBlockOf<true>;
static_assert(Block<GpuBlock> && Block<GpuBlockOf<false>>);

#else

inline float to_float(BFloat16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }
inline float to_float(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16, exponent = value.bits >> 10 & 31U,
                      digits = value.bits & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | digits << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | digits << 13);
  const float magnitude = static_cast<float>(digits) * 0x1p-24F;  // subnormal: exact
  return sign != 0 ? -magnitude : magnitude;
}
/// To nearest, ties to even. NaN becomes the one that GPUs give.
template <class T>
T from_float(float value) {
  constexpr bool half = std::same_as<T, Float16>;
  const auto raw = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = raw & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {0x7fff};
  const auto sign = static_cast<std::uint16_t>(raw >> 16 & 0x8000U);
  const auto rounded = [](std::uint32_t number, unsigned away) {  // ties to even
    return (number + (number >> away & 1U) + (1U << (away - 1)) - 1) >> away;
  };
  if constexpr (!half) return {static_cast<std::uint16_t>(sign | rounded(magnitude, 16))};
  if (magnitude >= 0x47800000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // 65536 and beyond
  if (magnitude >= 0x38800000U) return {static_cast<std::uint16_t>(sign | rounded(magnitude - 0x38000000U, 13))};
  // Subnormal: in units of 2^-24. Adding 2^-1 leaves room for exactly these digits, rounded as the CPU rounds.
  const float sum = std::bit_cast<float>(magnitude) + 0.5F;
  return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000U))};
}

inline std::uint8_t byte_of(std::uint16_t number, unsigned index) {
  return static_cast<std::uint8_t>(number >> 8 * index);
}

class EmulatedPatience {
 public:
  EmulatedPatience(const gpu::EmulatedLaunch& launch, const std::uint32_t* abort, std::uint64_t nanoseconds) noexcept
      : launch_(launch),
        abort_(abort),
        end_(std::chrono::steady_clock::now() +
             std::chrono::nanoseconds(nanoseconds < forever ? nanoseconds : forever)) {}

  bool over() const {
    if (launch_.aborted() || std::chrono::steady_clock::now() > end_) return true;
    // The abort word is read-only here; what atomic_ref takes is not.
    if (abort_ != nullptr && std::atomic_ref(*const_cast<std::uint32_t*>(abort_)).load(std::memory_order_relaxed) != 0)
      return true;
    rest();
    return false;
  }
  [[nodiscard]] bool looked() const noexcept { return true; }

 private:
  // Who ends the wait may need this core; and among many that wait a yield leads from one to the next.
  void rest() const {
    constexpr unsigned yields = 64;
    if (++rests_ < yields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  static constexpr std::uint64_t forever = std::uint64_t{1} << 61;
  mutable unsigned rests_ = 0;
  const gpu::EmulatedLaunch& launch_;
  const std::uint32_t* abort_;
  std::chrono::steady_clock::time_point end_;
};

class EmulatedAlarm {
 public:
  EmulatedAlarm(const gpu::EmulatedLaunch& launch, std::uint64_t nanoseconds) noexcept
      : patience_(launch, nullptr, nanoseconds) {}
  [[nodiscard]] bool rings() const { return patience_.over(); }

 private:
  EmulatedPatience patience_;
};

class EmulatedBlock {
 public:
  explicit EmulatedBlock(const gpu::EmulatedLaunch& launch) noexcept : launch_(launch) {}
  const EmulatedBlock& uncached() const { return *this; }

  std::uint64_t index() const { return launch_.block_index[0]; }
  std::uint64_t count() const { return launch_.grid[0]; }
  std::uint64_t rank() const { return 0; }
  std::uint64_t size() const { return 1; }
  void barrier() const {}
  template <class T>
  T* shared() const {
    return static_cast<T*>(launch_.shared);
  }

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

  void copy_pairs(Word16* to, const std::uint64_t* from, std::uint64_t n, std::uint64_t first,
                  std::uint64_t step) const {
    for (std::uint64_t i = first; i < n; i += step) store(to + i, Word16{load(from + 2 * i), load(from + 2 * i + 1)});
  }

  void signal(std::uint64_t* flag, std::uint64_t epoch) const { post(flag, epoch); }

  bool wait(const std::uint64_t* flag, std::uint64_t epoch, WaitLimit limit) const {
    const auto mine = patience(limit);
    while (!reached(flag, epoch))
      if (mine.over()) return false;
    return true;
  }

  void post(std::uint64_t* flag, std::uint64_t epoch) const { word(flag).store(epoch, std::memory_order_release); }
  // A release, too: launches before it left what they stored in a CPU's caches.
  void announce(std::uint64_t* flag, std::uint64_t epoch) const { post(flag, epoch); }
  bool reached(const std::uint64_t* flag, std::uint64_t epoch) const {
    return word(flag).load(std::memory_order_acquire) >= epoch;
  }
  EmulatedPatience patience(WaitLimit limit) const {
    return {launch_, static_cast<const std::uint32_t*>(here(limit.abort)), limit.nanoseconds};
  }

  EmulatedAlarm alarm(std::uint64_t nanoseconds) const { return {launch_, nanoseconds}; }

  std::uint64_t load_now(const std::uint64_t* from) const { return word(from).load(std::memory_order_relaxed); }
  void store_now(std::uint64_t* to, std::uint64_t value) const { word(to).store(value, std::memory_order_relaxed); }
  // On a CPU the exchange is the fence: no load behind it goes ahead of it.
  void store_and_fence(std::uint64_t* to, std::uint64_t value) const {
    word(to).exchange(value, std::memory_order_seq_cst);
  }
  std::uint64_t add(std::uint64_t* to, std::uint64_t value) const {
    return word(to).fetch_add(value, std::memory_order_acq_rel);
  }
  std::uint64_t add_now(std::uint64_t* to, std::uint64_t value) const {
    return word(to).fetch_add(value, std::memory_order_relaxed);
  }

  // Acquire and release here, where a GPU's are relaxed: what a kernel's end orders there, a CPU must be told.
  Word16 load_packet(const Word16* from) const {
    return {word(&from->low).load(std::memory_order_acquire), word(&from->high).load(std::memory_order_acquire)};
  }
  void store_packet(Word16* to, Word16 value) const {
    word(&to->low).store(value.low, std::memory_order_release);
    word(&to->high).store(value.high, std::memory_order_release);
  }

  // The flag is looked at before what it vouches for; on a GPU both come in one load.
  struct LinePart {
    Word16 word;
    std::uint64_t flag;
  };
  void store_line(Word16* to, Word16 part) const { store_packet(to, part); }
  LinePart load_line(const Word16* from) const {
    const auto* const line = reinterpret_cast<const Word16*>(reinterpret_cast<std::uintptr_t>(from) / 128 * 128);
    const std::uint64_t flag = load_packet(line + 7).high;
    return {load_packet(from), flag};
  }
  std::uint64_t line_flag(const LinePart& part) const { return part.flag; }
  template <unsigned threads>
  bool any(bool mine) const {
    return mine;
  }

  template <class F>
  bool all_of(std::uint64_t n, F f) const {
    bool all = true;
    for (std::uint64_t i = 0; i < n; ++i) all = f(i) && all;
    return all;
  }

 private:
  void* here(const void* address) const { return launch_.translate(reinterpret_cast<std::uintptr_t>(address)); }
  std::atomic_ref<std::uint64_t> word(const std::uint64_t* address) const {
    return std::atomic_ref(*static_cast<std::uint64_t*>(here(address)));
  }

  const gpu::EmulatedLaunch& launch_;
};
static_assert(Block<EmulatedBlock>);

#endif

}  // namespace crosslane::kernel
