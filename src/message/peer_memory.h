// GPU memory as messages pass it between ranks of a node (TYPES, section 4.1: the receiver gets): shown by the sender where
// it lies, or copied to its message window; reached by the receiver. It must not know matching, nor who waits for what.
#pragma once

#include "base/backoff.h"
#include "base/clock.h"
#include "base/settings.h"
#include "gpu/mapping.h"
#include "gpu/pinned_buffer.h"
#include "lane/copier.h"
#include "message/courier.h"
#include "message/header.h"
#include "message/parcels.h"
#include "message/token.h"
#include "message/writer.h"
#include "share/ferry.h"
#include "share/offers.h"
#include "team/home.h"
#include "team/world.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace crosslane::message {

/// One rank's. Thread-safe.
class PeerMemory {
 public:
  /// All must outlive it. Of a world whose node's ranks share a directory.
  PeerMemory(team::World& world, engine::Engine& engine, lane::Copier& copier, const base::Settings& settings);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// This rank takes part with that GPU: once. Until then nothing is shown nor reached.
  void live_at(team::Home& home) noexcept;
  /// The home goes; nothing is under way there any more.
  void leave() noexcept;
  /// Before others' memory is read for a buffer at `place`, or of the host (null): whether this rank can. Where the application has
  /// ended the home's context it leaves, and says to all that they are to send otherwise.
  [[nodiscard]] bool reads_for(const lane::Place* place) noexcept;
  /// The application has ended the home's context.
  void leave_for_good() noexcept;

  /// To be called now and then, and cheap: memory that was freed is told of, and that of others closed. A driver keeps what is open elsewhere, and
  /// has no room for what the application allocates next.
  void tend() noexcept;

  /// Before this rank sends: shows memory by which others find out whether they can open this rank's, and makes what writes to theirs. Quick but for
  /// the first time.
  void prepare_to_send() noexcept;
  /// Before this rank receives GPU memory from a rank of the world, or from any (mpi::any_source): tries once whether memory of that
  /// rank can be opened here, and tells it; and, to ranks that it tells from then on, whether it takes tokens. Some milliseconds the first
  /// time.
  void meet(int world_rank, bool takes_tokens) noexcept;

  /// That rank has found that it can open memory of this one, or is this one.
  [[nodiscard]] bool is_met(int world_rank) const noexcept;
  /// Messages of that rank to GPU memory here are most likely headers: this rank reads its memory, and its last one was not sent whole.
  [[nodiscard]] bool sends_headers(int world_rank) const noexcept;
  /// How a message of that rank came.
  void came_whole(int world_rank, bool whole) noexcept;

  /// True if the next message to that rank, of so many bytes, which this call counts, had better not wait for it: lately it came only when payloads
  /// had been copied to the host. Of long ones it is never true.
  [[nodiscard]] bool comes_late(int world_rank, std::size_t bytes) noexcept;
  /// What became of one: it came for the payload in time, or not.
  void came_for(int world_rank, std::size_t bytes, bool in_time) noexcept;

  /// It looks at short messages, too (token.h). Not this rank itself.
  [[nodiscard]] bool takes_tokens(int world_rank) const noexcept;
  [[nodiscard]] bool shares_gpu_with(int world_rank) const noexcept;
  /// The two take turns on one GPU: what one of them starts may wait for milliseconds.
  [[nodiscard]] bool takes_turns_with(int world_rank) const noexcept;

  /// What a header tells of `bytes` contiguous bytes of GPU memory; nothing where others cannot open them, nor while they lie in a small
  /// allocation (CROSSLANE_EXPORT_BYTES) that was not passed CROSSLANE_EXPORT_USES times. `seen` is what inspect() has just
  /// told of the first, or empty.
  struct Shown {
    share::Exposed exposed;
    std::uint64_t address;
  };
  /// Nor before it was passed for the time of that number, while it is not shown.
  [[nodiscard]] std::optional<Shown> show(const std::byte* first, std::size_t bytes, const gpu::PointerInfo& seen,
                                          unsigned uses = 1) noexcept;
  /// Kernels of this rank take no turns with another one's on its GPU.
  [[nodiscard]] bool runs_kernels_at_once() const noexcept;
  /// Whether that rank may be asked to write: it lives on another GPU, has not found that it cannot open this rank's memory, and came the last
  /// time. Whether it waits now, so that it will come; and whether it came.
  [[nodiscard]] bool may_be_asked(int world_rank) noexcept;
  [[nodiscard]] bool waits(int world_rank) const noexcept;
  void came(int world_rank, bool soon) noexcept;
  /// It is seen to write: others of its messages may have to wait meanwhile. And how often that was so.
  void writes(int world_rank) noexcept;
  [[nodiscard]] std::uint64_t wrote(int world_rank) const noexcept;
  [[nodiscard]] share::Offers& offers() noexcept { return offers_; }
  [[nodiscard]] const Tokens& tokens() const noexcept { return tokens_; }
  /// For payloads that cannot be shown, of the GPU where this rank lives.
  [[nodiscard]] Parcels& parcels() noexcept { return parcels_; }

  /// Reads short contiguous payloads into this rank's memory.
  [[nodiscard]] Courier& courier() noexcept { return courier_; }
  /// Behind a payload of about so many bytes that it did not read: if it is wanted for the next one, it is launched. True: that took a while.
  bool launch_courier(const Courier::Kind& kind) noexcept {
    return courier_.wants(kind) && has_gpu_to_itself() && courier_.launch(kind.bytes);
  }

  /// Writes long ones to memory of other ranks.
  [[nodiscard]] Writer& writer() noexcept { return writer_; }

  /// Where this rank lives; nowhere before something is met.
  [[nodiscard]] lane::Place place() const noexcept;

  /// What such memory is to a kernel at `place`: it is mapped where this rank lives, and kernels of another of its GPUs do not reach it; copies do.
  [[nodiscard]] lane::Memory memory_in(const lane::Place& place) const noexcept {
    return place.context == this->place().context ? lane::Memory::gpu : lane::Memory::host;
  }

  /// Another rank's memory as this one reads it; or its own.
  struct Reached {
    std::byte* data = nullptr;  ///< Null where it cannot be opened: a rank of which that is often so is refused.
    std::shared_ptr<const gpu::Mapping> mapping;  ///< Keeps it open.
  };
  [[nodiscard]] Reached reach(const Header& header) noexcept;
  /// Where the entries of its list are.
  [[nodiscard]] Reached reach_list(const Header& header) noexcept { return reach(header.sender, header.list); }
  /// What that rank of the world, not this one, has shown.
  [[nodiscard]] Reached reach(int world_rank, const share::Exposed& exposed) noexcept;
  /// The sender's message window. Throws Error where the driver refuses to open it.
  [[nodiscard]] const std::byte* reach_window(const Header& header);
  /// Of what could not be opened now.
  [[nodiscard]] bool may_open_later(int world_rank) const noexcept;
  /// It turned out that this rank cannot open that one's memory: it is to send otherwise.
  void refuse(int world_rank) noexcept;
  /// Whose words a header's offer lies in.
  [[nodiscard]] int owner(const Header& header) const noexcept { return world_.nodes().local_rank(header.sender); }
  /// False if its sender has died: Directory::alive().
  [[nodiscard]] bool alive(const Header& header) const noexcept { return world_.directory().alive(owner(header)); }
  /// The same of a rank of this node.
  [[nodiscard]] bool alive(int world_rank) const noexcept {
    return world_.directory().alive(world_.nodes().local_rank(world_rank));
  }
  /// By which this rank is sent what it cannot read, and that rank of the world.
  [[nodiscard]] share::Ferry own_ferry() const noexcept {
    return {world_.directory(), world_.directory().local_rank()};
  }
  [[nodiscard]] share::Ferry ferry_of(int world_rank) const noexcept {
    return {world_.directory(), world_.nodes().local_rank(world_rank)};
  }
  /// Where a stream in this rank's contexts writes a word of an offer; 0 where it cannot.
  [[nodiscard]] CUdeviceptr address_of(const std::atomic<std::uint64_t>& word) const noexcept;

 private:
  // What the first line of a pair says, from reader to owner.
  enum Met : std::uint64_t { unknown, opens, opens_and_takes_tokens, refuses };
  [[nodiscard]] Met met(int world_rank) const noexcept;
  void meet_local(team::Home& home, int local_rank, bool takes_tokens) noexcept;
  /// No other rank has shown that it uses this one's GPU, whose kernels might have to take turns with this one's.
  [[nodiscard]] bool has_gpu_to_itself() const noexcept;
  [[nodiscard]] bool shares_gpu_with_local(int local_rank) const noexcept;
  void count_reached(int world_rank) noexcept;
  void count_unreached(int world_rank) noexcept;

  team::World& world_;
  lane::Copier& copier_;
  const std::size_t least_export_;
  const unsigned export_uses_;
  share::Offers offers_;
  Tokens tokens_;
  Parcels parcels_;
  Courier courier_;
  Writer writer_;
  std::atomic<team::Home*> home_{nullptr};
  std::atomic<base::Time> tended_{};
  std::atomic<bool> sends_{false};
  base::ShortageBackoff send_rests_;  // in messages, where memory for that was short
  std::optional<gpu::PinnedRange> words_;
  std::atomic<CUdeviceptr> words_at_{0};     // where the GPU knows them; 0 where its streams cannot write them
  std::vector<std::atomic<bool>> tried_;     // by local rank
  std::vector<std::atomic<bool>> whole_;     // by local rank: its last message came so
  std::vector<std::atomic<int>> unreached_;  // by local rank: how its memory could not be opened, see count_unreached()
  std::vector<base::ShortageBackoff> meet_rests_;  // by local rank: in receives, where memory was short
  std::vector<base::Backoff<4, 256>> asks_;        // by local rank: messages, where it did not come
  std::vector<base::Backoff<4, 256>> late_;        // the same, where it came too late to read them where they lay
  std::vector<std::atomic<std::uint64_t>> wrote_;  // by local rank
  std::atomic<int> untried_;
  std::mutex mutex_;  // held while another rank's memory is tried
};

}  // namespace crosslane::message
