// Span: a communicator whose ranks are on several nodes, as one of them sees it: who is on which node, the team of this node's
// ranks, and what messages among nodes need: tags, and memory that they go through. It is formed by all ranks in a blocking collective
// call of theirs, which either works for all or for none. It must not know any collective.
#pragma once

#include "engine/engine.h"
#include "gpu/buffer.h"
#include "gpu/pinned_buffer.h"
#include "team/home.h"
#include "team/messenger.h"
#include "team/span_tags.h"
#include "team/team.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::team {

class Span {
 public:
  /// `nodes`: the communicator's ranks by node, in the order of their first ones, each node's ascending; the same on all ranks.
  /// `world_ranks`: of all its ranks. `me`: this rank. `make_team`: of the ranks on its node, by their order there. Does nothing yet.
  Span(std::vector<std::vector<int>> nodes, std::vector<int> world_ranks, int me,
       std::function<std::shared_ptr<Team>()> make_team, std::shared_ptr<SpanTags> tags);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(world_ranks_.size()); }
  [[nodiscard]] int nodes() const noexcept { return static_cast<int>(nodes_.size()); }
  /// This rank, and its node.
  [[nodiscard]] int me() const noexcept { return me_; }
  [[nodiscard]] int node() const noexcept { return node_; }
  [[nodiscard]] int node_of(int rank) const noexcept;
  /// The communicator's ranks on a node: by member of that node's team.
  [[nodiscard]] const std::vector<int>& ranks_of(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
  /// A rank's member number in its node's team.
  [[nodiscard]] int member_of(int rank) const noexcept;
  /// In MPI_COMM_WORLD.
  [[nodiscard]] int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  /// What goes among nodes at a time: the same on all ranks, and such that a node's windows have room for two of it in each slot of
  /// any tree over its ranks.
  [[nodiscard]] std::size_t part_bytes() const noexcept { return part_bytes_; }

  /// How the ranks talk while they form it.
  struct Exchange {
    Messenger members;  ///< On the communicator itself.
    engine::Engine& engine;
    const engine::Watch& watch;
  };
  /// By all ranks at once, until it was tried: true if they can use it from now on, the same on all. `home`: null where this rank has none.
  [[nodiscard]] bool form(const Exchange& exchange, const share::TeamKey& key, Home* home);
  [[nodiscard]] bool tried() const noexcept { return tried_; }
  [[nodiscard]] bool formed() const noexcept { return set_.has_value(); }

  /// What follows is for formed ones.
  [[nodiscard]] Team& team() const noexcept { return *team_; }
  [[nodiscard]] Tag tag(int purpose) const noexcept { return SpanTags::tag(*set_, purpose); }
  /// Memory for the parts of each parity: of the host, that the GPU copies from and to, and of the GPU.
  struct Memory {
    gpu::PinnedBuffer host;
    gpu::Buffer device;
    std::size_t others;  ///< Where the shares of other nodes are, behind what is this one's, in each half of both.
    std::size_t
        result;        ///< Where the result is, behind these, in each half of `host`; the bytes of a half of `device`.
    std::size_t half;  ///< The bytes of a half of `host`.
  };
  /// Messages may be under way from it when this goes: they hold it.
  [[nodiscard]] const std::shared_ptr<const Memory>& memory() const noexcept { return memory_; }

  /// A call on it failed on this rank, or could not begin: all later ones fail too, on all ranks, since messages of it may still be on their way.
  void fail() noexcept { failed_ = true; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  [[nodiscard]] std::optional<std::string> make_memory(Home& home);
  engine::Task<bool> all_can(Messenger members, bool mine) const;

  const std::vector<std::vector<int>> nodes_;
  const std::vector<int> world_ranks_;
  const int me_, node_;
  const std::function<std::shared_ptr<Team>()> make_team_;
  const std::shared_ptr<SpanTags> tags_;
  std::shared_ptr<Team> team_;
  std::size_t part_bytes_;
  std::shared_ptr<const Memory> memory_;
  std::optional<int> set_;
  bool tried_ = false;
  bool failed_ = false;
};

}  // namespace crosslane::team
