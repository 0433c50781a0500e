// Whether elements of a datatype reach memory of another kind than their first byte lies in: which of their bytes to ask about. It must not know who
// tells of what kind a byte is.
#pragma once

#include "gpu/region.h"
#include "layout/layout.h"
#include "layout/outline.h"

#include <bitset>
#include <cstddef>
#include <cstdint>

namespace crosslane::layout {

/// Asks `on_gpu`, of a byte's address, about bytes of a buffer until it is true of one: once about each region of the first few hundred, in
/// whatever order they come; about further ones once where bytes of one region follow each other.
template <class OnGpu>
class Regions {
 public:
  /// `lowest`: of all bytes, from `base` on.
  Regions(const OnGpu& on_gpu, const void* base, std::int64_t lowest)
      : on_gpu_(on_gpu), base_(reinterpret_cast<std::uintptr_t>(base)), lowest_(gpu::region_of(address(lowest))) {}

  void ask(std::int64_t offset) {
    const std::byte* const byte = address(offset);
    if (!found_ && is_new(gpu::region_of(byte))) found_ = on_gpu_(byte);
  }
  [[nodiscard]] bool found() const noexcept { return found_; }

 private:
  static constexpr std::size_t most = 512;

  [[nodiscard]] const std::byte* address(std::int64_t offset) const noexcept {
    return reinterpret_cast<const std::byte*>(base_ + static_cast<std::uintptr_t>(offset));
  }
  bool is_new(std::uintptr_t region) noexcept {
    if (region == last_) return false;
    last_ = region;
    const std::uintptr_t nth = region - lowest_;
    if (nth >= most) return true;
    const bool known = asked_.test(nth);
    asked_.set(nth);
    return !known;
  }

  const OnGpu& on_gpu_;
  const std::uintptr_t base_, lowest_;
  std::bitset<most> asked_;
  std::uintptr_t last_ = 0;
  bool found_ = false;
};

/// Whether `on_gpu`, of a byte's address, is true of an end of some run of `count` elements from `base` on. Costs some nanoseconds a run.
template <class OnGpu>
[[nodiscard]] bool any_run(const OnGpu& on_gpu, const void* base, const Layout& layout, std::int64_t count) {
  Regions regions(on_gpu, base, layout.span(count).begin);
  layout.for_each_run(count, 0, layout.packed_size(count), [&](std::int64_t offset, std::size_t length) {
    regions.ask(offset);
    regions.ask(offset + static_cast<std::int64_t>(length) - 1);
  });
  return regions.found();
}

/// The same by the outline of the layout, which costs as much a region of each element.
template <class OnGpu>
[[nodiscard]] bool any_run(const OnGpu& on_gpu, const void* base, const Layout& layout, const Outline& outline,
                           std::int64_t count) {
  Regions regions(on_gpu, base, layout.span(count).begin);
  for (std::int64_t element = 0; element < count && !regions.found(); ++element) {
    for (const Span& stretch : outline.stretches()) {
      regions.ask(element * layout.extent() + stretch.begin);
      regions.ask(element * layout.extent() + stretch.end - 1);
    }
  }
  return regions.found();
}

/// The same of some byte but the lowest. It is asked about the highest and, within scattered elements, about each block; not about the middle of
/// what is an array. `outline` is of the layout, or null, and then found where it is needed.
template <class OnGpu>
[[nodiscard]] bool reaches(const OnGpu& on_gpu, const void* base, const Layout& layout, const Outline* outline,
                           std::int64_t count) {
  if (layout.contiguous(count)) return false;
  const auto highest = static_cast<std::uintptr_t>(layout.span(count).end - 1);
  if (on_gpu(reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) + highest))) return true;
  if (!is_scattered(layout)) return false;
  return outline != nullptr ? any_run(on_gpu, base, layout, *outline, count) : any_run(on_gpu, base, layout, count);
}

}  // namespace crosslane::layout
