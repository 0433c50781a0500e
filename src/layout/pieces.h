// What the copy kernels take for layouts that are no nest of loops (TYPES, section 3.2: the CPU makes the list).
#pragma once

#include "kernel/strided.h"
#include "layout/layout.h"

#include <cstddef>
#include <vector>

namespace crosslane::layout {

/// The packed bytes [begin, end) of `count` elements as pieces of at most kernel::piece_limit bytes, appended to
/// `list`. Their `packed` counts from `begin`.
inline void append_pieces(std::vector<kernel::Piece>& list, const Layout& layout, std::int64_t count, std::size_t begin,
                          std::size_t end) {
  std::uint64_t packed = 0;
  layout.for_each_run(count, begin, end, [&](std::int64_t offset, std::size_t length) {
    for (std::size_t done = 0; done < length;) {
      const std::size_t part = std::min(length - done, kernel::piece_limit);
      list.push_back({offset + static_cast<std::int64_t>(done), packed, part});
      packed += part;
      done += part;
    }
  });
}

}  // namespace crosslane::layout
