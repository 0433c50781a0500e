// What all kernels of a team are given alike. It must not know any algorithm.
#pragma once

#include "collective/plan.h"
#include "kernel/team.h"

#include <cstddef>
#include <cstdint>

namespace crosslane::collective {

[[nodiscard]] kernel::Frame frame_of(const team::TeamView& team, const Report& report);

/// Blocks for kernels that move so many bytes through each member, `bytes_a_block` each, and at most `most`: more only get in
/// each other's way on the links. Fewer where members share a GPU, for all of them must be resident together. Equal on all members.
[[nodiscard]] unsigned blocks_for(const TeamFacts& facts, std::size_t bytes, std::size_t bytes_a_block,
                                  std::size_t most);

[[nodiscard]] TeamFacts facts_of(const team::TeamView& team);

[[nodiscard]] inline std::uint64_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// `shape`'s elements shared among the members for a two-shot reduction: whole vectors of 16 bytes where there are enough.
class Shards {
 public:
  Shards(const Shape& shape, int members) noexcept;
  [[nodiscard]] std::size_t offset(int member) const noexcept;
  [[nodiscard]] std::size_t bytes(int member) const noexcept { return offset(member + 1) - offset(member); }

 private:
  std::size_t each_;
  std::size_t all_;
};

}  // namespace crosslane::collective
