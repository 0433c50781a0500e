// A window in GPU memory whose ranks share a node and have each other's memory mapped: accesses go to where it lies, over the GPUs' links, and are there
// for kernels once their epoch ends, or is flushed. So the window has MPI's unified memory model (MPI 5.0, section 12.4). It must not know which
// procedure the application called.
#pragma once

#include "interpose/process.h"
#include "interpose/teams.h"
#include "interpose/window_epochs.h"
#include "kernel/catalogue.h"
#include "lane/copier.h"
#include "layout/layout.h"
#include "mpi/abi.h"
#include "share/exposure.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace crosslane::interpose {

/// Elements of a datatype: in memory of this process that an access reads or writes, or in another rank's as mapped here.
struct TypedMemory {
  std::byte* address = nullptr;
  std::shared_ptr<const layout::Layout> layout;
  MPI_Count count = 0;
  /// In GPU memory of the window's context; nothing of the host's memory.
  std::optional<lane::Place> place;

  [[nodiscard]] std::size_t bytes() const { return layout->packed_size(count); }
  [[nodiscard]] bool contiguous() const { return layout->contiguous(count); }
  /// A kernel finds its elements where they are, one behind the other.
  [[nodiscard]] bool is_array_on_gpu() const { return place && contiguous(); }
  [[nodiscard]] lane::Side side() const noexcept { return lane::Side::of(address, *layout, count); }
  [[nodiscard]] std::byte* first() const {
    return lane::byte_at(address, static_cast<std::ptrdiff_t>(layout->true_lb()));
  }
};

/// How an accumulating access combines: with a predefined operation; if it is one of two operands, on a predefined type, of which all elements are.
struct Accumulation {
  MPI_Op op{};
  MPI_Datatype type{};
};

/// One rank's. Thread-safe as far as MPI lets threads use a window at once.
class MappedWindow {
 public:
  /// What a rank has in the window: as this one reaches it.
  struct Part {
    std::byte* data = nullptr;
    MPI_Aint size = 0, unit = 1;
    std::shared_ptr<const gpu::Mapping> mapping;  ///< Of another rank's.
  };
  /// Of `size` bytes at `base`, this rank's, and all ranks' parts. epochs() is to be opened before anything else is called.
  MappedWindow(Process& process, team::Home& home, void* base, MPI_Aint size, std::vector<Part> parts);
  MappedWindow(const MappedWindow&) = delete;
  MappedWindow& operator=(const MappedWindow&) = delete;
  [[nodiscard]] void* base() const noexcept { return base_; }
  [[nodiscard]] const MPI_Aint& size() const noexcept { return size_; }
  [[nodiscard]] WindowEpochs& epochs() noexcept { return epochs_; }
  /// Null once MPI is being finalized, when the memory of others is out of reach.
  [[nodiscard]] team::Home* home() const noexcept { return home_; }
  /// Throws Error (other), naming `call`, then, or where the application has ended the context of this rank's memory.
  void check_home(const char* call) const;
  /// In MPI_Win_free: returns when all ranks have come to it, at once where they had, and MPI's own call then failed. What WindowEpochs::fence() throws.
  void meet_to_free(const char* call);
  /// The window is used again: the next such call is a new one.
  void goes_on() noexcept { met_.store(false, std::memory_order_relaxed); }
  /// MPI is being finalized. Nothing is under way any more.
  void leave() noexcept;
  /// CROSSLANE_ORDER=legacy: what the application has enqueued on its default streams, which may store to this rank's part, is over.
  void settle(const char* call);

  [[nodiscard]] bool has(int rank) const noexcept {
    return rank >= 0 && static_cast<std::size_t>(rank) < parts_.size();
  }
  /// `count` elements at a displacement in memory of a rank that it has. Throws Error (rma_range, displacement), naming `call`, where that is not all in its
  /// part.
  [[nodiscard]] TypedMemory at(const char* call, int rank, MPI_Aint displacement, MPI_Count count,
                               std::shared_ptr<const layout::Layout> layout) const;

  // Accesses: over after finish(), and begun there at the latest; those that touch the same bytes of GPU memory do so in the order of these calls.
  // Accumulating ones are over when they return. `bytes` of the packed streams; each throws what the GPU reports.
  void put(const char* call, const TypedMemory& remote, const TypedMemory& local, std::size_t bytes);
  void get(const char* call, const TypedMemory& local, const TypedMemory& remote, std::size_t bytes);
  /// What was at `target` is fetched to `result`, if that is not null.
  void accumulate(const char* call, int target, const TypedMemory& remote, const TypedMemory& local,
                  const Accumulation& how, const TypedMemory* result, std::size_t bytes);
  void compare_and_swap(const char* call, int target, const TypedMemory& remote, const TypedMemory& local,
                        const TypedMemory& compare, const TypedMemory& result);
  /// Returns when all accesses of this rank are over: at their targets, and here. Throws the first failure among them, the others being over; Error (buffer)
  /// where memory was freed before.
  void finish();

 private:
  // What was fetched to host memory, until its copies are over.
  struct Landing {
    TypedMemory to;
    const std::byte* from;
    std::size_t begin, end;
  };
  // However what holds it ends, nothing that was begun is under way any more.
  class Forgetting {
   public:
    explicit Forgetting(MappedWindow& window) noexcept : window_(window) {}
    ~Forgetting() { window_.forget(); }
    Forgetting(const Forgetting&) = delete;
    Forgetting& operator=(const Forgetting&) = delete;

   private:
    MappedWindow& window_;
  };

  // An accumulating access's: what this rank has begun before is over, and nobody else's is in the target's memory.
  class Turn {
   public:
    Turn(MappedWindow& window, const char* call, int target)
        : guard_(window.after_earlier(), call, target), lock_(window.mutex_), forgetting_(window) {
      window.finish_earlier();  // of other threads
    }

   private:
    const WindowEpochs::Guard guard_;
    const std::lock_guard<std::mutex> lock_;
    const Forgetting forgetting_;  // before others may write there
  };

  // The mutex is held in what follows, but for after_earlier().
  lane::Batch& begun(const char* call);
  [[nodiscard]] lane::Place place() const noexcept { return {home_->context(), home_->device()}; }
  [[nodiscard]] lane::Place place_with(const TypedMemory& local) const noexcept {
    return local.place ? place().with(*local.place) : place();
  }
  // Lent memory, and whether kernels reach it.
  struct Block {
    std::byte* data;
    lane::Memory memory;
  };
  Block lend(const char* call, std::size_t bytes);
  template <class F>
  void through_blocks(const char* call, std::size_t begin, std::size_t end, const F& f);
  [[nodiscard]] bool is_long_and_pinned(const TypedMemory& local, const TypedMemory& remote, std::size_t bytes) const;
  void put_locked(const char* call, const TypedMemory& remote, const TypedMemory& local, std::size_t begin,
                  std::size_t end);
  void get_locked(const char* call, const TypedMemory& local, const TypedMemory& remote, std::size_t begin,
                  std::size_t end);
  Block to_host(const char* call, const TypedMemory& elements, std::size_t begin, std::size_t end);
  // Where kernels read packed bytes [begin, end) of elements, and where they write them.
  std::byte* operand(const char* call, const TypedMemory& elements, std::size_t begin, std::size_t end);
  struct Outlet {
    std::byte* data;
    std::optional<lane::Side> behind{};  // where that is to be copied then
    lane::Place place{};
    lane::Memory memory = lane::Memory::gpu;
  };
  Outlet outlet(const char* call, const TypedMemory& elements, std::size_t begin, std::size_t end);
  void let_out(const char* call, const Outlet& outlet, std::size_t begin, std::size_t end);
  std::byte* spare(std::size_t bytes);
  void combine_on_gpu(const char* call, const TypedMemory& remote, const TypedMemory& local, const TypedMemory* result,
                      kernel::Op op, kernel::Element element, std::size_t begin, std::size_t end);
  // The value that `remote` is becomes what `local` is, if it is what `wanted` is, or that is null; and what it was goes to `result`.
  void swap(const char* call, const TypedMemory& remote, const TypedMemory& local, const TypedMemory* wanted,
            const TypedMemory& result);
  void combine_on_host(const char* call, const TypedMemory& remote, const TypedMemory& local, const Accumulation& how,
                       std::size_t begin, std::size_t end);
  void order_anew() noexcept;
  void finish_locked();
  void finish_earlier() noexcept;
  WindowEpochs& after_earlier() noexcept;
  void forget() noexcept;

  Process& process_;
  team::Home* home_;
  WindowEpochs epochs_;
  void* const base_;
  const MPI_Aint size_;
  std::vector<Part> parts_;            // by rank
  std::atomic<bool> met_ = false;      // to free the window
  std::mutex mutex_;                   // of what follows
  std::vector<lane::HostBlock> lent_;  // outlives the batch, which waits for what it has enqueued
  std::size_t lent_bytes_ = 0;
  std::vector<gpu::Buffer> spares_;
  std::vector<Landing> landings_;
  std::optional<lane::Batch> batch_;
  std::exception_ptr failure_;  // of what is over, until finish()
};

}  // namespace crosslane::interpose
