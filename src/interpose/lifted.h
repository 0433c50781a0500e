// A buffer of a direct collective as kernels can use it: where it lies, if that is contiguous memory of the team's GPU context;
// else a copy in memory of ours, filled before the call and brought back after it. It must not know which collective.
#pragma once

#include "collective/plan.h"
#include "interpose/copy_memory.h"
#include "interpose/memories.h"
#include "interpose/process.h"
#include "layout/layout.h"
#include "share/exposure.h"
#include "team/home.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace crosslane::interpose {

/// What a buffer holds: `count` elements of a layout.
struct Extent {
  std::shared_ptr<const layout::Layout> layout;
  MPI_Count count = 0;
  bool pieces = false;  ///< All of it is in contiguous pieces, and who uses it knows where each is.
  bool apart = false;   ///< It is made of blocks that may each lie in another memory.

  /// So many contiguous bytes; `byte` is the layout of one.
  [[nodiscard]] static Extent of_bytes(std::shared_ptr<const layout::Layout> byte, std::size_t bytes) {
    return {std::move(byte), static_cast<MPI_Count>(bytes)};
  }
  [[nodiscard]] std::size_t bytes() const { return layout->packed_size(count); }
  /// Kernels can use it where it lies.
  [[nodiscard]] bool usable() const { return pieces || layout->contiguous(count); }
};

class Lifted {
 public:
  /// Throws Error (buffer) naming the argument where the memory does not hold the extent.
  Lifted(Process& process, team::Home& home, const char* call, const char* argument, const void* base, Extent extent);
  Lifted(const Lifted&) = delete;
  Lifted& operator=(const Lifted&) = delete;

  /// Lends memory for the copy, where one is needed. To be called once all buffers of a call have been looked at: what is
  /// lent may lie where the application has freed another buffer, which would then pass for live memory.
  void make_room();
  /// Contiguous memory of the GPU: the buffer's first byte, or its copy's. After make_room().
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// True if data() is the buffer itself.
  [[nodiscard]] bool is_buffer() const noexcept { return !copied_; }
  /// The buffer, or its copy, as others may map it; id 0 where they cannot. After make_room().
  [[nodiscard]] share::Exposed show() const;

  /// Fills the copy, if there is one.
  void lift();
  /// Brings the copy back, if there is one.
  void lower();
  /// Whether the two may be enqueued instead, without a wait: all is in this context, and what the application has enqueued there needs no
  /// waiting for.
  [[nodiscard]] bool enqueues() const noexcept;
  void lift(gpu::StreamView stream) { enqueue(Way::in, stream); }
  void lower(gpu::StreamView stream) { enqueue(Way::out, stream); }
  /// Nobody uses the copy any more: the next call may have it. One that was not given back is freed.
  void give_back() noexcept;

 private:
  enum class Way { in, out };
  void copy(Way way);
  void enqueue(Way way, gpu::StreamView stream);
  void look(const lane::Batch& batch, std::size_t begin, Way way) const;
  /// Of a segment that is here: from which side to which.
  struct Sides {
    lane::Side to, from;
  };
  [[nodiscard]] Sides sides(std::size_t begin, Way way) const;
  void settle(const lane::Place& place);
  void copy_elsewhere(lane::Batch& batch, std::byte* host, Way way);
  void copy_by_host(lane::Batch& batch, std::byte* host, Way way);
  [[nodiscard]] lane::Place here() const noexcept;  // of the copy
  [[nodiscard]] bool is_here(const std::optional<lane::Place>& place) const noexcept;

  Process& process_;
  team::Home& home_;
  const char* call_;
  std::byte* base_;
  Extent extent_;
  gpu::PointerInfo info_;
  bool copied_ = false;            // it cannot be used as it is:
  std::vector<Segment> segments_;  // where it is then, as known at first sight
  std::optional<CopyMemory> copy_;
  std::byte* data_;
};

}  // namespace crosslane::interpose
