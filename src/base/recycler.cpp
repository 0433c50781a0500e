// See recycler.h. A shelf for each size, in steps of a cache line: whoever finds one busy goes to the C++ library, so nobody waits, and a child of
// fork() that has inherited a busy one does without it.
#include "base/recycler.h"

#include <array>
#include <atomic>
#include <new>

namespace crosslane::base {
namespace {

// A window of 64 messages each way has up to four of a size for each.
constexpr std::size_t step = 64, most_kept = 512;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool recycles = false;  // it would hide who uses an object that is gone
#else
constexpr bool recycles = true;
#endif

struct Shelf {
  std::atomic_flag busy;
  std::size_t count = 0;
  std::array<void*, most_kept> blocks{};
};
constinit std::array<Shelf, recycled_bytes / step> shelves;

constexpr std::size_t shelf_of(std::size_t bytes) { return bytes == 0 ? 0 : (bytes - 1) / step; }

}  // namespace

void* take_block(std::size_t bytes) {
  if (!recycles || bytes > recycled_bytes) return ::operator new(bytes);
  const std::size_t which = shelf_of(bytes);
  Shelf& shelf = shelves[which];
  void* block = nullptr;
  if (!shelf.busy.test_and_set(std::memory_order_acquire)) {
    if (shelf.count != 0) block = shelf.blocks[--shelf.count];
    shelf.busy.clear(std::memory_order_release);
  }
  return block != nullptr ? block : ::operator new((which + 1) * step);
}

void* take_blocks(std::size_t count, std::size_t bytes) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) throw std::bad_array_new_length();
  return take_block(all);
}

void give_block(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  if (recycles && bytes <= recycled_bytes) {
    Shelf& shelf = shelves[shelf_of(bytes)];
    if (!shelf.busy.test_and_set(std::memory_order_acquire)) {
      const bool room = shelf.count != most_kept;
      if (room) shelf.blocks[shelf.count++] = block;
      shelf.busy.clear(std::memory_order_release);
      if (room) return;
    }
  }
  ::operator delete(block);
}

}  // namespace crosslane::base
