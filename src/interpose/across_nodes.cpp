// See across_nodes.h.
#include "interpose/across_nodes.h"

#include "base/error.h"
#include "interpose/call_facts.h"
#include "interpose/direct_buffers.h"
#include "interpose/teams.h"

#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace crosslane::interpose {
namespace {

// The first byte of a buffer that lies in GPU memory; null where the call passes none.
const void* gpu_memory_of(const Site& site, const CollectiveCall& call, const std::optional<Role>& role) {
  if (role) {
    for (const auto& part : {role->send, role->receive}) {
      if (!part) continue;
      const auto span = part->extent.layout->span(part->extent.count);
      const void* const first = lane::byte_at(part->base, static_cast<std::ptrdiff_t>(span.begin));
      if (site.on_gpu(first)) return first;
    }
    return nullptr;
  }
  // Some may not be significant, and be anything.
  for (const void* const buffer : {call.send, static_cast<const void*>(call.receive)})
    if (buffer != nullptr && site.on_gpu(buffer) && site.process().gpu().inspect(buffer).on_gpu()) return buffer;
  return nullptr;
}

// One call of such a communicator.
class AcrossNodes {
 public:
  AcrossNodes(const Site& site, team::Span& span, const CollectiveCall& call)
      : process_(site.process()),
        span_(span),
        call_(call),
        seat_{span.ranks(), span.me()},
        members_(process_.library().below(), process_.library().handles(), call.comm),
        role_(role_in(process_, seat_, call)),
        first_(gpu_memory_of(site, call, role_)) {}

  /// Whether this rank comes with the others, rather than leave the call to MPI: the same on all ranks if the user is right. Once formed, and unless
  /// the user promised, ranks come with whatever memory they have.
  [[nodiscard]] bool comes() const { return first_ != nullptr || all_come(); }

  /// Whether all ranks come to compare what they were called with: to any call, or to those that may go this way.
  [[nodiscard]] bool all_compare() const {
    const collective::Choice& choice = process_.teams()->choice();
    return all_come() || (choice.one_kind() && choice.spans_nodes(call_.collective));
  }
  void compare(const engine::Watch& watch) {
    const auto mine = encode(claim_of(process_, seat_, call_, role_), false);
    std::vector<std::array<std::uint64_t, 4>> all(static_cast<std::size_t>(span_.ranks()));
    process_.engine().run(members_.all_gather(std::as_bytes(std::span{mine}), std::as_writable_bytes(std::span{all})),
                          watch);
    collective::compare_claims(all);
  }

  /// Null where it goes to MPI: the same on all ranks.
  [[nodiscard]] const collective::Algorithm* choose(const engine::Watch& watch) {
    if (!role_) return nullptr;
    const collective::Choice& choice = process_.teams()->choice();
    const collective::Algorithm* const chosen = choice.choose_across_nodes(
        role_->shape, {.members = span_.ranks(), .driven = true, .deterministic = choice.deterministic()});
    return chosen != nullptr && formed(watch) ? chosen : nullptr;
  }

  void run(const collective::Algorithm& algorithm, const engine::Watch& watch) {
    const trace::Span traced(process_.tracer(), trace::Kind::call, call_.call, role_->bytes());
    const bool rooted = role_->shape.collective != collective::Collective::allreduce;
    collective::Beyond beyond{span_, process_.world()->messenger(), process_.engine(), rooted ? role_->shape.root : -1};
    Role within = *role_;
    const bool root_is_here = rooted && span_.node_of(role_->shape.root) == span_.node();
    within.shape.root = root_is_here ? span_.member_of(role_->shape.root) : -1;
    // Who cannot take part comes all the same, and tells the others.
    std::optional<DirectBuffers> buffers;
    std::exception_ptr reason;
    try {
      if (span_.failed())
        throw base::Error(base::ErrorClass::other,
                          "an earlier collective of this communicator failed among its nodes; make another one");
      if (process_.teams()->standing_home() == nullptr)
        throw base::Error(
            base::ErrorClass::other,
            "the CUDA context that this rank took part with was destroyed or reset; make another communicator, "
            "whose collectives go through the host");
      buffers.emplace(process_, span_.team(), call_, within, false);
    } catch (...) {
      reason = std::current_exception();
      beyond.failed = true;
    }
    try {
      process_.teams()->blocking().run(beyond, algorithm, role_->shape, buffers ? buffers->side() : collective::Side{},
                                       watch);
    } catch (...) {
      span_.fail();
      if (reason) std::rethrow_exception(reason);
      throw;
    }
    process_.teams()->count(algorithm);
    process_.took_route(call_.call, algorithm.name, role_->bytes());
    buffers->lower();
  }

 private:
  [[nodiscard]] bool all_come() const { return span_.formed() && !process_.teams()->choice().one_kind(); }
  [[nodiscard]] bool formed(const engine::Watch& watch) {
    if (span_.tried()) return span_.formed();
    team::Home* home = nullptr;
    const auto info = process_.gpu().inspect(first_);
    if (info.on_gpu()) home = process_.teams()->home_at(process_.copier().place(info));
    return span_.form({members_, process_.engine(), watch}, *process_.communicators()->of(call_.comm).key, home);
  }

  Process& process_;
  team::Span& span_;
  const CollectiveCall& call_;
  const Seat seat_;
  const team::Messenger members_;
  const std::optional<Role> role_;
  const void* const first_;
};

}  // namespace

int run_across_nodes(const Site& site, const CollectiveCall& call, base::FunctionRef<int()> otherwise) {
  Teams& teams = *site.process().teams();
  if (!teams.choice().spans_nodes() || !site.process().active()) return otherwise();
  const bool checks = teams.blocking().checks();
  if (!checks && !teams.choice().spans_nodes(call.collective)) return otherwise();
  team::Span* const span = teams.span_of(call.comm).get();
  if (span == nullptr || (!span->formed() && !site.process().gpu().present())) return otherwise();
  AcrossNodes across(site, *span, call);
  if (!across.comes()) return otherwise();
  const NamedCommunicator named{site.process(), call.comm};
  const engine::Watch watch{.call = call.call, .name = NamedCommunicator::name, .context = &named};
  if (checks && across.all_compare()) across.compare(watch);
  if (!teams.choice().spans_nodes(call.collective)) return otherwise();
  const collective::Algorithm* const algorithm = across.choose(watch);
  if (algorithm == nullptr) return otherwise();
  across.run(*algorithm, watch);
  return mpi::success;
}

}  // namespace crosslane::interpose
