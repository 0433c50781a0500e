// Receives on a rank that looks at what it receives: described, posted, looked at, finished. The calls that do so are in
// receive.cpp, sendrecv.cpp, start.cpp and completion.cpp. It must not know how a payload travels (message/).
#pragma once

#include "interpose/route.h"

#include <memory>
#include <optional>

namespace crosslane::interpose {

/// A receive's arguments as the application gave them.
struct Receive {
  const char* buffer_name;  // of the argument, for messages
  const char* count_name;
  void* buffer;
  MPI_Count count;
  MPI_Datatype type;
  int source;
  int tag;
  MPI_Comm comm;
};

/// How much the application's arguments have room for, and whether that is memory without holes: what decides whether a
/// receive of host memory can be the MPI's own, looked at afterwards.
struct Room {
  bool known = false;  ///< False for arguments that the MPI shall refuse itself.
  std::shared_ptr<const layout::Layout> layout;
  std::size_t bytes = 0;
  bool small = false;  ///< Too small for what stands for another message.
  bool dense = false;
  std::byte* first = nullptr;  ///< Of dense memory: where it begins.
  MPI_Datatype type{};  ///< Of dense memory: bytes. A header may end inside an element, which MPICH does not take.
};
[[nodiscard]] Room room_of(Process& process, const Receive& receive) noexcept;

/// The header that a completed receive without holes got, where that had so much room.
[[nodiscard]] std::optional<message::Header> header_in(Process& process, const std::byte* landing, std::size_t room,
                                                       const MPI_Status& status);

/// A receive into host memory that the MPI's own blocking call can do, with look_after() behind it.
[[nodiscard]] bool is_simple(Process& process, const Room& room);

/// That call has returned `result` and told this status: looks at what it received, and fetches the payload where that was a header.
[[nodiscard]] int look_after(const Site& site, const char* call, const Receive& receive, const Room& room,
                             MPI_Status* told, int result);

/// The buffer of a receive that is not looked at, as the staged route takes it: packed, for as much as the status says.
const Argument& staged_receive(Route& route, void* buf, MPI_Count count, MPI_Datatype datatype);

/// Gives the route's operation a Look: where the message lands, and where it goes. What is known to be host memory
/// (not `on_gpu`, as Site says) is not asked about again. Throws Error for arguments that are not to be had. `lasting`: of a persistent
/// receive.
void describe(Route& route, const Receive& receive, const Room& room, bool on_gpu, bool lasting = false);

/// Posts the described receive, or matches it from the unexpected queue. Returns an MPI error code.
int post(Route& route, MPI_Request* request);

/// The same for a start of a persistent receive: true if it was matched from the queue, else
/// MPI has to start it, with the gate of the queue still held by the caller.
bool match_started(Process& process, Operation& operation);

/// Matches a described receive with a message that was taken from MPI.
int match(Process& process, const mpi::Functions& next, Operation& operation, const message::ArrivedPointer& arrived,
          MPI_Request* request);

/// The described receive got this header; its payload is fetched from now on.
void fetch(Process& process, Operation& operation, const message::Header& header, const MPI_Status& status,
           message::Receiver::Gathering* gathering = nullptr);

/// Looks at some of the application's receives that no call waits for: their senders may wait for this rank.
void look_around(Process& process);

/// Waits as the engine does, and meanwhile looks at the application's other receives now and then: their senders may
/// wait for this rank as it waits for them.
void wait_until(Process& process, base::FunctionRef<bool()> done, const engine::Watch& watch);

/// Looks at where a receive is now; the engine is to have its turns besides. Cheap where nothing has changed; makes MPI progress while
/// MPI has it. What it finds to read may be left to `gathering`.
void look_at(Process& process, Operation& operation, MPI_Request request,
             message::Receiver::Gathering* gathering = nullptr);

/// The same with a turn of the engine.
void advance(Process& process, Operation& operation, MPI_Request request);

/// What a receive ends with: a call that completes its request, or the blocking call itself.
enum class Ends { completion, blocking };
/// Ends a receive that is ready, as MPI_Wait: the request, the status (may be ignored) and the data. Returns MPI's code;
/// throws what went wrong with a payload.
int finish(Process& process, const mpi::Functions& next, Operation& operation, MPI_Request* request, MPI_Status* status,
           Ends ends = Ends::completion);

/// Waits until it is ready, then finish().
int wait_and_finish(Route& route, MPI_Request* request, MPI_Status* status);

}  // namespace crosslane::interpose
