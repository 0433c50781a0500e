// TeamView: a connected team as its kernels see it: all that a plan needs, to be copied into it. It must not know the board, nor
// the application's buffers.
#pragma once

#include "kernel/launch.h"
#include "share/board.h"
#include "team/region.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace crosslane::team {

/// Of thread blocks that a call may keep on a GPU, those of each of the members that share it.
[[nodiscard]] constexpr unsigned blocks_a_sharer(unsigned blocks, int sharers) noexcept {
  return std::max(blocks / static_cast<unsigned>(sharers), 1U);
}

/// Trivially copied; valid while the connection lives that it was taken from.
class TeamView {
 public:
  struct Facts {
    int me = 0;
    int size = 1;
    int most_on_one_gpu = 1;  ///< Members that share a GPU, where most do.
    unsigned blocks = 1;  ///< Thread blocks that a call may keep on a GPU, of all members that share it; equal on all.
    bool emulated = false;
    std::uint32_t abilities = 0;  ///< That all members have.
  };
  using Regions = std::array<std::byte*, share::Board::most_members>;  ///< By member, as mapped here.
  TeamView(const Facts& facts, const kernel::Kernels& kernels, const RegionLayout& layout, const Regions& regions,
           const Regions& large = {}) noexcept
      : facts_(facts), kernels_(&kernels), layout_(layout), regions_(regions), large_(large) {}

  [[nodiscard]] int me() const noexcept { return facts_.me; }
  [[nodiscard]] int size() const noexcept { return facts_.size; }
  [[nodiscard]] int most_on_one_gpu() const noexcept { return facts_.most_on_one_gpu; }
  [[nodiscard]] unsigned blocks() const noexcept { return facts_.blocks; }
  [[nodiscard]] bool emulated() const noexcept { return facts_.emulated; }
  [[nodiscard]] bool can(share::Ability ability) const noexcept { return (facts_.abilities & ability) != 0; }
  [[nodiscard]] const kernel::Kernels& kernels() const noexcept { return *kernels_; }
  [[nodiscard]] const RegionLayout& layout() const noexcept { return layout_; }
  /// A member's region of its window, as mapped here.
  [[nodiscard]] std::byte* region(int member) const noexcept { return regions_[static_cast<std::size_t>(member)]; }
  [[nodiscard]] TeamView with_large_windows(const Regions& large) const noexcept {
    return {facts_, *kernels_, layout_, regions_, large};
  }
  [[nodiscard]] TeamView without_large_windows() const noexcept { return with_large_windows({}); }
  [[nodiscard]] bool has_large_windows() const noexcept { return large_.front() != nullptr; }
  /// Its window for large calls, as mapped here; null where the team has none (yet).
  [[nodiscard]] std::byte* large_window(int member) const noexcept { return large_[static_cast<std::size_t>(member)]; }

 private:
  Facts facts_;
  const kernel::Kernels* kernels_;
  RegionLayout layout_;
  Regions regions_, large_;
};

}  // namespace crosslane::team
