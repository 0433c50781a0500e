// See hierarchy.h.
#include "collective/hierarchy.h"

#include "collective/shared_buffer.h"
#include "collective/team_site.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace crosslane::collective::hierarchy {
namespace {

engine::Task<> run(const DrivenCall& driven, const TreeKind& within, const TreeKind& among) {
  const Call& call = driven.call;
  const auto& connection = driven.team.connection();
  std::vector<int> everybody(static_cast<std::size_t>(call.team.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const int root = shared_buffer::taker(call.shape, everybody);
  const int me = call.team.me();

  std::map<int, std::vector<int>> gpus;  // by the first member on each
  for (const int member : everybody) gpus[connection.gpu[static_cast<std::size_t>(member)]].push_back(member);
  Tree inside;
  std::vector<int> leaders;
  for (const auto& [first, group] : gpus) {
    const int leader = std::ranges::find(group, root) != group.end() ? root : group.back();
    leaders.push_back(leader);
    if (std::ranges::find(group, me) != group.end()) inside = within.tree(group, leader, me);
  }
  std::ranges::sort(leaders);
  std::vector<RelayLevel> levels;
  levels.push_back({std::move(inside), within.slots(static_cast<std::size_t>(connection.most_on_one_gpu))});
  levels.push_back({among.tree(leaders, root, me), among.slots(leaders.size())});
  return relay_in_team(driven, std::move(levels));
}

}  // namespace

// It has its own order of combining, as its trees do.
bool supports(const Shape& shape, const TeamFacts& facts) { return shared_buffer::supports_btb(shape, facts); }

engine::Task<> run_gsb_gsb(const DrivenCall& call) { return run(call, stars, stars); }
engine::Task<> run_gsb_btb(const DrivenCall& call) { return run(call, stars, binomials); }
engine::Task<> run_btb_gsb(const DrivenCall& call) { return run(call, binomials, stars); }
engine::Task<> run_btb_btb(const DrivenCall& call) { return run(call, binomials, binomials); }

}  // namespace crosslane::collective::hierarchy
