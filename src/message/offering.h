// Offering: a payload that its receiver reads where it lies, as its sender sees it once the header is sent. While all goes well there is nothing
// but the offer's word and MPI's request to look at; what takes long, or is amiss, goes on as a task (Transfers::send_offered).
// It must not know which call sends.
//
//   open    nobody but look(), cancel() and Transfers::look_at_left() has to do with it   -> held
//   held    by the one of these that has something to do                          -> open, over, task
//   over    the buffer is free, and the offer closed
//   task    a task has it: over when that is done
#pragma once

#include "message/transfers.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

namespace crosslane::message {

class Transfers::Offering {
 public:
  /// Of a header that was sent. `request`: its message's, which is tested here; null where nothing is to be waited for. `status`: where it tells
  /// that it was cancelled; may be null. `returns`: after how long at most, unless much else is going on here, the buffer is free even if the
  /// message is not matched (returns_unmatched()); else it waits for that.
  Offering(Transfers& transfers, Buffer buffer, const Header& header, int to, MPI_Request* request, MPI_Status* status,
           std::optional<base::Duration> returns, const engine::Watch& watch);
  ~Offering();
  Offering(const Offering&) = delete;
  Offering& operator=(const Offering&) = delete;

  /// `owner` has this, and what the header's message needs. `leaves`: its call returns before it is over; then it goes on whenever the engine has a
  /// turn, whoever looks.
  void start(std::weak_ptr<void> owner, bool leaves);

  /// The buffer is free, or it has failed.
  [[nodiscard]] bool over() const noexcept;
  /// Sees whether it is. Any thread.
  void look();
  /// Once it is over. Throws Error where the reader has failed, or the GPU.
  void rethrow() const;
  /// Ends it without a receiver, if it waits for one and none has matched.
  void cancel();

 private:
  friend class Transfers;
  enum class Stage : std::uint8_t { open, held, over, task };
  [[nodiscard]] bool hold() noexcept;
  void let_go_of_target() noexcept;
  void go_on_if_late(engine::Moment& moment);
  void go_on();
  [[nodiscard]] Header header() const noexcept;

  Transfers& transfers_;
  // What else a task would need of the header: a tenth of it, as there is one of these for each message.
  struct Essentials {
    explicit Essentials(const Header& header) noexcept
        : bytes(header.bytes),
          chunk_bytes(header.chunk_bytes),
          token(header.token),
          sender(header.sender),
          tag(header.tag),
          list(header.listed.held) {}
    std::uint64_t bytes, chunk_bytes, token;
    std::int32_t sender, tag;
    std::shared_ptr<const void> list;  // of an irregular payload: stays while it is read
  };

  Lookout::Payload payload_;
  const Essentials header_;
  MPI_Request* request_;
  MPI_Status* const status_;
  const std::optional<base::Duration> returns_;
  const base::Time late_;  // from when on a task has it
  std::atomic<bool> left_{false};
  // Where this rank writes it to, while it is held or a task's (put.cpp); empty once it is there, or was read.
  std::optional<PeerMemory::Reached> target_;
  std::atomic<unsigned> looks_{0};
  std::atomic<Stage> stage_{Stage::open};
  std::atomic<bool> unwanted_{false};  // cancel() was called, perhaps while another thread held it
  engine::Completion matched_, task_;  // written while it is held
};

}  // namespace crosslane::message
