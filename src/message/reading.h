// An offered payload on its way to this rank, whichever way it takes. It must not know what drives it.
#pragma once

#include "message/receiver.h"

#include <exception>
#include <memory>
#include <optional>

namespace crosslane::message {

struct Receiver::Reading {
  /// Of a payload that is put off (held.cpp, queued.cpp), or that its sender may write (put.cpp): what it takes to read it after all.
  struct Asked {
    Header header;
    Buffer buffer;
    engine::Watch watch;
    std::optional<base::Time> since{};  ///< When it was asked; nothing before it is this payload's turn.
    std::uint64_t wrote = 0;            ///< What PeerMemory::wrote() said then.
  };

  /// Of one that was enqueued without a word behind it (attended.cpp).
  struct Unmarked {
    lane::Place place;
    base::Time over{};  ///< Not before.
  };

  /// What is compared with what the same took in another way.
  struct Timed {
    base::Time begun;
    Courier::Kind kind;
    std::uint64_t wait;  ///< Receiver::waits_ then.
  };

  PeerMemory::Reached source, list;  // held until the batch has ended
  bool ferried = false;              // comes by this rank's ferry
  bool stored = false;               // by its sender, which has waited for long
  bool to_gpu = false;
  Received received;  // once it is done
  int owner = 0;
  share::Offers::Ticket offer;
  std::exception_ptr failure;  // of what was to be enqueued
  bool told = false;           // the sender knows that it failed, and may use the offer again
  std::shared_ptr<lane::Batch>
      batch;  // what was gathered together shares one; null of what the courier carries, or the sender writes
  std::unique_ptr<Asked> asked;  // unless this rank reads
  std::optional<Timed> timed;    // of what the courier might carry
  std::optional<Unmarked> unmarked;
  engine::Completion done;
};

}  // namespace crosslane::message
