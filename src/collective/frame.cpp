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
  frame.limit = {report.limit_ns, report.abort};
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

unsigned pulling_blocks(const TeamFacts& facts, std::size_t bytes) {
  // Measured on four H200: a reduce-scatter of 16 MiB takes 47 us with 32 blocks, 51 with 128; of 128 MiB 322 with 32, 316 with 64, 347
  // with 128. On eight, of 2 MiB 15.3 with 32, 14.7 with 64; a reduce (two_shot_told) of 4 MiB 31.8 with 32, 34.2 with 64, of 16 MiB 80, 82, 88
  // with 32, 64, 128, of 128 MiB 542 with 32, 507 with 64.
  constexpr std::size_t mib = std::size_t{1} << 20, bytes_a_block = mib / 64;
  const bool few = bytes < 64 * mib && (bytes >= 4 * mib || facts.members <= 4);
  return blocks_for(facts, bytes, bytes_a_block, few ? 32 : 64);
}

std::size_t chunk_of(std::size_t bytes, unsigned blocks, std::size_t most, std::size_t round) noexcept {
  constexpr std::size_t line = kernel::line_bytes;
  const std::size_t whole = std::max((bytes + blocks - 1) / blocks, line), largest = std::max(most / line * line, line);
  const std::size_t chunks = (whole + round * largest - 1) / (round * largest) * round;
  return (whole + chunks * line - 1) / (chunks * line) * line;
}

Shards::Shards(const Shape& shape, int members) noexcept : all_(shape.bytes) {
  const auto n = static_cast<std::size_t>(members);
  const std::size_t share = (shape.bytes + n - 1) / n;
  const std::size_t granule = std::lcm(kernel::granule_of(share), kernel::bytes_of(shape.element));
  each_ = (share + granule - 1) / granule * granule;
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
