// The one list of algorithms. Another one is a file and a row in catalogue.cpp. It must not know which is chosen (choose.h).
#pragma once

#include "collective/driven.h"
#include "collective/plan.h"
#include "collective/shape.h"

#include <memory>
#include <span>
#include <string_view>

namespace crosslane::collective {

/// Who brings a call to its end once it has begun: kernels alone, or the hosts of its members as well.
enum class Drive : std::uint8_t { gpu, host };

struct Algorithm {
  std::string_view name;
  std::string_view summary;
  std::string_view source;  ///< Paper and section, or where the idea is from.
  Collective collective;
  bool (*supports)(const Shape& shape, const TeamFacts& facts);
  std::unique_ptr<Plan> (*prepare)(const Call& call);       ///< Of those that the GPU drives, null for others.
  engine::Task<> (*run)(const DrivenCall& call) = nullptr;  ///< Of those that the host drives: a task of every member.

  [[nodiscard]] Drive drive() const noexcept { return run == nullptr ? Drive::gpu : Drive::host; }
  /// True if its members may be on several nodes: hosts can send messages.
  [[nodiscard]] bool spans_nodes() const noexcept { return drive() == Drive::host; }
};

[[nodiscard]] std::span<const Algorithm> catalogue() noexcept;

}  // namespace crosslane::collective
