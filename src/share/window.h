// Window: device memory of ours that the node's other ranks map, cut into regions for teams; and the regions of others as
// mapped here. Exported once a segment, since opening costs milliseconds. It must not know what lies in a region.
#pragma once

#include "base/free_ranges.h"
#include "gpu/buffer.h"
#include "gpu/mapping.h"
#include "gpu/stream.h"
#include "share/board.h"
#include "share/exposure.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace crosslane::share {

/// This rank's window, on one GPU. Thread-safe.
class Window {
 public:
  static constexpr std::size_t segment_bytes = std::size_t{64} << 20;
  static constexpr std::size_t granule = std::size_t{64} << 10;

  struct Piece {
    std::byte* data = nullptr;
    Region region{};
    std::size_t bytes = 0;
  };

  /// In the context `context`, which must outlive it; `record` is this rank's on the board.
  Window(const gpu::Driver& driver, CUcontext context, const Uuid& gpu, WindowRecord& record)
      : driver_(driver), context_(context), gpu_(gpu), record_(record) {}

  /// A region, zeroed by what is enqueued on `stream` (of the window's context). Nothing where the window is at its limit of
  /// segments; throws Error: no_memory where the GPU has none left, else where the memory cannot be exported.
  [[nodiscard]] std::optional<Piece> take(std::size_t bytes, gpu::StreamView stream);
  /// The same with whatever is in it.
  [[nodiscard]] std::optional<Piece> take(std::size_t bytes);
  /// The same in a segment of its own, which is no larger.
  [[nodiscard]] std::optional<Piece> take_apart(std::size_t bytes);
  void give_back(const Piece& piece) noexcept;

 private:
  struct Segment {
    gpu::Buffer buffer;
    base::FreeRanges free;
  };
  [[nodiscard]] std::optional<Piece> take_from(std::size_t index, std::size_t bytes);
  [[nodiscard]] bool grow(std::size_t bytes);  // with the context current

  const gpu::Driver& driver_;
  CUcontext context_;
  Uuid gpu_;
  WindowRecord& record_;
  std::mutex mutex_;
  std::vector<Segment> segments_;
};

/// Other ranks' segments as mapped in one context. Thread-safe. Segments live as long as their owner's process.
class PeerWindows {
 public:
  /// `exposure` has the other ranks' buffers open in the same context; both must outlive it.
  PeerWindows(const gpu::Driver& driver, CUcontext context, Exposure& exposure)
      : driver_(driver), context_(context), exposure_(exposure) {}

  /// Where a region of another process's window lies here; `closing`: what may be closed to open it. Throws Error (other) where the driver refuses to open it.
  [[nodiscard]] std::byte* reach(const WindowRecord& record, int local_rank, Region region, Exposure::Closing closing);

 private:
  const gpu::Driver& driver_;
  CUcontext context_;
  Exposure& exposure_;
  std::mutex mutex_;
  std::map<std::pair<int, std::uint64_t>, gpu::Mapping> mapped_;  // by local rank and segment
};

}  // namespace crosslane::share
