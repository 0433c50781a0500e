// See bundle.h.
#include "lane/bundle.h"

#include <algorithm>

namespace crosslane::lane {

bool Bundle::precedes(const Reach& to, const Reach& from) const noexcept {
  if (parts_.size() == kernel::TogetherParameters::limit) return true;
  return std::ranges::any_of(touched_, [&](const auto& other) {
    const auto& [written, read] = other;
    return to.meets(written) || to.meets(read) || from.meets(written);
  });
}

void Bundle::add(const kernel::Part& part, const Reach& to, const Reach& from) {
  parts_.push_back(part);
  touched_.emplace_back(to, from);
}

}  // namespace crosslane::lane
