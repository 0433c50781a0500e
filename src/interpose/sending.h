// Sending: one send, by the protocol that message/protocols.h chooses. It must not know
// receives: calls that do both wait for both.
#pragma once

#include "interpose/route.h"
#include "interpose/undertaking.h"
#include "message/protocols.h"
#include "message/transfers.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace crosslane::interpose {

/// The buffer of a send as transfers take it; `argument` describes it.
[[nodiscard]] message::Buffer buffer_of(const Argument& argument, const void* address, MPI_Count count);

/// Of a persistent operation on GPU memory, from its second start on: what lies there now, for this start. Memory that was new to us when the
/// request was made is so for its first start only.
void look_again(Process& process, message::Buffer& buffer);

class Sending {
 public:
  /// A send of `operation`, whose calls go on to `next`. It must be done() before it goes, if it was started.
  Sending(Process& process, const mpi::Functions& next, std::shared_ptr<Operation> operation)
      : process_(process), next_(next), operation_(std::move(operation)) {}
  ~Sending();
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

  /// What a call does with its buffer.
  struct Manner {
    bool waits = true;    ///< It returns when the buffer is free; else that is its request's affair.
    bool copies = false;  ///< A copy is sent: the buffer is written to meanwhile.
  };
  /// Which way a send of this buffer goes to `dest`; for one with a header that is made.
  [[nodiscard]] message::Protocol choose(const message::Buffer& buffer, int dest, Manner manner);

  /// Of a payload that is packed as a copy: returns when the copy is there.
  void copy(const message::Buffer& buffer);

  /// The MPI's procedure that the application called.
  using Procedure = int (*)(const mpi::Functions&, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm);

  /// Sends the header that choose() made, and starts its payload. Returns MPI's error code. Where a tool sits between here and MPI, the header
  /// is sent by `seen`, if that is given: the tool sees the call that the application made. A synchronous send waits for its receiver.
  int start_with_header(message::Buffer buffer, int dest, int tag, MPI_Comm comm, Procedure seen, bool synchronous);
  /// The MPI's own nonblocking send, of host memory.
  int start_plain(const void* address, MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm);

  /// Looks once. Throws what went wrong.
  bool done();
  /// Waits for it.
  void finish();
  /// Once it was started: whom it waits for, for the watchdog.
  [[nodiscard]] std::string details() const { return waits_for_receiver(dest_, tag_); }
  [[nodiscard]] int dest() const noexcept { return dest_; }
  [[nodiscard]] int tag() const noexcept { return tag_; }
  /// What is under way with a header, to be completed by a request.
  [[nodiscard]] std::unique_ptr<Undertaking> undertaking();

 private:
  struct Posted;
  class Started;
  void pack(const message::Buffer& buffer);
  void drop(const message::Header& header);
  Process& process_;
  const mpi::Functions& next_;
  std::shared_ptr<Operation> operation_;
  std::optional<message::Header> header_;  // made, and not sent
  message::Transfers::PackingPointer packing_;
  std::shared_ptr<Posted> posted_;
  MPI_Request request_{};
  bool plain_ = false;
  int dest_ = 0, tag_ = 0;
};

/// Whether the element type and count are the application's mistake, which the MPI shall name; else the packed bytes.
[[nodiscard]] std::optional<std::size_t> packed_bytes(Process& process, MPI_Count count, MPI_Datatype type) noexcept;

}  // namespace crosslane::interpose
