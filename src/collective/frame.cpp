// See frame.h.
#include "collective/frame.h"

#include <algorithm>
#include <numeric>

namespace crosslane::collective {

kernel::Frame frame_of(const team::TeamView& team, const Report& report) {
  kernel::Frame frame{};
  frame.me = static_cast<std::uint32_t>(team.me());
  frame.members = static_cast<std::uint32_t>(team.size());
  for (int member = 0; member < team.size(); ++member)
    frame.control[member] = reinterpret_cast<kernel::Control*>(team.region(member));
  frame.limit = {report.limit_ns, nullptr};
  frame.done = report.done;
  frame.done_value = report.value;
  frame.failed = report.failed;
  return frame;
}

TeamFacts facts_of(const team::TeamView& team) {
  return {.members = team.size(),
          .most_on_one_gpu = team.most_on_one_gpu(),
          .blocks = team.blocks(),
          .emulated = team.emulated(),
          .spinning = team.can(share::spins),
          .whole_lines = team.can(share::whole_lines),
          .driven = team.can(share::drives)};
}

unsigned blocks_for(const TeamFacts& facts, std::size_t bytes, std::size_t bytes_a_block, std::size_t most) {
  // Emulated blocks are threads.
  const std::size_t fits = facts.emulated ? 2 : team::blocks_a_sharer(facts.blocks, facts.most_on_one_gpu);
  const std::size_t wanted = (bytes + bytes_a_block - 1) / bytes_a_block;
  return static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, std::min(most, fits)));
}

Shards::Shards(const Shape& shape, int members) noexcept : all_(shape.bytes) {
  const std::size_t granule = std::lcm(std::size_t{16}, kernel::bytes_of(shape.element));
  const auto n = static_cast<std::size_t>(members);
  each_ = ((shape.bytes + n - 1) / n + granule - 1) / granule * granule;
}

std::size_t Shards::offset(int member) const noexcept {
  return std::min(static_cast<std::size_t>(member) * each_, all_);
}

std::pair<std::size_t, std::size_t> share_of(const Shape& shape, int members, int member) noexcept {
  if (shape.collective != Collective::reduce) {
    const Shards shards(shape, members);
    return {shards.offset(member), shards.bytes(member)};
  }
  if (members == 2) return {0, member == shape.root ? shape.bytes : 0};
  const SharesOfOthers shares(shape, members);
  return {shares.offset(member), shares.bytes(member)};
}

}  // namespace crosslane::collective
