// See claim.h.
#include "collective/claim.h"

#include "base/error.h"
#include "collective/describe.h"
#include "team/alike.h"

#include <algorithm>
#include <string>
#include <vector>

namespace crosslane::collective {
namespace {

using Words = std::array<std::uint64_t, 4>;
constexpr std::uint64_t none = 0xff;
// Of the first word of a claim, and of the last one.
constexpr std::uint64_t neighbours = std::uint64_t{1} << 24;
constexpr std::uint64_t runs = 1, shows = 2;

constexpr bool has_root(Collective collective) noexcept {
  return collective == Collective::reduce || collective == Collective::broadcast || collective == Collective::gather ||
         collective == Collective::scatter || collective == Collective::gatherv || collective == Collective::scatterv;
}

std::string collective_line(const Words& words) {
  return fmt::format("collective={}{}\n", (words[0] & neighbours) != 0 ? "neighbourhood " : "",
                     name_of(static_cast<Collective>(words[0] & none)));
}

// As lines NAME=value: only what the collective has.
std::string lines_of(const std::array<std::uint64_t, 4>& words) {
  const auto collective = static_cast<Collective>(words[0] & none);
  const std::uint64_t element = (words[0] >> 8) & none, op = (words[0] >> 16) & none;
  std::string lines = collective_line(words) + fmt::format("bytes={}\n", words[1]);
  if (has_root(collective)) lines += fmt::format("root={}\n", static_cast<std::int64_t>(words[2]));
  if (combines(collective)) {
    lines +=
        fmt::format("datatype={}\nop={}\n",
                    element == none ? "one that GPUs do not combine" : name_of(static_cast<kernel::Element>(element)),
                    op == none ? "one of the application's own" : name_of(static_cast<kernel::Op>(op)));
  }
  if ((words[3] & runs) == 0) lines += "way=through the host\n";
  return lines;
}

// Of calls whose blocks differ, once all are known to show what they pass: what one sends is what the other expects.
void compare_passages(const team::Team& team, Collective collective) {
  if (collective == Collective::reduce_scatter) {
    std::vector<std::string> lines;
    for (int member = 0; member < team.size(); ++member) {
      std::string counts;
      for (const share::Passage& passage : team.passages(member)) counts += fmt::format(" {}", passage.sends);
      lines.push_back(fmt::format("bytes of the blocks={}\n", counts.substr(1)));
    }
    if (const std::string different = team::differences(lines); !different.empty())
      throw base::Error(base::ErrorClass::argument,
                        "the ranks of the communicator do not call the same (CROSSLANE_CHECK): {}; give all the same",
                        different);
    return;
  }
  for (int from = 0; from < team.size(); ++from) {
    for (int to = 0; to < team.size(); ++to) {
      const std::uint64_t sends = team.passages(from)[static_cast<std::size_t>(to)].sends;
      const std::uint64_t receives = team.passages(to)[static_cast<std::size_t>(from)].receives;
      if (sends == receives) continue;
      throw base::Error(
          base::ErrorClass::argument,
          "rank {} sends {} bytes to rank {}, which expects {} from it (CROSSLANE_CHECK); correct the counts", from,
          sends, to, receives);
    }
  }
}

}  // namespace

std::array<std::uint64_t, 4> encode(const Claim& claim, bool shows_passages) noexcept {
  const std::uint64_t element = claim.element ? static_cast<std::uint64_t>(*claim.element) : none;
  const std::uint64_t op = claim.op ? static_cast<std::uint64_t>(*claim.op) : none;
  const bool combined = combines(claim.collective);
  const auto root = has_root(claim.collective) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(claim.root)) : 0;
  return {static_cast<std::uint64_t>(claim.collective) | (combined ? element << 8 | op << 16 : 0) |
              (claim.among_neighbours ? neighbours : 0),
          claim.bytes, root, (claim.direct ? runs : 0U) | (shows_passages ? shows : 0U)};
}

void compare_claims(const team::Team& team) {
  std::vector<Words> claims;
  claims.reserve(static_cast<std::size_t>(team.size()));
  for (int member = 0; member < team.size(); ++member) claims.push_back(team.arrival(member).claim);
  compare_claims(claims);
  if (std::ranges::all_of(claims, [](const Words& claim) { return (claim[3] & shows) != 0; }))
    compare_passages(team, static_cast<Collective>(claims.front()[0] & none));
}

void compare_claims(std::span<const Words> claims) {
  const Words& first = claims.front();
  bool alike = true;
  bool same_collective = true;
  for (const Words& each : claims) {
    alike = alike && std::equal(each.begin(), each.end() - 1, first.begin()) && ((each[3] ^ first[3]) & runs) == 0;
    same_collective = same_collective && ((each[0] ^ first[0]) & (none | neighbours)) == 0;
  }
  if (alike) return;
  std::vector<std::string> lines;
  for (const Words& claim : claims) {
    // Arguments of different procedures say nothing beside one another.
    lines.push_back(same_collective ? lines_of(claim) : collective_line(claim));
  }
  throw base::Error(base::ErrorClass::argument,
                    "the ranks of the communicator do not call the same (CROSSLANE_CHECK): {}; give all the same",
                    team::differences(lines));
}

}  // namespace crosslane::collective
