// See memory.h.
#include "gpu/emulated/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace crosslane::gpu::emulated {
namespace {

// The system call itself: sanitizers replace mmap and would touch shadow memory for terabytes of reservation.
void* raw_mmap(void* address, std::size_t bytes, int protection, int flags, int file, std::size_t offset) {
  const long result = syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
  return result == -1 ? nullptr : reinterpret_cast<void*>(result);
}

// Leaves the addresses reserved but takes away what was mapped there.
void make_unmapped(void* address, std::size_t bytes) {
  raw_mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

std::optional<std::uint64_t> Pieces::take(std::size_t bytes, std::size_t alignment) {
  for (const auto& [begin, end] : free_) {
    const std::uint64_t at = round_up(begin, alignment);
    if (at < end && end - at >= bytes) {
      take_at(at, bytes);
      return at;
    }
  }
  return std::nullopt;
}

bool Pieces::take_at(std::uint64_t begin, std::size_t bytes) {
  auto piece = free_.upper_bound(begin);
  if (piece == free_.begin()) return false;
  --piece;
  const auto [piece_begin, piece_end] = *piece;
  if (piece_end < begin + bytes) return false;
  free_.erase(piece);
  if (piece_begin < begin) free_[piece_begin] = begin;
  if (begin + bytes < piece_end) free_[begin + bytes] = piece_end;
  return true;
}

void Pieces::give_back(std::uint64_t begin, std::size_t bytes) {
  auto [piece, added] = free_.emplace(begin, begin + bytes);
  if (auto next = std::next(piece); next != free_.end() && next->first == piece->second) {
    piece->second = next->second;
    free_.erase(next);
  }
  if (piece != free_.begin()) {
    if (auto previous = std::prev(piece); previous->second == begin) {
      previous->second = piece->second;
      free_.erase(piece);
    }
  }
}

Memory& memory() {
  static auto& instance = *new Memory();
  return instance;
}

void Memory::initialize() {
  const auto& devices = state().devices;
  std::size_t largest = 0;
  for (const auto& device : devices) largest = std::max(largest, device->memory);
  // Twice the memory, since guard pages and fragmentation take addresses too.
  arena_ = round_up(2 * largest + (std::size_t{64} << 20), granule);
  std::size_t outside = std::max<std::size_t>(arena_ * devices.size(), std::size_t{256} << 30);
  for (;; outside /= 2) {
    size_ = arena_ * devices.size() + outside;
    if (void* both =
            raw_mmap(nullptr, 2 * size_ + granule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
      base_ = round_up(reinterpret_cast<Address>(both), granule);
      distance_ = static_cast<std::ptrdiff_t>(size_);
      break;
    }
    if (outside < (std::size_t{1} << 30)) {
      refuse(CUDA_ERROR_OUT_OF_MEMORY, "cannot reserve " + std::to_string(2 * size_ >> 30) +
                                           " GiB of addresses (ulimit -v?); lower CROSSLANE_EMULATED_MEMORY");
    }
  }
  Address at = base_;
  arenas_.resize(devices.size());
  for (Arena& arena : arenas_) {
    arena.begin = at;
    arena.pieces.reset(0, arena_);
    at += arena_;
  }
  outside_.reset(at, base_ + size_);
}

void Memory::add(const Range& range) {
  const std::unique_lock lock(registry_mutex_);
  registry_.emplace(range.base, range);
}

Address Memory::allocate(Device& device, std::size_t bytes, Range::Kind kind, CUcontext context) {
  require(bytes != 0, CUDA_ERROR_INVALID_VALUE);
  require(bytes <= device.memory, CUDA_ERROR_OUT_OF_MEMORY);
  const std::size_t pages = round_up(bytes, page);
  const std::lock_guard lock(mutex_);
  if (device.used.load() + pages > device.memory) throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
  Arena& arena = arena_of(device);
  if (arena.file < 0) {
    const int file = memfd_create("crosslane-emulated-gpu", MFD_CLOEXEC);
    require(file >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    // Sparse: the arena, and behind it a table of which allocation starts at each page.
    if (ftruncate(file, static_cast<off_t>(identity_offset(arena_))) != 0) {
      close(file);
      throw Failure{CUDA_ERROR_OPERATING_SYSTEM};
    }
    arena.file = file;
  }
  // One page more stays unmapped, so that a kernel that runs over the end faults.
  const auto offset = arena.pieces.take(pages + page, bytes >= granule ? granule : page);
  require(offset.has_value(), CUDA_ERROR_OUT_OF_MEMORY);
  Range range{.base = arena.begin + *offset,
              .size = bytes,
              .kind = kind,
              .device = &device,
              .context = context,
              .buffer_id = next_buffer_id()};
  const std::uint64_t identity = range.buffer_id;
  if (raw_mmap(cpu(range.base), pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, arena.file,
               *offset) == nullptr ||
      pwrite(arena.file, &identity, sizeof identity, static_cast<off_t>(identity_offset(*offset))) != sizeof identity) {
    make_unmapped(cpu(range.base), pages);
    arena.pieces.give_back(*offset, pages + page);
    throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
  }
  device.used += pages;
  add(range);
  return range.base;
}

Address Memory::allocate_host(std::size_t bytes, Range::Kind kind, unsigned flags, CUctx_st& context) {
  require(bytes != 0, CUDA_ERROR_INVALID_VALUE);
  void* memory = mmap(nullptr, round_up(bytes, page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  const auto base = reinterpret_cast<Address>(memory);
  add({.base = base,
       .size = bytes,
       .kind = kind,
       .device = context.device,
       .context = &context,
       .buffer_id = next_buffer_id(),
       .flags = flags});
  return base;
}

void Memory::register_host(Address begin, std::size_t bytes, unsigned flags, CUctx_st& context) {
  require(begin != 0 && bytes != 0 && !in_device_space(begin), CUDA_ERROR_INVALID_VALUE);
  const std::unique_lock lock(registry_mutex_);
  auto next = registry_.upper_bound(begin);
  const bool overlaps_next = next != registry_.end() && next->first < begin + bytes;
  const bool overlaps_previous =
      next != registry_.begin() && std::prev(next)->second.base + std::prev(next)->second.size > begin;
  require(!overlaps_next && !overlaps_previous, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  registry_.emplace(begin, Range{.base = begin,
                                 .size = bytes,
                                 .kind = Range::Kind::registered,
                                 .device = context.device,
                                 .context = &context,
                                 .buffer_id = next_buffer_id(),
                                 .flags = flags});
}

void Memory::release(const Range& range) {
  const std::size_t pages = round_up(range.size, page);
  switch (range.kind) {
    case Range::Kind::device:
    case Range::Kind::pool: {
      const std::lock_guard lock(mutex_);
      Arena& arena = arena_of(*range.device);
      const std::size_t offset = range.base - arena.begin;
      const std::uint64_t gone = 0;
      // The identity first: who opens a handle looks at it after mapping.
      [[maybe_unused]] const auto written =
          pwrite(arena.file, &gone, sizeof gone, static_cast<off_t>(identity_offset(offset)));
      make_unmapped(cpu(range.base), pages);
      // Pages that another process still maps would be cut away under it; it then reads zeros, as undefined as on a GPU.
      fallocate(arena.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(pages));
      arena.pieces.give_back(offset, pages + page);
      range.device->used -= pages;
      break;
    }
    case Range::Kind::pinned:
    case Range::Kind::managed:
      munmap(reinterpret_cast<void*>(range.base), pages);
      break;
    case Range::Kind::imported:
      make_unmapped(cpu(range.base), pages);
      unreserve(range.base, pages + page);
      break;
    case Range::Kind::mapped:
      make_unmapped(cpu(range.base), pages);
      break;
    case Range::Kind::registered:
      break;
  }
}

void Memory::free(Address base, std::initializer_list<Range::Kind> kinds) {
  Range range;
  {
    const std::unique_lock lock(registry_mutex_);
    const auto found = registry_.find(base);
    require(found != registry_.end() && std::find(kinds.begin(), kinds.end(), found->second.kind) != kinds.end(),
            CUDA_ERROR_INVALID_VALUE);
    range = found->second;
    registry_.erase(found);
  }
  release(range);
}

void Memory::free_all_of(CUcontext context) {
  std::vector<Range> ranges;
  {
    const std::unique_lock lock(registry_mutex_);
    for (auto at = registry_.begin(); at != registry_.end();) {
      if (at->second.context == context) {
        ranges.push_back(at->second);
        at = registry_.erase(at);
      } else {
        ++at;
      }
    }
  }
  for (const Range& range : ranges) release(range);
}

std::optional<Range> Memory::find(Address address) const {
  const std::shared_lock lock(registry_mutex_);
  auto next = registry_.upper_bound(address);
  if (next == registry_.begin()) return std::nullopt;
  --next;
  if (address - next->second.base >= next->second.size) return std::nullopt;
  return next->second;
}

std::optional<Range> Memory::find_base(Address base) const {
  const std::shared_lock lock(registry_mutex_);
  const auto found = registry_.find(base);
  return found == registry_.end() ? std::nullopt : std::optional(found->second);
}

void Memory::change(Address base, const std::function<void(Range&)>& edit) {
  const std::unique_lock lock(registry_mutex_);
  const auto found = registry_.find(base);
  require(found != registry_.end(), CUDA_ERROR_INVALID_VALUE);
  edit(found->second);
}

void Memory::check(Address address, std::size_t bytes, bool must_be_known) const {
  if (bytes == 0) return;
  const std::shared_lock lock(registry_mutex_);
  // Several ranges may follow each other without a gap (virtual memory management).
  for (Address at = address, end = address + bytes; at < end;) {
    auto next = registry_.upper_bound(at);
    const bool found = next != registry_.begin() && at - std::prev(next)->second.base < std::prev(next)->second.size;
    if (!found) {
      // Pageable host memory: the driver knows nothing of it. A pinned range's end followed by ordinary memory is an error.
      require(!must_be_known && at == address && !in_device_space(at), CUDA_ERROR_INVALID_VALUE);
      return;
    }
    const Range& range = std::prev(next)->second;
    require(range.readable, CUDA_ERROR_INVALID_VALUE);
    at = range.base + range.size;
  }
}

Address Memory::reserve(std::size_t bytes, std::size_t alignment, Address wanted) {
  const std::lock_guard lock(mutex_);
  if (wanted != 0 && wanted % alignment == 0 && outside_.take_at(wanted, bytes)) return wanted;
  const auto taken = outside_.take(bytes, alignment);
  require(taken.has_value(), CUDA_ERROR_OUT_OF_MEMORY);
  return *taken;
}

void Memory::unreserve(Address begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  outside_.give_back(begin, bytes);
}

void Memory::map(const Range& range, int file, std::size_t file_offset) {
  const int protection = (range.readable ? PROT_READ : 0) | (range.readable && range.writable ? PROT_WRITE : 0);
  require(raw_mmap(cpu(range.base), round_up(range.size, page), protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                   file, file_offset) != nullptr,
          CUDA_ERROR_OUT_OF_MEMORY);
  add(range);
}

void Memory::unmap(Address base) { free(base, {Range::Kind::mapped}); }

void Memory::protect(Address begin, std::size_t bytes, bool readable, bool writable) {
  const int protection = (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0);
  require(syscall(SYS_mprotect, cpu(begin), bytes, protection) == 0, CUDA_ERROR_INVALID_VALUE);
}

Memory::Place Memory::place(const Range& range) {
  const std::lock_guard lock(mutex_);
  const Arena& arena = arena_of(*range.device);
  return {arena.file, range.base - arena.begin, range.size, range.buffer_id};
}

}  // namespace crosslane::gpu::emulated
