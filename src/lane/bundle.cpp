// See bundle.h.
#include "lane/bundle.h"

#include <algorithm>

namespace crosslane::lane {
namespace {

std::size_t bytes_of(const kernel::Part& part) noexcept { return static_cast<std::size_t>(part.items) * part.word; }

}  // namespace

bool Bundle::precedes(const kernel::Part& part, const Touched& touched) const noexcept {
  if (parts_.empty()) return false;
  if (parts_.size() == kernel::TogetherParameters::limit || bytes_ + bytes_of(part) > most_bytes_together) return true;
  return std::ranges::any_of(touched_, [&](const Touched& other) {
    return touched.written.meets(other.written) || touched.written.meets(other.read) ||
           touched.read.meets(other.written);
  });
}

void Bundle::add(const kernel::Part& part, const Touched& touched) {
  parts_.push_back(part);
  touched_.push_back(touched);
  bytes_ += bytes_of(part);
}

}  // namespace crosslane::lane
