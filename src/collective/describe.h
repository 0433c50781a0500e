// What an algorithm supports, as facts for people. Found by asking it about many calls: so no row of the catalogue says one thing and
// does another. It must not know any algorithm by name.
#pragma once

#include "collective/catalogue.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::collective {

struct Support {
  struct Limit {
    int members;
    std::size_t most_bytes;
  };
  std::size_t most_bytes = 0;  ///< Of Shape::bytes, on as few members as it takes; 0: without limit.
  std::vector<Limit> limits;   ///< Where there is one: of teams of 2, 4 and 8, as far as it takes them.
  int least_members = 0, most_members = 0;
  bool needs_mapped_buffers = false;  ///< Only where every member's buffers are mapped by the others.
  bool several_ranks_a_gpu =
      false;  ///< Also where members share a GPU (whose kernels run side by side: MPS, emulation).
  /// Where it combines elements: what it cannot combine though kernels could ("sum_i64"). Empty: it combines all.
  std::vector<std::string> cannot_combine;
};

/// Nothing where it supported none of the calls that it was asked about.
[[nodiscard]] std::optional<Support> support_of(const Algorithm& algorithm);

/// Names of elements and operations as the kernels' names have them: "f32", "sum".
[[nodiscard]] std::string name_of(kernel::Element element);
[[nodiscard]] std::string name_of(kernel::Op op);
[[nodiscard]] std::optional<kernel::Element> element_named(std::string_view name);
[[nodiscard]] std::optional<kernel::Op> op_named(std::string_view name);
[[nodiscard]] std::optional<Collective> collective_named(std::string_view name);

}  // namespace crosslane::collective
