// Whether elements of a datatype reach memory of another kind than their first byte lies in: which of their bytes to ask about. It must not know who
// tells of what kind a byte is.
#pragma once

#include "gpu/region.h"
#include "layout/layout.h"

#include <bitset>
#include <cstddef>
#include <cstdint>

namespace crosslane::layout {

/// Whether `on_gpu`, of a byte's address, is true of an end of some run of `count` elements from `base` on. It is asked once about each region of the
/// first few hundred, in whatever order the runs come; further ones once where runs of one region follow each other.
template <class OnGpu>
[[nodiscard]] bool any_run(const OnGpu& on_gpu, const void* base, const Layout& layout, std::int64_t count) {
  constexpr std::size_t most = 512;
  std::bitset<most> asked;
  std::uintptr_t last = 0;
  const auto address = [&](std::int64_t offset) {
    return reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) +
                                              static_cast<std::uintptr_t>(offset));
  };
  const std::uintptr_t lowest = gpu::region_of(address(layout.span(count).begin));
  const auto is_new = [&](std::uintptr_t region) {
    if (region == last) return false;
    last = region;
    const std::uintptr_t nth = region - lowest;
    if (nth >= most) return true;
    const bool known = asked.test(nth);
    asked.set(nth);
    return !known;
  };
  bool found = false;
  layout.for_each_run(count, 0, layout.packed_size(count), [&](std::int64_t offset, std::size_t length) {
    for (const std::int64_t end : {offset, offset + static_cast<std::int64_t>(length) - 1}) {
      const std::byte* const byte = address(end);
      if (!found && is_new(gpu::region_of(byte))) found = on_gpu(byte);
    }
  });
  return found;
}

/// The same of some byte but the lowest. It is asked about the highest and, within elements that span much of blocks here and there, about each
/// block, which costs some nanoseconds each; not about the middle of what is an array.
template <class OnGpu>
[[nodiscard]] bool reaches(const OnGpu& on_gpu, const void* base, const Layout& layout, std::int64_t count) {
  if (layout.contiguous(count)) return false;
  const auto highest = static_cast<std::uintptr_t>(layout.span(count).end - 1);
  if (on_gpu(reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) + highest))) return true;
  const bool is_array = layout.as_strided(1).has_value();
  return !is_array && static_cast<std::size_t>(layout.true_extent()) >= gpu::region_bytes &&
         any_run(on_gpu, base, layout, count);
}

}  // namespace crosslane::layout
