// Messages that a probe had to take from MPI to see what they are, and that receives search before MPI: headers, ordinary
// messages of a header's length, and what came before them from the same rank. It must not know what is done with them.
//
// For each communicator and source the queue is a prefix of what has arrived and was not received: everything in it is
// older than everything that MPI still has. So the first match of the queue is the one that MPI's rules name, and only
// where there is none a receive is MPI's.
#pragma once

#include "message/header.h"
#include "mpi/library.h"
#include "team/communicators.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace crosslane::message {

/// A message that is no longer in MPI's queue.
struct Arrived {
  MPI_Comm comm{};
  std::shared_ptr<team::CommunicatorFacts> facts;  ///< The communicator itself: its handle may be another's by now.
  MPI_Status status{};                             ///< As a probe tells it: a header's count is its payload's.
  std::optional<Header> header;                    ///< Its payload is still with the sender.
  bool held = false;  ///< MPI has its bytes, to be received by `message`; else they are in `bytes`, or a header.
  MPI_Message message{};
  HeaderMessage bytes{};  ///< Of an ordinary message of a header's length.
};
using ArrivedPointer = std::shared_ptr<Arrived>;

class Unexpected {
 public:
  Unexpected(const mpi::Functions& mpi, const mpi::Handles& handles, const team::Cookie& cookie,
             MPI_Comm private_communicator, int rank)
      : mpi_(mpi), handles_(handles), cookie_(cookie), private_(private_communicator), rank_(rank) {}

  /// Held between a search of the queue and the call of MPI that depends on its outcome, so that no probe of another
  /// thread takes a message from MPI in between. Where that call fails, the application's error handler may probe or receive. "With the gate
  /// held" is nothing to one thread that alone calls MPI.
  [[nodiscard]] std::recursive_mutex& gate() noexcept { return gate_; }

  /// Nothing in the queue: asked without the gate by calls that need not look then.
  [[nodiscard]] bool empty() const noexcept { return size_.load(std::memory_order_acquire) == 0; }

  /// With the gate held: the message that a receive with these arguments gets, out of the queue; null: ask MPI.
  [[nodiscard]] ArrivedPointer take(const team::CommunicatorFacts* facts, int source, int tag);

  /// What a probe says: nothing there, or a status.
  struct Probed {
    int code = 0;  ///< What MPI returned.
    bool there = false;
    MPI_Status status{};
  };
  /// With the gate held: as MPI_Iprobe. A message of a header's length goes to the queue.
  [[nodiscard]] Probed probe(MPI_Comm comm, const std::shared_ptr<team::CommunicatorFacts>& facts, int source, int tag);

  /// With the gate held: takes the same out of the queue, and tells a handle of MPI's own that stands for it, until claim(). For a message that MPI
  /// still holds it is that message's. Where it throws, the message stays where it was.
  [[nodiscard]] std::optional<MPI_Message> hand_out(const team::CommunicatorFacts* facts, int source, int tag);

  /// The message that this handle stands for; null for one that is MPI's affair.
  [[nodiscard]] ArrivedPointer handed_out(const MPI_Message& handle);
  /// That one is received now: the handle is used up.
  void claim(MPI_Message& handle);

 private:
  using Queue = std::list<ArrivedPointer>;
  static std::uint64_t key(MPI_Message handle) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &handle, sizeof handle);
    return bits;
  }
  ArrivedPointer take(Queue::iterator arrived) noexcept;
  [[nodiscard]] Queue::iterator find(const team::CommunicatorFacts* facts, int source, int tag);
  [[nodiscard]] Queue extract(MPI_Comm comm, const std::shared_ptr<team::CommunicatorFacts>& facts, int source,
                              int& code);

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  const team::Cookie cookie_;
  const MPI_Comm private_;
  const int rank_;
  std::recursive_mutex gate_;  // guards the queue
  Queue queue_;
  std::atomic<std::size_t> size_{0};
  std::mutex handles_mutex_;  // guards what was handed out
  std::map<std::uint64_t, ArrivedPointer> handed_out_;
  std::atomic<std::size_t> handed_out_size_{0};
};

}  // namespace crosslane::message
