// Receiver: the receiver's side of transfers, whichever way a payload comes: see transfers.h. It must not know the sender's.
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "base/light_mutex.h"
#include "base/recycler.h"
#include "engine/engine.h"
#include "engine/helper_thread.h"
#include "lane/copier.h"
#include "message/buffer.h"
#include "message/courier.h"
#include "message/header.h"
#include "message/peer_memory.h"
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

/// What became of a receive.
struct Received {
  std::size_t bytes = 0;   ///< That were written.
  bool truncated = false;  ///< The payload was longer than the buffer.
  bool failed = false;     ///< The sender could not read its buffer.
};

class Receiver {
 public:
  /// What it works with; all must outlive it.
  struct Means {
    const mpi::Functions& mpi;
    const mpi::Handles& handles;
    team::World& world;
    engine::Engine& engine;
    lane::Copier& copier;
    PeerMemory* peers;      ///< Null where the node's ranks share nothing.
    std::size_t put_bytes;  ///< Settings::put_bytes
    std::function<engine::HelperThread&()> helper;
    std::function<void()> look_at_sends;  ///< Whether they are asked for anything: by who is not back at them for long.
  };
  explicit Receiver(Means means);
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

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
    /// `receiver`: nothing is attended where it is null.
    explicit Attending(Receiver* receiver) noexcept : receiver_(receiver) {
      if (receiver_ == nullptr || receiver_->attending_++ != 0) return;
      ++receiver_->waits_;
      receiver_->finds_first_ = true;
    }
    ~Attending() {
      if (receiver_ == nullptr) return;
      --receiver_->attending_;
      receiver_->leave_attended();
    }
    Attending(const Attending&) = delete;
    Attending& operator=(const Attending&) = delete;

    /// To be called all the time.
    void look() const noexcept {
      if (receiver_ != nullptr) receiver_->look_for_ends();
    }

   private:
    Receiver* const receiver_;
  };
  /// And while this lives, it does something else in between: a callback of the application's.
  class Elsewhere {
   public:
    explicit Elsewhere(Receiver* receiver) noexcept : receiver_(receiver) {
      if (receiver_ == nullptr) return;
      receiver_->leave_attended();
      ++receiver_->waits_;
      attending_ = std::exchange(receiver_->attending_, 0);
    }
    ~Elsewhere() {
      if (receiver_ != nullptr) receiver_->attending_ = attending_;
    }
    Elsewhere(const Elsewhere&) = delete;
    Elsewhere& operator=(const Elsewhere&) = delete;

   private:
    Receiver* const receiver_;
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

  /// How many payloads to this rank were held until others were over; how many it has read though it had asked for them; and how many offers
  /// it has answered.
  [[nodiscard]] std::uint64_t held() const noexcept { return held_so_far_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t taken_back() const noexcept { return taken_back_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t answered() const noexcept { return answered_.load(); }

 private:
  /// This rank does not read it, and asks for it by its ferry.
  [[nodiscard]] static bool ferried(const ReadingPointer& reading) noexcept;

  void enqueue(Reading& reading, const Header& header, const Buffer& buffer);
  /// Goes with one copy, straight from where it lies into the own GPU's memory, for which nothing has to be waited for.
  [[nodiscard]] bool is_plain(const Header& header, const Buffer& buffer) const;
  void read_now(Reading& reading, const Header& header, const Buffer& buffer, const engine::Watch& watch);
  /// `suits_courier`: may_queue() says so.
  [[nodiscard]] bool join(const ReadingPointer& reading, const Header& header, const Buffer& buffer,
                          const engine::Watch& watch, Gathering& gathering, bool suits_courier);
  bool gather(lane::Batch& batch, Reading& reading, const Header& header, const Buffer& buffer);
  lane::Place read_to_gpu(lane::Batch& batch, const Buffer& buffer, const lane::Side& from, const std::byte* contiguous,
                          std::size_t begin, std::size_t end);
  /// In which place peers' memory is read into a buffer on a GPU, and by what.
  struct Reader {
    lane::Place place;
    lane::Memory memory;
  };
  [[nodiscard]] Reader reader_of(const Buffer& buffer) const;
  engine::Completion end_behind(lane::Batch& batch, const lane::Place& place, int owner,
                                const share::Offers::Ticket& offer);

  // By the kernel that stays, where one does.
  [[nodiscard]] bool suits_courier(const Reading& reading, const Header& header, const Buffer& buffer,
                                   std::size_t most) const;
  [[nodiscard]] std::optional<Courier::Errand> errand_of(const Reading& reading, const Buffer& buffer) const;
  bool carry(Reading& reading, const Header& header, const Buffer& buffer);
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
  engine::Task<> read(Header& header, const Buffer& buffer, ReadingPointer reading, engine::Watch watch);
  engine::Task<> read_to_host(const Header& header, const Buffer& buffer, std::size_t begin, std::size_t end,
                              const std::byte* from, share::Offers::Ticket offer, const engine::Watch& watch);
  engine::Task<> read_long_to_host(Header header, Buffer buffer, ReadingPointer reading, engine::Watch watch);
  engine::Task<std::uint64_t> read_packed(Header header, Buffer buffer, std::shared_ptr<Received> received,
                                          engine::Watch watch);
  engine::Task<> read_ferried(Header header, share::Offers::Ticket offer, std::size_t begin, Buffer buffer,
                              std::shared_ptr<Received> received, engine::Watch watch);
  void end_unread(const Header& header, std::uint64_t piece) const noexcept;

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  team::World& world_;
  engine::Engine& engine_;
  lane::Copier& copier_;
  PeerMemory* const peers_;
  const std::size_t put_bytes_;
  const std::function<engine::HelperThread&()> helper_;
  const std::function<void()> look_at_sends_;
  std::atomic<std::uint64_t> held_so_far_{0}, taken_back_{0}, answered_{0};
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
class Receiver::Gathering {
 public:
  /// `receiver`: nothing is gathered where it is null. `receives`: what the call waits for, if it is known.
  explicit Gathering(Receiver* receiver, std::size_t receives = ~std::size_t{0})
      : receiver_(receiver), is_of_few_(receives <= Courier::few) {}
  ~Gathering() { enqueue(); }
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  [[nodiscard]] bool gathers() const noexcept { return receiver_ != nullptr; }
  [[nodiscard]] bool is_of_few() const noexcept { return is_of_few_; }

 private:
  friend class Receiver;
  Gathering(Receiver* receiver, Turns& turns) : receiver_(receiver), turns_(&turns), is_of_few_(false) {}
  /// The batch that a payload for this place goes with; null where it shall go by itself.
  [[nodiscard]] std::shared_ptr<lane::Batch> batch_for(const lane::Place& place, const engine::Watch& watch);
  void add(const ReadingPointer& reading, bool suits_courier) noexcept;
  /// Where that fails, all of them have failed.
  void enqueue() noexcept;

  Receiver* receiver_;
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
