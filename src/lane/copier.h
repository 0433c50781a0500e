// Copies between GPU memory and host memory for staged calls: streams of our own in the buffer's context, and one wait
// at the end of a batch. It must not know MPI's calls: it moves bytes that a layout names.
#pragma once

#include "base/clock.h"
#include "base/light_mutex.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "gpu/buffer.h"
#include "gpu/context.h"
#include "gpu/driver.h"
#include "gpu/event.h"
#include "gpu/life.h"
#include "gpu/marker.h"
#include "gpu/stores.h"
#include "gpu/stream.h"
#include "kernel/launch.h"
#include "lane/bundle.h"
#include "lane/earlier.h"
#include "lane/marks.h"
#include "lane/mover.h"
#include "lane/pinned_pool.h"
#include "layout/layout.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace crosslane::lane {

/// The byte `offset` from `base`. Not pointer arithmetic, which ends at the object: MPI_BOTTOM with absolute displacements
/// is a buffer too, and a host copy may stand for a block that starts far before its first touched byte.
inline std::byte* byte_at(const void* base, std::ptrdiff_t offset) noexcept {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(offset));
}

/// Where a user's buffer lies: the context to copy in. The context is the primary one of the device where the memory
/// belongs to none (stream-ordered pools, virtual memory management).
struct Place {
  CUcontext context = nullptr;
  int device = -1;
  /// Copies that looked synchronous to the application may still be on their way there until this is over; mostly null.
  std::shared_ptr<const Earlier> before{};
  bool marked = true;  ///< Later ones are over when they return: see Copier::place().

  /// None may any more that came before this was made.
  [[nodiscard]] bool settled() const noexcept { return before == nullptr || before->over(); }
  /// For what touches two memories in this context.
  [[nodiscard]] Place with(const Place& other) const {
    return {context, device, Earlier::both(before, other.before), marked && other.marked};
  }
};

/// Whether the host side of a copy holds the packed stream of the layout, or the same layout as the GPU side.
enum class Form { packed, mirror };

/// What batches share within a process: the streams of each context, and the pinned pool. Thread-safe.
class Copier {
 public:
  Copier(gpu::Gpu& gpu, engine::Engine& engine, const base::Settings& settings);
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  [[nodiscard]] gpu::Gpu& gpu() noexcept { return gpu_; }
  [[nodiscard]] Mover& mover() noexcept { return mover_; }

  /// Where device memory that inspect() described belongs. The first time that an allocation is seen it is marked so that
  /// synchronous copies to it are over when they return (a small copy from pageable memory returns before, and our streams
  /// do not wait for the default ones); what came before is waited for, and always where memory cannot be marked.
  [[nodiscard]] Place place(const gpu::PointerInfo& info);

  /// Nothing that the application has enqueued has to come before a copy to or from that place.
  [[nodiscard]] bool settled(const Place& place) const noexcept {
    return order_ != base::Order::legacy && place.marked && place.settled();
  }
  /// What the application has enqueued there by now, and has to come before: for who copies by another context. Null where nothing has.
  [[nodiscard]] std::shared_ptr<const Earlier> earlier(const Place& place);
  /// Returns once nothing has, for who lets others read the memory; MPI progresses meanwhile. Throws Error (other) where the GPU has failed.
  void settle(const Place& place, const engine::Watch& watch);

  /// How many contexts the application has ended (destroyed, or reset their GPU), as far as place() has noticed: it looks when an
  /// allocation is seen first. Nothing that belonged to one may be touched any more; what this has of it is given up.
  [[nodiscard]] std::uint64_t contexts_ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// Throws Error (other) where what was enqueued at that place has failed.
  void throw_if_failed(const Place& place);
  [[nodiscard]] bool failed(const Place& place) noexcept;

 private:
  friend class Batch;
  // A stream with the word that it writes when all before is done. Lent to one batch at a time.
  struct Channel {
    CUcontext context;
    gpu::Stream stream;
    gpu::Marker marker;
    gpu::Event before;  // orders the stream after the default streams
    gpu::Life life;
    std::uint64_t ended;                    // contexts, when it was lent
    bool ordered = false;                   // after these, as they were since this batch began
    std::shared_ptr<const Earlier> behind;  // or after that
    gpu::Stores stores;                     // to be enqueued with the marker, or before anything else
    Bundle bundle{};                        // the same; one of the two is empty
    std::vector<kernel::Part> gathered{};   // copies that wait for enqueue_gathered()
    std::vector<gpu::WordWrite> words{};    // what becomes of these behind them
    gpu::Buffer counter{};  // by which a kernel tells that all of it is done; empty where there was no memory for it
    std::optional<std::uint64_t>
        told{};  // what the marker becomes with the last kernel, if nothing has come behind that
  };
  std::unique_ptr<Channel> lend_channel(const Place& place);
  void take_back(std::unique_ptr<Channel> channel) noexcept;
  static void throw_if_failed(const Channel& channel) { static_cast<void>(idle(channel)); }
  /// Whether all that was enqueued there is done. Throws Error (other) where it has failed.
  [[nodiscard]] static bool idle(const Channel& channel);
  // The mutex is held in what follows.
  /// The primary context of a device, held.
  CUcontext primary(int device);
  /// So that streams and windows there outlive the application's own hold on it, which may end before MPI_Finalize.
  void keep_if_primary(const Place& place);
  /// Gives up what belongs to contexts that have ended.
  void look_for_ended() noexcept;

  gpu::Gpu& gpu_;
  engine::Engine& engine_;
  const base::Order order_;
  PinnedPool pool_;
  Mover mover_;
  base::LightMutex mutex_;
  std::map<CUcontext, std::vector<std::unique_ptr<Channel>>> idle_;
  Marks marked_;                                // allocations, by buffer id
  std::map<int, gpu::PrimaryContext> primary_;  // by device: of memory that was seen there, or belongs to no context
  std::map<CUcontext, gpu::Life> seen_;
  std::atomic<std::uint64_t> ended_{0};
};

/// The copies of one call. They are enqueued by to_host and to_gpu and complete when wait() returns; a batch that is
/// destroyed before waits for what it enqueued, since the memory may go.
class Batch {
 public:
  /// `watch` tells the watchdog for which call the copies are; what it points to must outlive the batch.
  Batch(Copier& copier, const engine::Watch& watch) : copier_(copier), watch_(watch) {}
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// Lends staging memory, pinned in the place's context.
  [[nodiscard]] HostBlock lend(const Place& place, std::size_t bytes);
  /// The same in ordinary memory.
  [[nodiscard]] HostBlock lend_ordinary(std::size_t bytes) { return copier_.pool_.lend_ordinary(bytes); }

  /// Copies bytes [begin, end) of the packed stream of `count` elements at `device` to the host. In packed form `host`
  /// receives stream byte `begin` first; in mirror form `host` stands for the same address as `device`. Throws Error
  /// (buffer) where the memory was freed since place() described it.
  void to_host(const Place& place, std::byte* host, const std::byte* device, const layout::Layout& layout,
               MPI_Count count, std::size_t begin, std::size_t end, Form form);

  /// The same, from the host, which can read them: only bytes that the layout touches are written.
  void to_gpu(const Place& place, std::byte* device, const std::byte* host, const layout::Layout& layout,
              MPI_Count count, std::size_t begin, std::size_t end, Form form);

  /// The same of a contiguous layout, from memory that the place's context reaches, a peer's on a GPU; `source` is where stream byte `begin` is.
  void pull(const Place& place, std::byte* device, const std::byte* source, const layout::Layout& layout,
            MPI_Count count, std::size_t begin, std::size_t end);

  /// Copies bytes [begin, end) of the packed stream from one side to the other, both in GPU memory of the place's context. Where
  /// either memory is not settled, the place must not be (Place::with). Memory::host: one of them is memory that kernels there may not reach.
  void across(const Place& place, const Side& to, const Side& from, std::size_t begin, std::size_t end,
              Memory memory = Memory::gpu);

  /// The same for who enqueues many, and calls wait(): short copies wait for each other, until something else is to be enqueued or waited for, and one
  /// kernel makes all of them. They do not where nothing of this batch is under way. What touches the same bytes as another one still comes behind it.
  /// Where that kernel could not be launched wait() throws. What was freed meanwhile is left out, which refused() tells.
  void across_together(const Place& place, const Side& to, const Side& from, std::size_t begin, std::size_t end,
                       Memory memory = Memory::gpu);

  /// The same from elements of a peer whose list that context reaches, too (Mover::follow).
  void follow(const Place& place, const Side& to, const std::byte* from, const Listed& list, std::size_t begin,
              std::size_t end, Memory memory = Memory::gpu);

  // Kernels that tell of their end themselves, where they are the last. What they touch is what the place's context reaches, and settled.
  /// inout = in op inout, of one element at least. Throws Error (op) where MPI does not define that.
  void combine(const Place& place, const kernel::Kernels& kernels, kernel::Op op, kernel::Element element,
               const kernel::ReduceParameters& what);
  /// A short value is replaced. Where Mover::prepare() has said that there are kernels.
  void swap(const Place& place, const kernel::SwapParameters& what);

  /// Copies bytes [begin, end) of the packed stream from a side in memory that the place's context reaches to lent memory.
  void fetch(const Place& place, std::byte* host, const Side& from, std::size_t begin, std::size_t end);
  void fetch(const Place& place, std::byte* host, const std::byte* from, const Listed& list, std::size_t begin,
             std::size_t end);

  /// Byte `begin` of the stream of elements at `memory`, and what it lies in. Throws Error (buffer) where that was freed since place()
  /// described it: an operation may have been under way for long, and a real driver takes such an address for ordinary memory, which a
  /// copy then touches, or a kernel, which takes its context along.
  struct Byte {
    std::ptrdiff_t offset;
    gpu::PointerInfo::Kind kind;
  };
  enum class Use { read, written };
  Byte look(const std::byte* memory, const layout::Layout& layout, MPI_Count count, std::size_t begin, Use use) const;

  /// For a group of its own that goes by the channels of one before: it is put in order anew.
  void begin_again() noexcept;

  /// What is enqueued from here on at that place comes behind what the application has enqueued before, where it is not settled.
  void come_behind(const Place& place);

  /// Enqueues "the word becomes `value`" after the copies at that place, for others than this batch to see, and returns that
  /// completion; `address` as in gpu::write_word. Takes the place of wait().
  [[nodiscard]] engine::Completion mark(const Place& place, std::atomic<std::uint64_t>& word, CUdeviceptr address,
                                        std::uint64_t value);

  /// across() and mark() of what is to be enqueued together with others: gathers the copy of the first bytes to elements of a layout, and the
  /// word that tells others when it is done, until enqueue_gathered(). All of one place, and nothing else of this batch meanwhile. Nothing,
  /// and nothing gathered, for what has to be copied by itself.
  [[nodiscard]] std::optional<engine::Completion> gather(const Place& place, std::byte* device,
                                                         const layout::Layout& layout, MPI_Count count,
                                                         const Side& from, std::size_t bytes, Memory memory,
                                                         const gpu::WordWrite& word);
  /// Takes the place of wait(), as mark() does. `memory`: whether kernels there reach what is copied.
  void enqueue_gathered(Memory memory);

  /// Whether MPI makes progress while a wait lasts, if it does not last long (Engine::wait_apart).
  enum class Mpi { progresses, rests };
  /// Returns when all enqueued copies are complete. Throws Error (other) where the GPU reports a failure.
  void wait(Mpi mpi = Mpi::progresses);
  /// Behind wait(): the first of across_together() that was left out, if any, the others being there; Error (buffer). Forgotten then.
  [[nodiscard]] std::exception_ptr refused() noexcept { return std::exchange(refused_, nullptr); }
  /// The same as wait() without a word to wait for, nor a turn of the engine: the driver is asked. For who has nobody to tell: false where the GPU has
  /// failed.
  [[nodiscard]] bool drains() noexcept;

  /// Enqueues the marker of everything so far and returns its completion, for tasks: they wait by awaiting it, and ask
  /// throw_if_failed() now and then, since a GPU that has failed never writes the marker.
  [[nodiscard]] engine::Completion completion();
  void throw_if_failed() const;

  /// Asks the driver whether all that was enqueued is done, where nothing tells of it: takes the place of wait() once it is. Throws like that.
  [[nodiscard]] bool over();

 private:
  /// wait() where MPI rests, else drains().
  [[nodiscard]] bool ends() noexcept;
  enum class Toward { host, gpu, itself };
  Copier::Channel& channel(const Place& place);
  [[nodiscard]] Memory memory_of(const std::byte* host) const;
  void began(std::size_t bytes, Toward toward) noexcept;
  /// It may wait to be enqueued together with others.
  [[nodiscard]] bool may_wait(const Place& place, std::size_t begin, std::size_t end, Memory memory) const noexcept;
  /// What waits to be enqueued together. The channel's context is current. What fails is kept.
  void enqueue_bundle(Copier::Channel& channel) noexcept;
  /// The same, and what becomes of these words behind it. Throws where that will not be.
  void enqueue_bundle(Copier::Channel& channel, std::span<const gpu::WordWrite> words);
  void leave_out_what_is_gone(Bundle& bundle);
  /// Enqueues a kernel that touches so many bytes: launch(stream, what), where `what` tells of its end.
  template <class Parameters, class Launch>
  void enqueue_telling(const Place& place, std::size_t bytes, const Parameters& what, const Launch& launch);
  /// Enqueues the marker of all so far, and returns that.
  engine::Completion post(Copier::Channel& channel);
  std::vector<engine::Completion> post_all();
  /// What a copy of so many bytes goes through, and its stream with all that was to be enqueued before. The place's context is current.
  Copier::Channel& channel_for(const Place& place, std::size_t bytes, Toward toward);
  gpu::StreamView stream_for(const Place& place, std::size_t bytes, Toward toward);
  void order_after_default_streams(Copier::Channel& channel, const Place& place);
  void copy(const Place& place, std::byte* host, std::byte* device, const layout::Layout& layout, MPI_Count count,
            std::size_t begin, std::size_t end, Form form, Toward toward);

  Copier& copier_;
  const engine::Watch watch_;
  std::vector<std::unique_ptr<Copier::Channel>> channels_;
  bool pending_ = false;
  std::exception_ptr refused_, broken_;  // of what waited: one that was left out; copies that were lost
  // For traces: since when, how much, and whereto last.
  base::Time begun_{};
  std::size_t bytes_ = 0;
  Toward toward_ = Toward::host;
};

}  // namespace crosslane::lane
