// Recycler: memory of objects that come and go with each message, kept for the next ones. The C library keeps seven blocks of a size at hand;
// of a window of 64 messages each block comes from the slow end of its allocator. It must not know what lies there.
#pragma once

#include <cstddef>

namespace crosslane::base {

/// Any thread. Blocks of more than recycled_bytes are the C++ library's.
inline constexpr std::size_t recycled_bytes = 2048;
[[nodiscard]] void* take_block(std::size_t bytes);
/// One of so many times as much. Throws std::bad_array_new_length where no memory has so many bytes.
[[nodiscard]] void* take_blocks(std::size_t count, std::size_t bytes);
void give_block(void* block, std::size_t bytes) noexcept;

/// For objects that are made with new. Derived classes that are deleted by a base have a virtual destructor, as ever.
struct Recycled {
  static void* operator new(std::size_t bytes) { return take_block(bytes); }
  static void operator delete(void* block, std::size_t bytes) noexcept { give_block(block, bytes); }
};

/// For containers, and std::allocate_shared.
template <class T>
struct RecyclingAllocator {
  using value_type = T;
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

  RecyclingAllocator() noexcept = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>& /*other*/) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) { return static_cast<T*>(take_blocks(count, sizeof(T))); }
  void deallocate(T* block, std::size_t count) noexcept { give_block(block, count * sizeof(T)); }

  template <class U>
  bool operator==(const RecyclingAllocator<U>& /*other*/) const noexcept {
    return true;
  }
};

}  // namespace crosslane::base
