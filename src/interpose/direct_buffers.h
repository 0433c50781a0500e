// The buffers of a direct collective on this rank: lifted before the call, brought back after it; without a wait where that is enqueued
// before and behind what the call enqueues. It must not know who runs it, nor when.
#pragma once

#include "collective/blocking.h"
#include "gpu/buffer.h"
#include "interpose/lifted.h"
#include "interpose/role.h"
#include "interpose/teams.h"

#include <optional>

namespace crosslane::interpose {

class DirectBuffers {
 public:
  /// Of a call of `team`, whose verdict is `direct`. Throws Error (buffer) naming the argument where memory does not hold what it
  /// should. The role's root is a member of the team. `shows`: others may map the buffers.
  DirectBuffers(Process& process, team::Team& team, const CollectiveCall& call, const Role& role, bool shows = true);
  ~DirectBuffers();
  DirectBuffers(const DirectBuffers&) = delete;
  DirectBuffers& operator=(const DirectBuffers&) = delete;

  /// What the team's members see of them.
  [[nodiscard]] collective::Side& side() noexcept { return side_; }
  /// After the call: results are where the application wants them.
  void lower();

 private:
  team::Home& home_;
  std::optional<Lifted> send_, receive_;
  std::optional<CopyMemory> kept_;
  bool over_ = false;     // the copy to it, too
  bool lowered_ = false;  // by what was enqueued
  bool gives_;
  collective::Side side_;
};

}  // namespace crosslane::interpose
