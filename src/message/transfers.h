// Transfers: payloads that follow a header. Read by the receiver from the sender's GPU memory (rendezvous.cpp; TYPES, section 4.1), or
// in chunks through host memory, pipelined on both sides: the copy between GPU and host of one chunk runs while MPI moves others.
// Payloads that cannot be read there go through GPU memory of ours, which can (packed.cpp).
// It must not know the application's communicators, nor matching.
//
//   sender                                            receiver
//   an offer (share/offers.h) in a header  ------->   matched by MPI
//                                                     takes the offer, and reads; its GPU says when it has
//   its helper thread copies it to the host   <----   cannot open the memory: declines
//   and fills that in, piece by piece         ---->   takes it from its ferry (ferried.cpp, share/ferry.h)
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
#include "base/recycler.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "engine/helper_thread.h"
#include "lane/copier.h"
#include "layout/layout.h"
#include "message/courier.h"
#include "message/header.h"
#include "message/peer_memory.h"
#include "message/tags.h"
#include "message/under_way.h"
#include "mpi/library.h"
#include "team/world.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace crosslane::message {

/// Elements of a layout, in GPU memory or on the host.
struct Buffer {
  bool on_gpu = false;
  lane::Place place;        ///< Of GPU memory.
  gpu::PointerInfo seen{};  ///< What was found at its lowest byte in this very call, if anything.
  std::byte* address = nullptr;
  std::shared_ptr<const layout::Layout> layout;
  MPI_Count count = 0;
  std::size_t bytes = 0;        ///< Packed.
  std::shared_ptr<void> owner;  ///< Of a packed host copy, which is kept as long as MPI reads it.

  /// Its lowest byte.
  [[nodiscard]] std::byte* first() const {
    return lane::byte_at(address, static_cast<std::ptrdiff_t>(layout->span(count).begin));
  }
};

/// What became of a receive.
struct Received {
  std::size_t bytes = 0;   ///< That were written.
  bool truncated = false;  ///< The payload was longer than the buffer.
  bool failed = false;     ///< The sender could not read its buffer.
};

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
  /// How often who waits for another rank's part asks whether that rank lives, and whether the GPU works: calls of the system and of the driver.
  static constexpr base::Duration between_questions = std::chrono::seconds{1};

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

  /// The reading of an offered payload.
  struct Reading;
  using ReadingPointer = std::shared_ptr<Reading>;
  /// Payloads that are found together, and read together: mostly by one kernel, which writes the words that tell of their ends, too.
  class Gathering;
  /// Takes the offer of a header, and enqueues what reads the payload into GPU memory; null where there is no offer to take. With a
  /// `gathering` it may be enqueued with what comes after it.
  [[nodiscard]] ReadingPointer begin_reading(const Header& header, const Buffer& buffer, const engine::Watch& watch,
                                             Gathering* gathering = nullptr);
  /// True if the GPU does the rest, or has failed: it ends with end_of(), and finish_reading() tells how. Else pull() has to go on with it.
  [[nodiscard]] static bool reads_by_itself(const ReadingPointer& reading) noexcept;
  /// Of a header, and what begin_reading() made of it: which way its payload comes.
  [[nodiscard]] static std::string_view route_of(const Header& header, const ReadingPointer& reading) noexcept;
  [[nodiscard]] static engine::Completion end_of(const Reading& reading) noexcept;
  /// Goes on with it where it has to be, from each look of who waits for it.
  void urge(const ReadingPointer& reading);
  /// Ends it where the GPU has failed, which then may never do so. Costs a call of the driver.
  void look_for_failure(Reading& reading) const;
  /// It cannot go on here, and its sender is to hear of it.
  void fail(Reading& reading, std::exception_ptr failure) const;
  /// While it lives, this thread waits, and no other one calls MPI: payloads may come meanwhile in ways that need it (attended.cpp).
  class Attending {
   public:
    /// `transfers`: nothing is attended where it is null.
    explicit Attending(Transfers* transfers) noexcept : transfers_(transfers) {
      if (transfers_ == nullptr || transfers_->attending_++ != 0) return;
      ++transfers_->waits_;
      transfers_->finds_first_ = true;
    }
    ~Attending() {
      if (transfers_ == nullptr) return;
      --transfers_->attending_;
      transfers_->leave_attended();
    }
    Attending(const Attending&) = delete;
    Attending& operator=(const Attending&) = delete;

    /// To be called all the time.
    void look() const noexcept {
      if (transfers_ != nullptr) transfers_->look_for_ends();
    }

   private:
    Transfers* const transfers_;
  };
  /// And while this lives, it does something else in between: a callback of the application's.
  class Elsewhere {
   public:
    explicit Elsewhere(Transfers* transfers) noexcept : transfers_(transfers) {
      if (transfers_ == nullptr) return;
      transfers_->leave_attended();
      ++transfers_->waits_;
      attending_ = std::exchange(transfers_->attending_, 0);
    }
    ~Elsewhere() {
      if (transfers_ != nullptr) transfers_->attending_ = attending_;
    }
    Elsewhere(const Elsewhere&) = delete;
    Elsewhere& operator=(const Elsewhere&) = delete;

   private:
    Transfers* const transfers_;
    unsigned attending_ = 0;
  };
  /// Before that thread goes where it does not look: what it attends to must not need it any more.
  void leave_attended() noexcept;
  /// What was received. Throws Error where the GPU or the driver has failed; the sender knows.
  [[nodiscard]] Received finish_reading(const Reading& reading) const;
  /// Fetches the payload of a header into a buffer: as much as fits, and drops the rest. What `watch` and the buffer
  /// refer to must live until the task is finished. `reading`: what began it; may be null.
  engine::Task<> pull(Header header, Buffer buffer, std::shared_ptr<Received> received, ReadingPointer reading,
                      engine::Watch watch);

  /// A send with this header returns before it is matched: programs may count on that where it is so short, or all of it has a block.
  [[nodiscard]] static bool returns_unmatched(const Header& header) noexcept {
    const Pieces& pieces = header.pieces;
    return header.offer         ? header.bytes <= short_bytes
           : pieces.blocks == 0 ? false
                                : pieces.count(header.bytes) <= pieces.blocks;
  }

  /// How many payloads to this rank were held until others were over; and how many it has read though it had asked for them.
  [[nodiscard]] std::uint64_t held() const noexcept { return held_so_far_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t taken_back() const noexcept { return taken_back_.load(std::memory_order_relaxed); }

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

  /// In MPI_Finalize, by every rank of the world: ends payloads that nobody asked for (their receive was truncated).
  void finish();

 private:
  // MPI promises nothing, but the MPIs' own limits within a node are 4 to 64 KiB.
  static constexpr std::size_t short_bytes = std::size_t{64} << 10;

  /// This rank does not read it, and has asked for it: as which payload of its ferry.
  [[nodiscard]] static std::optional<std::uint64_t> ferried(const ReadingPointer& reading) noexcept;

  struct Outgoing;
  /// How a payload goes in chunks.
  struct Manner {
    bool patient = true;  ///< Wait for the receiver a while; else all is handed to MPI at once.
    bool matched = true;  ///< Return when the header is matched; else before.
  };
  /// What is in the host memory of its sender, for a receiver that declines the offer; nothing: it could not be had.
  struct Copy {
    Copy(const share::Offers::Ticket& ticket, int receiver) : offer(ticket), to(receiver) {}
    const share::Offers::Ticket offer;
    const int to;
    bool carried = false;  // for the helper thread: it has begun
    // Memory of no context: that may end before the receiver takes the last of it.
    std::optional<std::vector<std::byte>> payload;
  };
  // Each keeps the word of its offer until it is asked for: others are needed for what is read.
  static constexpr std::size_t most_stored = share::Offers::most / 2;
  [[nodiscard]] std::optional<Header> open_shown(const Buffer& buffer);
  engine::Task<> send_offered(Offering& offering, engine::Completion matched, std::shared_ptr<void> alive);
  engine::Task<> hasten(std::shared_ptr<Copy> stored);
  engine::Task<> hasten_outstanding(std::shared_ptr<Copy> stored);
  engine::Task<> keep_stored(std::shared_ptr<Copy> stored, engine::Completion matched, std::shared_ptr<void> alive);
  engine::Task<> send_chunks(Buffer buffer, Header header, int to, engine::Completion matched, Manner manner,
                             engine::Watch watch, std::shared_ptr<void> alive);
  engine::Task<> to_host(const Buffer& buffer, std::size_t begin, std::shared_ptr<Buffer> copy,
                         const engine::Watch& watch);
  void enqueue(Reading& reading, const Header& header, const Buffer& buffer);
  [[nodiscard]] bool suits_courier(const Reading& reading, const Header& header, const Buffer& buffer,
                                   std::size_t most) const;
  [[nodiscard]] std::optional<Courier::Errand> errand_of(const Reading& reading, const Buffer& buffer) const;
  bool carry(Reading& reading, const Header& header, const Buffer& buffer);
  /// It is for the kernel that stays, where one does.
  [[nodiscard]] bool may_queue(const Reading& reading, const Header& header, const Buffer& buffer,
                               const Gathering& gathering) const;
  /// Puts it off for that kernel. False for what is to be read in another way.
  [[nodiscard]] bool queue(const ReadingPointer& pointer, const Header& header, const Buffer& buffer,
                           const engine::Watch& watch);
  void carry_queued() noexcept;
  [[nodiscard]] bool tell_courier() noexcept;
  void read_queued(Gathering& gathering) noexcept;
  /// `first` and others, of so many bytes in all, are read together without it since then.
  void time(Reading& first, std::size_t bytes, base::Time begun) noexcept;
  bool gather(lane::Batch& batch, Reading& reading, const Header& header, const Buffer& buffer);
  engine::Task<> read(Header& header, const Buffer& buffer, ReadingPointer reading, engine::Watch watch);
  engine::Task<> read_to_host(const Header& header, const Buffer& buffer, std::size_t begin, std::size_t end,
                              const std::byte* from, share::Offers::Ticket offer, const engine::Watch& watch);
  engine::Task<> read_long_to_host(Header header, Buffer buffer, ReadingPointer reading, engine::Watch watch);
  void pack_next(Packing& packing);
  engine::Task<> all_packed(PackingPointer packing);
  engine::Task<> settle(PackingPointer packing);
  engine::Task<> fill(PackingPointer packing, int to, engine::Watch watch);
  engine::Task<std::shared_ptr<Copy>> store(PackingPointer packing, int to, std::uint64_t piece, engine::Watch watch);
  engine::Task<> ended_or_dead(share::Offers::Ticket piece, int to);
  engine::Task<> break_off(PackingPointer packing, int to);
  engine::Task<std::uint64_t> read_packed(Header header, Buffer buffer, std::shared_ptr<Received> received,
                                          engine::Watch watch);
  lane::Place read_to_gpu(lane::Batch& batch, const Buffer& buffer, const lane::Side& from, const std::byte* contiguous,
                          std::size_t begin, std::size_t end);
  /// In which place peers' memory is read into a buffer on a GPU, and by what.
  struct Reader {
    lane::Place place;
    lane::Memory memory;
  };
  [[nodiscard]] Reader reader_of(const Buffer& buffer) const;
  [[nodiscard]] lane::Memory memory_in(const lane::Place& place) const noexcept;
  engine::Completion end_behind(lane::Batch& batch, const lane::Place& place, int owner,
                                const share::Offers::Ticket& offer);
  static engine::Task<> ended(lane::Batch& batch, const engine::Watch& watch);
  /// Returns when a copy of the batch is done; throws where the GPU has failed.
  static engine::Task<> written(engine::Completion copied, const lane::Batch& batch);
  /// The same where the batch is gone.
  engine::Task<> written(engine::Completion copied, lane::Place place);
  [[nodiscard]] base::Error reader_failure(const engine::Watch& watch, int reader) const;
  engine::Task<bool> moved(engine::Completion completion, engine::Completion matched) const;
  engine::Task<> finish_sending(std::shared_ptr<Outgoing> outgoing, engine::Completion matched,
                                std::shared_ptr<void> alive);
  void close(const Outgoing& outgoing);
  void post(Outgoing& outgoing, const std::byte* data, std::size_t bytes) const;
  engine::Task<> drain();
  /// Goes with one copy, straight from where it lies into the own GPU's memory, for which nothing has to be waited for.
  [[nodiscard]] bool is_plain(const Header& header, const Buffer& buffer) const;
  void read_now(Reading& reading, const Header& header, const Buffer& buffer, const engine::Watch& watch);
  /// `suits_courier`: may_queue() says so.
  [[nodiscard]] bool join(const ReadingPointer& reading, const Header& header, const Buffer& buffer,
                          const engine::Watch& watch, Gathering& gathering, bool suits_courier);
  [[nodiscard]] bool attends();
  void attend(const ReadingPointer& reading) noexcept;
  void look_for_ends() noexcept;
  void end_if_over(Reading& reading) noexcept;
  void mark(Reading& reading) noexcept;
  /// For what its sender may write: puts it off until it is its turn. False for what is to be read at once.
  [[nodiscard]] bool hold(const ReadingPointer& pointer, const Header& header, const Buffer& buffer,
                          const engine::Watch& watch);
  /// Reads as many of those as keep the links busy, and has as many written.
  void give_turns() noexcept;
  void ask(const ReadingPointer& pointer) noexcept;
  void read_held(const ReadingPointer& reading) noexcept;
  /// This rank reads it.
  void count_read(const Reading& reading, const Header& header, const Buffer& buffer) noexcept;
  struct Reads {
    std::size_t bytes;
    bool is_enough;
  };
  [[nodiscard]] Reads reads_under_way();
  void take_back(const ReadingPointer& reading, Gathering& gathering) noexcept;
  [[nodiscard]] bool takes_back(const Reading& reading);
  void read_after_all(const ReadingPointer& reading, Gathering& gathering) noexcept;
  /// The sender of a message may die in the middle of it.
  void throw_if_gone(const Header& header, const engine::Watch& watch) const;
  void write_if_asked(Offering& offering);
  void give_up_if_failed(Offering& offering);
  engine::Task<> read_or_written(Offering& offering, int to, engine::Completion over);
  void look_after(Offering& offering);
  void forget(Offering& offering) noexcept;
  engine::Task<> look_after_left();
  void look_at_left();
  [[nodiscard]] std::uint64_t ask_for(const Header& header, const share::Offers::Ticket& offer);
  engine::Task<> read_ferried(Header header, std::size_t begin, Buffer buffer, std::shared_ptr<Received> received,
                              std::uint64_t number, engine::Watch watch);
  engine::Task<> copy_declined(Offering& offering, std::shared_ptr<void> owner);
  /// A payload that lies in blocks, one for each piece, whose sender needs it no more: until its receiver is past the first one.
  struct Packed {
    Pieces pieces;
    std::uint64_t bytes;
    lane::Place place;  // that it was packed in
    int to;
  };
  void watch_packed(const Packed& packed);
  [[nodiscard]] std::vector<Packed> take_declined();
  engine::Task<> copy_packed(Packed packed);
  engine::Task<> copy_blocks(const Packed& packed, Copy& copied, const engine::Watch& watch);
  void end_unread(const Header& header, std::uint64_t piece) const noexcept;
  [[nodiscard]] bool may_copy(Offering& offering) noexcept;
  void serve(const std::shared_ptr<Copy>& copy);
  engine::Task<> carry_when_asked(std::shared_ptr<Copy> copy);
  engine::Task<> carry(std::shared_ptr<Copy> copy);
  void watch(Offering& offering, const share::Offers::Ticket& offer) noexcept;
  void begin_looking() noexcept;
  void stop_watching(const share::Offers::Ticket& offer) noexcept;
  void close_offer(const share::Offers::Ticket& offer);
  /// The same of one that may have been written.
  void close_offer(Offering& offering);
  engine::Task<> look_for_declined();
  void start_ferries();
  [[nodiscard]] engine::HelperThread& helper();
  /// False where the system has refused it.
  [[nodiscard]] bool has_helper() noexcept;
  void stop_looking();

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  team::World& world_;
  engine::Engine& engine_;
  lane::Copier& copier_;
  const std::size_t chunk_bytes_, put_bytes_;
  const base::Duration patience_;
  Tags tags_;
  std::unique_ptr<PeerMemory> peers_;
  const std::function<engine::HelperThread&()> start_helper_;
  std::atomic<engine::HelperThread*> helper_{nullptr};  // once it is there
  // Of each word of an offer: whose it is, until it is closed.
  std::array<std::atomic<Offering*>, share::Offers::most> open_{};
  std::mutex packed_mutex_;  // of the next one
  std::vector<Packed> packed_;
  std::atomic<std::size_t> packed_size_{0};
  std::atomic<bool> watches_{false};      // look_for_declined() runs
  base::LightMutex offerings_mutex_;      // of the next three
  std::vector<Offering*> offerings_;      // whose calls have left them to look_after_left(),
  bool looks_after_left_ = false;         // which runs
  bool finishing_ = false;                // and is to end
  std::atomic<int> outstanding_{0};       // transfers that their calls have left to tasks of their own
  std::atomic<std::size_t> stored_{0};    // copies of what was offered: made, or in the making
  std::atomic<std::uint64_t> events_{0};  // offers made, taken and ended
  // In MPI_Finalize, from when on no rank asks for what is stored; 0 before.
  std::atomic<std::uint64_t> all_received_{0};
  std::atomic<std::uint64_t> held_so_far_{0}, taken_back_{0};
  std::atomic<std::uint64_t> asks_seen_{0};  // share::Directory::asks()
  // Of the one thread that calls MPI.
  unsigned attending_ = 0;
  std::vector<ReadingPointer> attended_;
  std::deque<ReadingPointer> held_;  // put off, in the order in which they came
  /// For the kernel that stays, in that order.
  struct Queued {
    ReadingPointer reading;
    Courier::Errand errand;
    base::Time since;
  };
  std::deque<Queued> queued_;
  std::uint64_t waits_ = 0;   // so often it has begun to wait
  bool finds_first_ = false;  // nothing has been found for that kernel since
  // Of long payloads, what is on its way here.
  UnderWay asked_;                // written by others
  base::LightMutex reads_mutex_;  // of the next one
  UnderWay reads_;                // by this rank
  /// What is gathered, or long and read in its turn, goes by two streams in turns: one group is told of while the next one's copies run, and no
  /// more of them share the links than keep them busy.
  struct Turns {
    base::LightMutex mutex;  // held by who enqueues
    struct Batch {
      CUcontext context = nullptr;
      std::weak_ptr<lane::Batch> batch;
    };
    std::array<Batch, 2> batches;
    std::size_t next = 0;
    /// For another group at that place.
    [[nodiscard]] std::shared_ptr<lane::Batch> next_batch(lane::Copier& copier, const lane::Place& place,
                                                          const engine::Watch& watch);
  } gathering_, reading_;
  // gathering_ of what comes behind the application's default streams in any case, for which the rest must not wait.
  Turns ordered_;
};

/// For one thread, and as long as it looks for headers: what it has gathered is enqueued at its end at the latest.
class Transfers::Gathering {
 public:
  /// `transfers`: nothing is gathered where it is null. `receives`: what the call waits for, if it is known.
  explicit Gathering(Transfers* transfers, std::size_t receives = ~std::size_t{0})
      : transfers_(transfers), is_of_few_(receives <= Courier::few) {}
  ~Gathering() { enqueue(); }
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  [[nodiscard]] bool gathers() const noexcept { return transfers_ != nullptr; }
  [[nodiscard]] bool is_of_few() const noexcept { return is_of_few_; }

 private:
  friend class Transfers;
  Gathering(Transfers* transfers, Turns& turns) : transfers_(transfers), turns_(&turns), is_of_few_(false) {}
  /// The batch that a payload for this place goes with; null where it shall go by itself.
  [[nodiscard]] std::shared_ptr<lane::Batch> batch_for(const lane::Place& place, const engine::Watch& watch);
  void add(const ReadingPointer& reading, bool suits_courier) noexcept;
  /// Where that fails, all of them have failed.
  void enqueue() noexcept;

  Transfers* transfers_;
  Turns* turns_ = nullptr;                   // all go by these; null: each as its place asks for
  std::unique_lock<base::LightMutex> lock_;  // of the turns, while there is a batch
  lane::Place place_;
  std::shared_ptr<lane::Batch> batch_;
  std::vector<ReadingPointer, base::RecyclingAllocator<ReadingPointer>> members_;
  std::size_t bytes_ = 0;
  const bool is_of_few_;
  bool suit_courier_ = true;  // all of them
};

}  // namespace crosslane::message
