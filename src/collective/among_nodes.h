// The level of the hierarchy above a node (COLL 4.2.1): one leader a node, who exchange by messages of the application's own MPI, part by
// part, while the parts before and behind are on their way inside the nodes. Leaders own shares of each part: an owner gets what
// the others have of its share (or the root has), combines it on its GPU, and sends the result to who wants it, so that a part passes
// each node's links twice whatever the number of nodes. It must not know trees.
//
// Messages of two leaders, by tag: to the owners and from the owners, for each parity of the part, and one how it ended. Parts of one
// parity follow one another on each leader, so messages of one tag are sent and received in one order. The last one is awaited from the
// start: whoever fails sends it at once, and so no leader waits for another in vain.
#pragma once

#include "collective/driven.h"
#include "collective/relay.h"
#include "team/messenger.h"
#include "team/span.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

namespace crosslane::collective {

class AmongNodes final : public Above {
 public:
  /// Why a call cannot go on, once `word` is 1: the first reason. Shared with messages under way; for tasks of the engine alone.
  struct Failure {
    std::atomic<std::uint64_t> word{0};
    std::exception_ptr error;
    void note(std::exception_ptr reason);
  };

  /// `shape`: of the whole call, its root the root's node. All of it outlives this.
  AmongNodes(Site& site, const Beyond& beyond, const Shape& shape);

  void begin(std::size_t part, const std::byte* data) override;
  engine::Task<const std::byte*> end(std::size_t part) override;

  /// After the last part: returns once all leaders have said that they have it. Throws where one says that it has failed.
  engine::Task<> finish();
  /// After an error, here or below: tells the other leaders, and ends what was begun.
  engine::Task<> give_up();

 private:
  enum class Way : std::uint8_t { to_owners, from_owners };
  /// Where a part's data is, and how much each leader owns of it.
  struct Part;
  [[nodiscard]] Part part_of(std::size_t number) const;
  engine::Task<> exchange(std::size_t number, std::uint64_t copied, bool gives);
  engine::Task<> combine(Part part);
  engine::Task<> all(std::vector<engine::Completion> messages);
  [[nodiscard]] engine::Completion send(const Part& part, Way way, int node, std::span<const std::byte> bytes) const;
  [[nodiscard]] engine::Completion receive(const Part& part, Way way, int node, std::span<std::byte> bytes) const;

  Site& site_;
  const Beyond& beyond_;
  const team::Span& span_;
  const Shape shape_;
  const int me_;
  const std::shared_ptr<Failure> failure_;
  std::array<engine::Completion, 2> begun_;  // by parity
  std::vector<engine::Completion> endings_;  // what the other leaders say at the end
};

/// In place of a call that does not begin on this node, as a rank of it has ended: its leader tells the other nodes', who would wait for it.
/// Where it is the leader that has ended nobody tells them.
engine::Task<> do_without(const Beyond& beyond);

}  // namespace crosslane::collective
