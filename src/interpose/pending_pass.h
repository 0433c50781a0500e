// One pass of a call over its requests that are not ready: what is found of each, and what there is to do for it. It must not know which call it
// is, nor where the next pass begins.
#pragma once

#include "interpose/pending.h"
#include "interpose/receive.h"
#include "interpose/undertaking.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace crosslane::interpose {

class Pending::Pass {
 public:
  Pass(Pending& pending, Until until)
      : pending_(pending),
        // Of many requests that are completed one by one each call would look at all.
        stops_(until == Until::first && !pending.awaits_mpi_),
        // Each costs a turn of MPI, and messages mostly come in order: what else is waited for shall not wait for many such. A call that does
        // not wait knows nothing of the one before it, and might never come to the last of them.
        may_miss_(pending.waits_ ? 8 : pending.open_.size()),
        // Of one receive alone there is nothing to gather.
        gathering_(pending.receives_ > 1 && pending.process_.looks() ? &pending.process_.receiver() : nullptr,
                   static_cast<std::size_t>(pending.receives_)) {}

  /// All, or only receives that MPI has yet to complete, or only others.
  enum class Which { all, awaited, others };
  /// So many in turn, from the first on whose index is `from` or more. Where the next one is.
  int over(Which which, int from, std::size_t most) {
    auto& open = pending_.open_;
    const auto at = static_cast<std::size_t>(std::ranges::lower_bound(open, from) - open.begin());
    int next = from;
    bool closed = false;
    for (std::size_t seen = 0; seen < std::min(most, open.size()) && !stopped_; ++seen) {
      int& place = open[(at + seen) % open.size()];
      next = place + 1;
      if (stays_open(which, place)) continue;
      place = closed_;
      closed = true;
    }
    if (closed) {
      std::erase(open, closed_);
      ++pending_.events_;
    }
    return next;
  }
  /// The receive at which this one has had enough of those that MPI has.
  [[nodiscard]] std::optional<int> missed_at() const noexcept { return missed_at_; }
  [[nodiscard]] bool stops() const noexcept { return stops_; }
  [[nodiscard]] bool must_turn_mpi() const noexcept { return undertaken_ && missed_ == 0; }

 private:
  bool stays_open(Which which, int index) {
    Operation* const operation = pending_.look_at(index);
    if (operation == nullptr) return false;
    const auto lock = pending_.process_.handle(*operation);
    if (which != Which::all) {
      const bool awaited = operation->look && operation->look->awaits_mpi();
      if (awaited != (which == Which::awaited)) return true;
    }
    auto& found = pending_.found_[static_cast<std::size_t>(index)];
    found = state_of(*operation);
    if (found == Found::unready) {
      pending_.blamed_ = operation->raised_on();
      look(*operation, index);
      found = state_of(*operation);
    }
    if (found == Found::over) {
      pending_.over_.push_back(index);
      stopped_ = stops_;
    }
    return found == Found::unready;
  }

  void look(Operation& operation, int index) {
    if (operation.undertaking) {
      undertaken_ = true;
      return operation.undertaking->look();
    }
    const bool awaited = operation.look->awaits_mpi();
    if (awaited && missed_ >= may_miss_) return;
    interpose::look_at(pending_.process_, operation, pending_.handles_[static_cast<std::size_t>(index)], &gathering_);
    if (awaited && operation.look->awaits_mpi() && ++missed_ == may_miss_) missed_at_ = index;
  }

  Pending& pending_;
  const bool stops_;
  const std::size_t may_miss_;
  message::Receiver::Gathering gathering_;
  static constexpr int closed_ = -1;
  std::size_t missed_ = 0;
  std::optional<int> missed_at_;
  bool undertaken_ = false, stopped_ = false;
};

}  // namespace crosslane::interpose
