// A message's two ends: a rank that sends it by a call that does not wait, and one that receives it by any way there is. It must not know
// which other messages there are.
#pragma once

#include "point_to_point/message.h"
#include "point_to_point/short/ring.h"
#include "support/layout.h"

#include <mpi.h>

#include <cstddef>
#include <string>

namespace crosslane::tests {

struct Outgoing {
  /// The message's layout moves into a buffer that is loaded.
  Outgoing(Ring& ring, Message& of);

  /// By a call that does not wait; the request may be freed at once.
  void start(Random& local);
  /// Once it is complete, and has arrived: the buffer must be what it was.
  void end(const Ring& ring);

  const Message* message;
  TypedBuffer buffer;
  MPI_Request request = MPI_REQUEST_NULL;
  bool persistent = false;
};

/// Each as MPI names it; `later` receives by a handle that was obtained long before.
enum class Way { recv, irecv, persistent, probe, iprobe, mprobe, mprobe_later, improbe, imrecv, imrecv_later, ways };

struct Incoming {
  /// Of this message, whose layout moves into the buffer.
  Incoming(Ring& ring, Message& of);
  /// Of any message of a group, from any source with any tag.
  Incoming(Ring& ring, std::string of_group, std::size_t room);

  /// Begins, and by some ways ends, the receive. Unless `blocking`, no call waits for the message.
  void receive(Ring& ring, const Link& link, bool blocking);
  /// What is only matched yet: `handle` is not null.
  void receive_matched();
  /// Once it is complete, and `message` known.
  void check(const Ring& ring);

  const Message* message = nullptr;  ///< Null: any of its group.
  std::string group;
  TypedBuffer buffer;
  Way way = Way::recv;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status{};
  bool told = true;  ///< The status.
};

/// What the status of a receive or a probe tells.
void check_bytes(const MPI_Status& status, std::size_t bytes, const std::string& what);

}  // namespace crosslane::tests
