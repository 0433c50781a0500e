// See shared_buffer.h.
#include "collective/shared_buffer.h"

#include "collective/team_site.h"

#include <numeric>
#include <utility>
#include <vector>

namespace crosslane::collective::shared_buffer {
namespace {

engine::Task<> run(const DrivenCall& driven, const TreeKind& kind) {
  const Call& call = driven.call;
  std::vector<int> everybody(static_cast<std::size_t>(call.team.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::vector<RelayLevel> levels;
  levels.push_back({kind.tree(everybody, taker(call.shape, everybody), call.team.me()), kind.slots(everybody.size())});
  return relay_in_team(driven, std::move(levels));
}

}  // namespace

int taker(const Shape& shape, std::span<const int> group) noexcept {
  return shape.collective == Collective::allreduce ? group.back() : shape.root;
}

bool supports_gsb(const Shape& shape, const TeamFacts& facts) { return relays(shape, facts); }
engine::Task<> run_gsb(const DrivenCall& call) { return run(call, stars); }

bool supports_btb(const Shape& shape, const TeamFacts& facts) {
  // A tree has its own order of combining.
  const bool any_order = !combines(shape.collective) || exact(shape.element);
  return relays(shape, facts) && (any_order || !facts.deterministic);
}
engine::Task<> run_btb(const DrivenCall& call) { return run(call, binomials); }

}  // namespace crosslane::collective::shared_buffer
