// Outline: where the runs of one element of a datatype end, as closely as it takes to know which regions of memory (gpu/region.h) hold an end,
// wherever the element lies. It must not know what the regions are.
#pragma once

#include "layout/layout.h"

#include <memory>
#include <span>
#include <vector>

namespace crosslane::layout {

class Outline {
 public:
  /// Costs some nanoseconds a run.
  explicit Outline(const Layout& layout);

  /// In ascending order, from the first end (of a byte) to the last one within as many bytes as a region has: an end between them lies in a region of
  /// one of these two.
  [[nodiscard]] std::span<const Span> stretches() const noexcept { return stretches_; }

 private:
  std::vector<Span> stretches_;
};

/// True if elements span much of blocks here and there. What is an array lies in one memory.
[[nodiscard]] bool is_scattered(const Layout& layout) noexcept;

}  // namespace crosslane::layout
