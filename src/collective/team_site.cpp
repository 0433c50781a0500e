// See team_site.h.
#include "collective/team_site.h"

#include "base/error.h"
#include "collective/among_nodes.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "share/steps.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

namespace crosslane::collective {
namespace {

class TeamSite final : public Site {
 public:
  explicit TeamSite(const DrivenCall& driven)
      : driven_(driven),
        shape_(driven.call.shape),
        team_(driven.team),
        connection_(team_.connection()),
        home_(*connection_.home),
        culprit_(team_.me()) {}

  [[nodiscard]] std::uint64_t call() const override { return team_.direct_call(); }
  [[nodiscard]] share::Entry& own_entry() override { return team_.own_entry(); }
  [[nodiscard]] const share::Entry& entry(int member) const override { return team_.entry(member); }
  [[nodiscard]] std::byte* window(int member, std::size_t parity) const override {
    const team::RegionLayout& layout = connection_.layout;
    return connection_.regions[static_cast<std::size_t>(member)] + layout.staging + parity * layout.parity_bytes();
  }

  // A task may go on in another thread after each of its waits: so each of these makes the context current for itself.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    const gpu::ContextScope scope(home_.driver(), home_.context());
    gpu::copy_async(to, from, bytes, connection_.queue());
  }
  void combine(std::byte* inout, const std::byte* in, std::size_t bytes) override {
    const gpu::ContextScope scope(home_.driver(), home_.context());
    home_.kernels().reduce(connection_.queue(), shape_.op, shape_.element,
                           {inout, in, bytes / kernel::bytes_of(shape_.element)});
  }
  void record(std::size_t parity) override {
    const gpu::ContextScope scope(home_.driver(), home_.context());
    connection_.events[parity].record(connection_.queue());
  }
  void follow(int member, std::size_t parity) override {
    const gpu::ContextScope scope(home_.driver(), home_.context());
    connection_.peer_events[static_cast<std::size_t>(member)][parity].make_wait(connection_.queue());
  }

  std::uint64_t mark() override {
    const gpu::ContextScope scope(home_.driver(), home_.context());
    return connection_.marker->post(connection_.queue());
  }
  engine::Task<> reach(std::uint64_t mark) override {
    const auto& word = connection_.marker->word();
    waits_for(the_gpu);
    for (const base::Time begin = base::now(); word.load(std::memory_order_acquire) < mark; look(the_gpu, begin)) {
      co_await engine::Completion::of(word, mark).or_after(look_every);
    }
  }

  void waits_for(int member) noexcept override { driven_.waits_for.store(member, std::memory_order_relaxed); }

  void look(int member, base::Time begin) override {
    if (const auto culprit = team_.culprit()) {
      culprit_ = *culprit;
      throw base::Error(base::ErrorClass::other, "rank {} of the communicator failed in this call",
                        team_.rank(culprit_));
    }
    const base::Duration waited = base::now() - begin;
    if (waited < look_every) return;
    if (const auto dead = team_.dead()) {
      culprit_ = *dead;
      throw base::Error(base::ErrorClass::other, "the process of rank {} of the communicator ended in this call",
                        team_.rank(culprit_));
    }
    connection_.throw_if_failed();
    if (std::chrono::duration<double>(waited).count() < driven_.limit_s) return;
    if (member >= 0) {
      culprit_ = member;
      throw base::Error(base::ErrorClass::other,
                        "rank {} of the communicator did not take part within {:.0f} s after it had arrived; its "
                        "process or GPU is gone or busy",
                        team_.rank(member), driven_.limit_s);
    }
    throw base::Error(base::ErrorClass::other, "the GPU did not finish its part of a collective within {:.0f} s",
                      driven_.limit_s);
  }

  // Others are not to wait for this rank; and what it has enqueued, which may wait for somebody's event, is not to outlive the call, if that can be had.
  engine::Task<> give_up() {
    team_.fail(culprit_);
    co_await team_.clear_away();
  }

 private:
  const DrivenCall& driven_;
  const Shape shape_;
  team::Team& team_;
  team::Team::Connection& connection_;
  team::Home& home_;
  int culprit_;  // who is to be named if this call fails
};

std::size_t slots_of(const std::vector<RelayLevel>& levels) noexcept {
  std::size_t slots = 0;
  for (const RelayLevel& level : levels) slots += level.slots;
  return slots;
}

}  // namespace

engine::Task<> relay_in_team(DrivenCall driven, std::vector<RelayLevel> levels) {
  const Call& call = driven.call;
  TeamSite site(driven);
  Relayed relayed{.shape = call.shape,
                  .me = call.team.me(),
                  .root = call.team.me() == call.shape.root,
                  .send = call.mine.send,
                  .receive = call.mine.receive,
                  .slot_bytes = call.team.layout().relay_bytes(slots_of(levels)),
                  .in_order = driven.deterministic};
  std::optional<AmongNodes> above;
  if (const Beyond* const beyond = driven.beyond; beyond != nullptr) {
    const team::Span& span = beyond->span;
    const int me = span.ranks_of(span.node())[static_cast<std::size_t>(call.team.me())];
    relayed.root = me == beyond->root;
    relayed.slot_bytes = span.part_bytes();  // the same on all nodes
    if (me == beyond->leader_of(span.node())) {
      Shape among = call.shape;
      among.root = beyond->root >= 0 ? span.node_of(beyond->root) : 0;
      relayed.above = &above.emplace(site, *beyond, among);
    }
  }
  std::exception_ptr error;
  try {
    if (driven.beyond != nullptr && driven.beyond->failed)
      throw base::Error(base::ErrorClass::other, "this rank cannot take part");
    if (driven.lifts) {
      auto lifted = site.reach(site.mark());
      co_await std::move(lifted);
    }
    co_await relay(site, relayed, std::move(levels));
    if (above) co_await above->finish();
  } catch (...) {
    error = std::current_exception();
  }
  if (!error) co_return;
  co_await site.give_up();
  if (above) co_await above->give_up();
  std::rethrow_exception(error);
}

bool relays(const Shape& shape, const TeamFacts& facts) noexcept {
  // Slots shrink with the members that share a window, to no less than this, and their parts are numbered.
  constexpr std::size_t least_slot = std::size_t{8} << 10;
  constexpr std::size_t most_bytes = std::size_t{32} << 30;
  static_assert(most_bytes / least_slot <= share::Step::most_parts);
  return facts.driven && shape.bytes <= most_bytes;
}

}  // namespace crosslane::collective
