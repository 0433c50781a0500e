// Transfers: payloads that follow a header, from the side that sends them; the other one is a Receiver's (receiver.h). Read by the receiver from the
// sender's GPU memory (rendezvous.cpp; TYPES, section 4.1), or in chunks through host memory, pipelined on both sides: the copy between GPU and host
// of one chunk runs while MPI moves others. Payloads that cannot be read there go through GPU memory of ours, which can (packed.cpp).
// It must not know the application's communicators, nor matching.
//
//   sender                                            receiver
//   an offer (share/offers.h) in a header  ------->   matched by MPI
//                                                     takes the offer, and reads; its GPU says when it has
//   its helper thread copies it to the host   <----   cannot open the memory: declines (lookout.h)
//   and fills that in, piece by piece         ---->   takes it from its ferry (ferrying.h, ferried.cpp, share/ferry.h)
//   nobody has taken it for CROSSLANE_PATIENCE_MS after the header was matched, or for a moment what is short: this rank copies it to the host,
//   and its send is over; its receiver declines, and gets it from the helper thread (of many, in chunks)
//
//   sender                                            receiver
//   packs pieces into blocks, which its GPU offers
//   a header that names blocks and offers  ------->   matched by MPI
//   the helper thread packs further pieces into       takes the offer of each piece, and reads; its GPU says when it has
//   blocks that were read
//   all is packed: the send is over                   cannot read them: declines the first, as above
//   nothing was taken for CROSSLANE_PATIENCE_MS after the header was matched: what is left is copied to the host, and the send is over; the
//   receiver declines the next piece, and gets it from the helper thread
//
// A chunk is a synchronous message on the world's private communicator: complete when the receiver has taken it.
//
//   sender                                            receiver
//   header on the application's communicator  ---->   matched by MPI
//   chunks, a few under way at a time         ---->   fetched by pull(), from inside calls that complete the receive
//   nothing fetched for CROSSLANE_PATIENCE_MS after the header was matched: the rest is copied to the host and handed to
//   MPI, which needs no help of ours to move it (the receiver may sit in a call that waits for this rank's next one), but perhaps this rank's
//   calls
//   a copy failed: the rest are empty chunks  ---->   the receive fails too
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "base/light_mutex.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "engine/helper_thread.h"
#include "lane/copier.h"
#include "message/buffer.h"
#include "message/ferrying.h"
#include "message/header.h"
#include "message/lookout.h"
#include "message/peer_memory.h"
#include "message/receiver.h"
#include "message/tags.h"
#include "mpi/library.h"
#include "team/world.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace crosslane::message {

class Transfers {
 public:
  /// All must outlive it. Of a world that is agreed(). `helper` is asked once it is needed.
  Transfers(const mpi::Functions& mpi, const mpi::Handles& handles, team::World& world, engine::Engine& engine,
            lane::Copier& copier, const base::Settings& settings, std::function<engine::HelperThread&()> helper);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// A header for a payload of this rank, with a tag of its own; close() it where no header is sent after all. Nothing while
  /// so many payloads wait for their receivers that no tag is left.
  [[nodiscard]] std::optional<Header> open(std::size_t bytes);
  /// The same for a payload that is offered where it lies; nothing where that cannot be, or, to the choosy, where packing it is faster.
  enum class Taste : std::uint8_t { choosy, any };
  [[nodiscard]] std::optional<Header> offer(const Buffer& buffer, Taste taste);
  /// The same, always where it lies and in one piece, with a token for that rank of MPI_COMM_WORLD.
  [[nodiscard]] std::optional<Header> offer_with_token(const Buffer& buffer, int to);
  /// The same for a payload that is to be packed, in blocks that wait for pack(); nothing while there is no room.
  [[nodiscard]] std::optional<Header> reserve(std::size_t bytes);
  void close(const Header& header);

  /// Sends a payload after its header, whose synchronous message is done when `matched` is. Finished when the buffer is
  /// free. Throws Error where the GPU fails; the receiver is told. `alive` lives until the task is finished: what `matched` and `watch` refer to.
  engine::Task<> send(Buffer buffer, Header header, int to, engine::Completion matched, engine::Watch watch,
                      std::shared_ptr<void> alive);

  /// The sending of an offered payload: without a task, as long as all goes well (offering.h).
  class Offering;
  /// What to pass for a send that waits: a few times what copying the payload to the host takes, which comes instead; and for one that
  /// was started, which a program mostly completes together with its receives.
  static constexpr base::Duration waiting_patience = std::chrono::microseconds{50};
  static constexpr base::Duration started_patience = std::chrono::microseconds{500};

  /// A payload on its way into blocks.
  struct Packing;
  using PackingPointer = std::shared_ptr<Packing>;
  /// Enqueues the packing of the first pieces. Throws Error where the driver refuses; the header is closed.
  [[nodiscard]] PackingPointer pack(const Buffer& buffer, const Header& header, const engine::Watch& watch);
  /// Of one that needs no receiver (returns_unmatched()): waits until all is in its blocks.
  void finish_packing(const PackingPointer& packing, const engine::Watch& watch);
  /// No header was sent after all.
  void abandon(const PackingPointer& packing);
  /// Sends what pack() began; finished when the buffer is free.
  /// MPI may cancel the header's message, as `status` (may be null) then tells: nothing is sent. `alive`: as for send().
  engine::Task<> send_packed(PackingPointer packing, int to, engine::Completion matched, const MPI_Status* status,
                             engine::Watch watch, std::shared_ptr<void> alive);

  /// A send with this header returns before it is matched: programs may count on that where it is so short, or all of it has a block.
  [[nodiscard]] static bool returns_unmatched(const Header& header) noexcept {
    const Pieces& pieces = header.pieces;
    return header.offer         ? header.bytes <= short_bytes
           : pieces.blocks == 0 ? false
                                : pieces.count(header.bytes) <= pieces.blocks;
  }

  /// What comes to this rank.
  [[nodiscard]] Receiver& receiver() noexcept { return receiver_; }

  /// GPU memory of the node's ranks; null where they share nothing.
  [[nodiscard]] PeerMemory* peers() noexcept { return peers_.get(); }

  /// Looks at the sends that their calls have left where a receiver has asked for something since the last time. Any thread that waits, all the
  /// time; who waits for a send looks at that one itself.
  void look_if_asked();

  /// Gives payloads that this rank has yet for slow receivers a turn.
  void progress() {
    if (outstanding_.load(std::memory_order_relaxed) != 0) engine_.progress();
  }
  /// See PeerMemory.
  void tend() noexcept {
    if (peers_ != nullptr) peers_->tend();
  }

  /// In MPI_Finalize, by every rank of the world: ends payloads that nobody asked for (their receive was truncated). False where a rank of this node
  /// has died: then some may be under way for ever, and refer to this object and to the world.
  [[nodiscard]] bool finish();

 private:
  // MPI promises nothing, but the MPIs' own limits within a node are 4 to 64 KiB.
  static constexpr std::size_t short_bytes = std::size_t{64} << 10;

  struct Outgoing;
  /// How a payload goes in chunks.
  struct Manner {
    bool patient = true;  ///< Wait for the receiver a while; else all is handed to MPI at once.
    bool matched = true;  ///< Return when the header is matched; else before.
  };
  // Each keeps the word of its offer until it is asked for: others are needed for what is read.
  static constexpr std::size_t most_stored = share::Offers::most / 2;
  /// That moves among this rank's messages: they only grow.
  [[nodiscard]] std::uint64_t events() const noexcept { return events_ + receiver_.answered(); }
  [[nodiscard]] std::optional<Header> open_shown(const Buffer& buffer);
  engine::Task<> send_offered(Offering& offering, engine::Completion matched, std::shared_ptr<void> alive);
  engine::Task<> hasten_outstanding(Ferrying::CopyPointer stored);
  engine::Task<> keep_stored(Ferrying::CopyPointer stored, engine::Completion matched, std::shared_ptr<void> alive);
  engine::Task<> send_chunks(Buffer buffer, Header header, int to, engine::Completion matched, Manner manner,
                             engine::Watch watch, std::shared_ptr<void> alive);
  void pack_next(Packing& packing);
  engine::Task<> all_packed(PackingPointer packing);
  engine::Task<> settle(PackingPointer packing);
  engine::Task<> fill(PackingPointer packing, int to, engine::Watch watch);
  engine::Task<Ferrying::CopyPointer> store(PackingPointer packing, int to, std::uint64_t piece, engine::Watch watch);
  engine::Task<> ended_or_dead(share::Offers::Ticket piece, int to);
  engine::Task<> break_off(PackingPointer packing, int to);
  [[nodiscard]] base::Error reader_failure(const engine::Watch& watch, int reader) const;
  engine::Task<bool> moved(engine::Completion completion, engine::Completion matched) const;
  engine::Task<> finish_sending(std::shared_ptr<Outgoing> outgoing, engine::Completion matched,
                                std::shared_ptr<void> alive);
  void close(const Outgoing& outgoing);
  void post(Outgoing& outgoing, const std::byte* data, std::size_t bytes) const;
  engine::Task<> drain();
  [[nodiscard]] bool bereaved();
  void write_if_asked(Offering& offering);
  void give_up_if_failed(Offering& offering);
  engine::Task<> read_or_written(Offering& offering, int to, engine::Completion over);
  void look_after(Offering& offering) noexcept;
  void forget(Offering& offering) noexcept;
  engine::Task<> look_after_left();
  void look_at_left();
  void close_offer(const share::Offers::Ticket& offer);
  /// The same of one that may have been written.
  void close_offer(Offering& offering);
  [[nodiscard]] engine::HelperThread& helper();
  /// False where the system has refused it.
  [[nodiscard]] bool has_helper() noexcept;
  void stop_looking();

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  team::World& world_;
  engine::Engine& engine_;
  lane::Copier& copier_;
  const std::size_t chunk_bytes_;
  const base::Duration patience_;
  Tags tags_;
  std::unique_ptr<PeerMemory> peers_;
  const std::function<engine::HelperThread&()> start_helper_;
  std::atomic<engine::HelperThread*> helper_{nullptr};  // once it is there
  base::LightMutex offerings_mutex_;                    // of the next three
  std::vector<Offering*> offerings_;                    // whose calls have left them to look_after_left(),
  bool looks_after_left_ = false;                       // which runs
  bool finishing_ = false;                              // and is to end
  bool bereaved_ = false;                               // drain() has given up
  std::atomic<int> outstanding_{0};                     // transfers that their calls have left to tasks of their own
  std::atomic<std::size_t> stored_{0};                  // copies of what was offered: made, or in the making
  std::atomic<std::uint64_t> events_{0};                // offers made and ended
  std::atomic<std::uint64_t> asks_seen_{0};             // share::Directory::asks()
  Ferrying ferrying_;
  Lookout lookout_;
  Receiver receiver_;
};

}  // namespace crosslane::message
