// See span.h.
#include "team/span.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"
#include "team/region.h"

#include <algorithm>
#include <array>
#include <utility>

namespace crosslane::team {
namespace {

// No tree, nor two of them one above the other, has more slots in a window than one for each member and one besides.
std::size_t part_bytes_for(const std::vector<std::vector<int>>& nodes) noexcept {
  const std::size_t most_on_a_node = std::ranges::max(nodes, {}, [](const auto& ranks) { return ranks.size(); }).size();
  return region_layout(static_cast<int>(most_on_a_node)).relay_bytes(most_on_a_node + 1);
}

}  // namespace

Span::Span(std::vector<std::vector<int>> nodes, std::vector<int> world_ranks, int me,
           std::function<std::shared_ptr<Team>()> make_team, std::shared_ptr<SpanTags> tags)
    : nodes_(std::move(nodes)),
      world_ranks_(std::move(world_ranks)),
      me_(me),
      node_(node_of(me)),
      make_team_(std::move(make_team)),
      tags_(std::move(tags)),
      part_bytes_(part_bytes_for(nodes_)) {}

Span::~Span() {
  if (set_ && !failed_) tags_->give_back(*set_);
}

int Span::node_of(int rank) const noexcept {
  const auto found =
      std::ranges::find_if(nodes_, [rank](const auto& ranks) { return std::ranges::binary_search(ranks, rank); });
  return static_cast<int>(found - nodes_.begin());
}

int Span::member_of(int rank) const noexcept {
  const auto& ranks = ranks_of(node_of(rank));
  return static_cast<int>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
}

bool Span::form(const Exchange& exchange, const share::TeamKey& key, Home* home) {
  if (tried_) return formed();
  tried_ = true;
  std::optional<std::string> refusal;
  team_ = make_team_();
  if (home == nullptr) refusal = "this rank's GPU cannot take part";
  const auto all_can_now = [&] {
    bool all = false;
    const auto ask = [](Span& span, Messenger members, bool mine, bool& result) -> engine::Task<> {
      result = co_await span.all_can(members, mine);
    };
    exchange.engine.run(ask(*this, exchange.members, !refusal, all), exchange.watch);
    return all;
  };
  const auto prepare = [&] {
    if (auto refused = team_->prepare(*home)) refusal = std::move(refused->why);
  };
  // Each step needs what the node's other ranks have done in the one before.
  if (!refusal) prepare();
  bool all = all_can_now();
  if (all) {
    prepare();
    if (!refusal && !team_->connected()) refusal = "the node has no room for another communicator";
    if (!refusal && !team_->drives()) refusal = "streams cannot wait for events of other processes";
    if (!refusal) refusal = make_memory(*home);
    const auto agree = [](SpanTags& tags, Messenger members, share::TeamKey name, bool willing,
                          std::optional<int>& result) -> engine::Task<> {
      result = co_await tags.agree(members, name, willing);
    };
    exchange.engine.run(agree(*tags_, exchange.members, key, !refusal, set_), exchange.watch);
  }
  if (formed()) return true;
  memory_.reset();
  base::log(base::Topic::info, "collectives of a communicator on {} nodes go through the host: {}", nodes(),
            refusal.value_or("other ranks cannot do otherwise"));
  return false;
}

engine::Task<bool> Span::all_can(Messenger members, bool mine) const {
  std::array<std::uint64_t, 1> word{mine ? ~std::uint64_t{0} : 0};
  co_await members.all_and(word);
  co_return word[0] != 0;
}

std::optional<std::string> Span::make_memory(Home& home) {
  // Shares of a part are rounded up, at most to this.
  constexpr std::size_t granule = 256;
  const std::size_t shares = part_bytes_ + nodes_.size() * granule;
  auto memory = std::make_shared<Memory>();
  memory->others = part_bytes_;
  memory->result = memory->others + shares;
  memory->half = memory->result + part_bytes_;
  try {
    const gpu::ContextScope scope(home.driver(), home.context());
    memory->host = gpu::PinnedBuffer(home.driver(), 2 * memory->half);
    memory->device = gpu::Buffer(home.driver(), 2 * memory->result);
  } catch (const base::Error& error) {
    return error.what();
  }
  memory_ = std::move(memory);
  return std::nullopt;
}

}  // namespace crosslane::team
