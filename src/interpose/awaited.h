// Awaited: the nonblocking receives that MPI has, in the order in which they were posted. While a program begins a window of messages, those that
// have come already are read. It must not know which call looks.
#pragma once

#include "base/clock.h"
#include "engine/completion.h"
#include "mpi/abi.h"

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace crosslane::interpose {

class Process;
struct Operation;

/// For one thread at a time: does nothing where several may call MPI at once.
class Awaited {
 public:
  void add(Process& process, MPI_Request request, std::weak_ptr<Operation> operation);
  enum class Begun { send, receive };
  /// A call that has begun another message, of so many bytes, looks at the oldest ones. Where that is short or brief seldom, for these cost less
  /// when many are read together; and not behind receives, which mostly come before the sends that other ranks wait for. Those wait for each look,
  /// too, so that no more begins than keeps the links busy meanwhile; but each send begins one more where the program may compute after the last.
  void look(Process& process, Begun begun, std::size_t bytes);
  /// A call that completes requests has its own look: an exchange of few short messages needs no other.
  void completes(const Process& process) noexcept;
  /// A call that only looks whether something else is over, as a program does again and again: now and then it looks at some of these, wherever they are.
  void passes(Process& process);
  /// One waits for these: whether what looks have begun is over by then tells what the program does behind its sends.
  void waits_for(const Process& process, std::span<const MPI_Request> requests) noexcept;

 private:
  /// What looks have begun, and is not over.
  [[nodiscard]] std::size_t bytes_under_way(Process& process);
  [[nodiscard]] bool is_enough(std::size_t under_way) const noexcept;
  [[nodiscard]] bool keeps_busy(std::size_t under_way, std::size_t bytes) const noexcept;
  /// Of the oldest what has come; true if the first that has not ended the look.
  bool begin_reading(Process& process, std::size_t under_way);

  using Receive = std::pair<MPI_Request, std::weak_ptr<Operation>>;
  struct UnderWay {
    engine::Completion done;
    std::size_t bytes;
    Receive receive;
  };
  std::deque<Receive> receives_;
  std::vector<UnderWay> under_way_;
  base::Time next_look_{};   // of what begins receives, or brief messages
  base::Time last_begun_{};  // messages that are worth a look
  unsigned passes_ = 0;
  unsigned short_ones_ = 0;     // sent since the last look, or call that completes
  bool begins_window_ = true;   // nothing was begun since a call that completes
  bool began_ = false;          // such messages, and no call has waited for them yet
  bool comes_at_once_ = false;  // the program does, to wait for what it has begun
};

}  // namespace crosslane::interpose
