// Marks: which allocations were seen before, and what their first copies come behind. Of the last so many that were asked for, as ids are never used
// again and nobody tells of what is freed. It must not know what an allocation is.
#pragma once

#include "lane/earlier.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

namespace crosslane::lane {

/// Not thread-safe.
class Marks {
 public:
  using Before = std::shared_ptr<const Earlier>;
  /// What was asked for is known while fewer others are; while twice as many are, it is forgotten.
  static constexpr std::size_t most = std::size_t{1} << 15;

  /// Null where the allocation is not known. Good until the next call.
  [[nodiscard]] Before* find(std::uint64_t id) {
    if (const auto found = young_.find(id); found != young_.end()) return &found->second;
    auto known = old_.extract(id);
    if (known.empty()) return nullptr;
    make_room();
    return &young_.insert(std::move(known)).position->second;
  }
  void add(std::uint64_t id, Before before) {
    make_room();
    young_.insert_or_assign(id, std::move(before));
  }
  void clear() noexcept {
    young_.clear();
    old_.clear();
  }

 private:
  // What was not asked for while as many others were is forgotten.
  void make_room() {
    if (young_.size() < most) return;
    old_ = std::move(young_);
    young_ = {};
  }

  std::unordered_map<std::uint64_t, Before> young_, old_;
};

}  // namespace crosslane::lane
