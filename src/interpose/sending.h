// Sending: one send of a call that waits for it, by the protocol that message/protocols.h chooses. It must not know
// receives: calls that do both wait for both.
#pragma once

#include "interpose/route.h"
#include "message/protocols.h"
#include "message/transfers.h"

#include <optional>

namespace crosslane::interpose {

class Sending {
 public:
  /// `route` must outlive it, and it must be done() before it goes.
  explicit Sending(Route& route) : route_(route) {}
  ~Sending();
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

  /// Which way a send of these bytes goes to `dest`; for a chunked one its header is made.
  [[nodiscard]] message::Protocol choose(bool on_gpu, std::size_t bytes, int dest, MPI_Comm comm);

  /// The MPI's procedure that the application called.
  using Procedure = int (*)(const mpi::Functions&, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm);

  /// Sends the header that choose() made, and starts its payload. Returns MPI's error code. Where a tool sits between here and MPI, the header
  /// is sent by `seen`, if that is given: the tool sees the call that the application made.
  int start_chunked(const message::Buffer& buffer, int dest, int tag, MPI_Comm comm, Procedure seen);
  /// The MPI's own nonblocking send, of host memory.
  int start_plain(const void* address, MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm);

  /// Looks once. Throws what went wrong.
  bool done();
  /// Waits for a chunked one.
  void finish();

 private:
  Route& route_;
  std::optional<message::Header> header_;  // made, and not sent
  MPI_Request request_{};
  bool plain_ = false;
  engine::Completion transfer_;
};

/// Whether the element type and count are the application's mistake, which the MPI shall name; else the packed bytes.
[[nodiscard]] std::optional<std::size_t> packed_bytes(Process& process, MPI_Count count, MPI_Datatype type) noexcept;

}  // namespace crosslane::interpose
