// Turns: the order in which this process starts the direct calls of its communicators on its GPU: that of their turns on the board,
// which is one order for all processes of the node. Streams may share a hardware queue, calls that wait for the GPU hold up launches,
// and blocks fill it: were calls of two communicators started the other way round elsewhere, each could keep the other's peers
// from running for ever. It must not know what a call does.
//
// A call is expected from before its own arrival on: so whoever finds a turn given knows of every call here that may have a lower one.
#pragma once

#include "share/board.h"

#include <cstdint>
#include <mutex>

namespace crosslane::team {

class Turns {
 public:
  /// A direct call between this rank's arrival and its start; from construction to destruction others with later turns wait for
  /// it. Forgotten at its end if it was never started.
  class Expected {
   public:
    /// Takes no memory: others wait for this rank's arrival by now.
    Expected(Turns& turns, const share::TeamPlace& place, std::uint64_t direct) noexcept;
    ~Expected();
    Expected(const Expected&) = delete;
    Expected& operator=(const Expected&) = delete;

    /// True if no call with a lower turn is still to start here. Only once it has its turn.
    [[nodiscard]] bool is_next() const;
    /// All of it is on its stream.
    void started() noexcept;

   private:
    friend class Turns;
    Turns& turns_;
    share::TeamPlace place_;
    std::uint64_t direct_;
    bool expected_ = true;
    Expected* next_ = nullptr;
  };

 private:
  std::mutex mutex_;
  Expected* first_ = nullptr;  // of those that are expected
};

}  // namespace crosslane::team
