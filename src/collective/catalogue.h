// The one list of algorithms. Another one is a file and a row in catalogue.cpp. It must not know which is chosen (choose.h).
#pragma once

#include "collective/plan.h"
#include "collective/shape.h"

#include <memory>
#include <span>
#include <string_view>

namespace crosslane::collective {

struct Algorithm {
  std::string_view name;
  std::string_view summary;
  std::string_view source;  ///< Paper and section, or where the idea is from.
  Collective collective;
  bool (*supports)(const Shape& shape, const TeamFacts& facts);
  std::unique_ptr<Plan> (*prepare)(const Call& call);
};

[[nodiscard]] std::span<const Algorithm> catalogue() noexcept;

}  // namespace crosslane::collective
