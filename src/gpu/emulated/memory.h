// The emulated GPUs' memory. Device addresses lie in one reserved range that is never mapped, so that a CPU touch
// faults; the driver works through a shadow of that range at a constant distance. Behind both is one unnamed memfd a
// GPU and process, which other processes open through /proc: nothing is left behind however a process ends.
//
// Where memory is: device address a -> CPU address a + distance, for every a in the reserved range, mapped or not.
// What exists: the registry, one Range an allocation. Freed pages go back to the system and fault in both ranges.
#pragma once

#include "gpu/emulated/state.h"

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <shared_mutex>

namespace crosslane::gpu::emulated {

using Address = std::uint64_t;

// No smaller than the system's pages anywhere.
#if defined(__x86_64__)
inline constexpr std::size_t page = 4096;
#else
inline constexpr std::size_t page = 65536;
#endif
inline constexpr std::size_t granule = std::size_t{2} << 20;  // of virtual memory management, as on GPUs

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

struct Range {
  enum class Kind { device, pool, imported, mapped, pinned, registered, managed };
  Address base = 0;
  std::size_t size = 0;  // as asked for
  Kind kind = Kind::device;
  Device* device = nullptr;
  CUcontext context = nullptr;  // null for pools and virtual memory management
  std::uint64_t buffer_id = 0;
  unsigned flags = 0;    // of cuMemHostAlloc, cuMemHostRegister
  bool writable = true;  // cuMemSetAccess
  bool readable = true;

  [[nodiscard]] bool on_gpu() const {
    return kind == Kind::device || kind == Kind::pool || kind == Kind::imported || kind == Kind::mapped;
  }
};

/// Free pieces of a stretch of addresses or of a file; first fit, so that addresses come back soon, as on a GPU.
class Pieces {
 public:
  void reset(std::uint64_t begin, std::uint64_t end) { free_ = {{begin, end}}; }
  std::optional<std::uint64_t> take(std::size_t bytes, std::size_t alignment);
  /// Takes exactly [begin, begin + bytes) if it is free.
  bool take_at(std::uint64_t begin, std::size_t bytes);
  void give_back(std::uint64_t begin, std::size_t bytes);

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // begin -> end
};

class Memory {
 public:
  /// Reserves the addresses for the state's devices.
  void initialize();

  [[nodiscard]] bool in_device_space(Address address) const { return address - base_ < size_; }
  /// The CPU's address of a device address; other addresses are the CPU's already.
  [[nodiscard]] void* cpu(Address address) const {
    return reinterpret_cast<void*>(in_device_space(address) ? address + distance_ : address);
  }

  Address allocate(Device& device, std::size_t bytes, Range::Kind kind, CUcontext context);
  Address allocate_host(std::size_t bytes, Range::Kind kind, unsigned flags, CUctx_st& context);
  void register_host(Address begin, std::size_t bytes, unsigned flags, CUctx_st& context);
  /// Frees an allocation of one of `kinds` that starts at `base`; throws Failure where there is none.
  void free(Address base, std::initializer_list<Range::Kind> kinds);
  /// Frees all that was allocated in a context.
  void free_all_of(CUcontext context);

  /// The range that holds the address.
  [[nodiscard]] std::optional<Range> find(Address address) const;
  /// The range that starts here.
  [[nodiscard]] std::optional<Range> find_base(Address base) const;
  void change(Address base, const std::function<void(Range&)>& edit);

  /// Throws INVALID_VALUE unless [address, address + bytes) is all memory that the driver knows (`known`), or at least
  /// none of freed device memory. Ordinary host memory is not checked.
  void check(Address address, std::size_t bytes, bool must_be_known) const;

  /// Addresses and mappings outside the GPUs' own arenas: opened handles and virtual memory management.
  Address reserve(std::size_t bytes, std::size_t alignment, Address wanted = 0);
  void unreserve(Address begin, std::size_t bytes);
  /// Maps a file's bytes at a reserved address and registers the range.
  void map(const Range& range, int file, std::size_t file_offset);
  void unmap(Address base);
  void protect(Address begin, std::size_t bytes, bool readable, bool writable);

  /// Where an allocation lies in its GPU's file, for handles.
  struct Place {
    int file;
    std::size_t offset, bytes;
    std::uint64_t buffer_id;
  };
  [[nodiscard]] Place place(const Range& range);
  /// Where the file of a GPU keeps the identity of the allocation at `offset`; 0 when it is freed.
  [[nodiscard]] std::size_t identity_offset(std::size_t offset) const {
    return arena_ + offset / page * sizeof(std::uint64_t);
  }

  std::uint64_t next_buffer_id() { return next_buffer_id_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Arena {
    Address begin = 0;
    int file = -1;
    Pieces pieces;
  };
  void add(const Range& range);
  void release(const Range& range);
  Arena& arena_of(const Device& device) { return arenas_[static_cast<std::size_t>(device.ordinal)]; }

  Address base_ = 0;
  std::size_t size_ = 0;
  std::ptrdiff_t distance_ = 0;
  std::size_t arena_ = 0;  // bytes of one GPU's arena
  std::mutex mutex_;       // arenas and reservations
  std::vector<Arena> arenas_;
  Pieces outside_;
  mutable std::shared_mutex registry_mutex_;
  std::map<Address, Range> registry_;
  std::atomic<std::uint64_t> next_buffer_id_{1};
};

Memory& memory();

}  // namespace crosslane::gpu::emulated
