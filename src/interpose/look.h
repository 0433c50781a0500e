// Look: what a receive needs on a rank that looks at what it receives (message/header.h): where MPI puts the message, how
// to tell whether that is a header, and how the payload is fetched. It must not know which call receives or completes.
#pragma once

#include "base/recycler.h"
#include "engine/completion.h"
#include "message/receiver.h"
#include "message/unexpected.h"
#include "mpi/functions.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>

namespace crosslane::interpose {

class Sending;

struct Freed {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

/// A receive passes through these states; a persistent one starts over with each start.
///
///   posted    MPI has it                                       -> plain, put_off, pulling
///   plain     MPI has completed it, with an ordinary message   (MPI's own completion call finishes it)
///   put_off   it was a header: the payload is to be fetched, once its memory is settled (a stream that waited would keep others from going on)
///                                                              -> pulling, fetched
///   pulling   the same: it is being fetched                    -> fetched
///   fetched   the payload is in the buffer, `status`, `error` and `code` say how it went
///
/// MPI's request of a persistent receive is completed where it is looked at, since a mere query makes it inactive in
/// MPICH 5.0. So it is never plain: an ordinary message is delivered at once, and it goes from posted to fetched.
/// One that was matched from the unexpected queue, `own`, begins with pulling or fetched.
struct Look : base::Recycled {
  enum class State { posted, plain, put_off, pulling, fetched };
  /// The watchdog of a thread that waits for the request asks for it while another thread may query that: what was told of a payload
  /// before is then there. As cheap as the plain one.
  class SharedState {
   public:
    SharedState& operator=(State state) noexcept {
      value_.store(state, std::memory_order_release);
      return *this;
    }
    // NOLINTNEXTLINE(google-explicit-constructor)
    operator State() const noexcept { return value_.load(std::memory_order_acquire); }

   private:
    std::atomic<State> value_{State::posted};
  };

  message::Buffer buffer;  // the application's, or
  bool apart = false;  // the host copy of one that lies in several memories, packed: brought there once all has come
  MPI_Comm comm{};
  int source = 0;
  int tag = 0;
  void* address = nullptr;  // what MPI is given
  MPI_Count count = 0;
  MPI_Datatype type{};
  const std::byte* landing = nullptr;      // where the message begins there: it has no holes
  std::unique_ptr<std::byte, Freed> temp;  // that place, for host memory with holes

  SharedState state;
  bool own = false;                               // MPI does not have it
  bool left = false;                              // its request was freed
  bool matched = false;                           // by a probe, before
  bool started = false;                           // a persistent one, once
  std::unique_ptr<const message::Header> header;  // while it is put off
  engine::Completion pull;                        // the end of its way here,
  message::Receiver::ReadingPointer reading;      // which the GPU reads by itself; or
  std::shared_ptr<message::Received> received;    // what the task told that fetches it
  unsigned looks = 0;                             // at a reading
  int sender = -1;                                // of the header: its rank in MPI_COMM_WORLD,
  std::uint64_t payload = 0;                      // and how much it has
  MPI_Request inner{};  // a persistent receive that was matched with a message that MPI holds: that message's
  bool has_inner = false;
  MPI_Status status{};
  std::exception_ptr error;  // what went wrong with the payload
  int code = mpi::success;   // what MPI returned, and raised, for a message that it has completed already
  bool fails = false;        // MPI's completion call will

  std::shared_ptr<Sending> send;     // MPI_Isendrecv: the other half while it is under way,
  std::exception_ptr send_error;     // how it went,
  std::shared_ptr<void> companion;   // what it reads,
  int send_dest = -1, send_tag = 0;  // and where it goes, if anywhere

  /// Only MPI can tell how it goes on.
  [[nodiscard]] bool awaits_mpi() const noexcept { return state == State::posted && send == nullptr; }
  /// The payload of a header is on its way, or to be.
  [[nodiscard]] bool has_payload() const noexcept { return state == State::put_off || state == State::pulling; }
  [[nodiscard]] bool ready() const noexcept {
    return (state == State::plain || state == State::fetched) && send == nullptr;
  }
  /// Host copies are used again: no header of an earlier message may stand where the next one is awaited.
  void forget_landing() noexcept {
    if ((buffer.on_gpu || apart || temp) && buffer.bytes >= message::token_bytes)
      std::memset(address, 0, std::min(buffer.bytes, sizeof(team::Cookie)));
  }
  void restart() noexcept {
    state = State::posted;
    own = false;
    has_inner = false;
    header.reset();
    looks = 0;
    error = nullptr;
    code = mpi::success;
    fails = false;
  }
};

}  // namespace crosslane::interpose
