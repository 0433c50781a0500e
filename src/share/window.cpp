// See window.h.
#include "share/window.h"

#include "base/error.h"
#include "gpu/context.h"
#include "gpu/copy.h"

#include <algorithm>
#include <cstring>

namespace crosslane::share {
namespace {

std::size_t rounded(std::size_t bytes) noexcept {
  return (bytes + Window::granule - 1) / Window::granule * Window::granule;
}

}  // namespace

std::optional<Window::Piece> Window::take_from(std::size_t index, std::size_t bytes) {
  Segment& segment = segments_[index];
  const auto offset = segment.free.take(bytes);
  if (!offset) return std::nullopt;
  return Piece{segment.buffer.data() + *offset, {index, *offset}, bytes};
}

bool Window::grow(std::size_t bytes) {
  const std::size_t index = segments_.size();
  if (index >= WindowRecord::most_segments) return false;
  gpu::Buffer buffer(driver_, bytes);
  const CUipcMemHandle handle = buffer.export_handle();
  static_assert(sizeof(handle) == sizeof(MemoryHandle));
  std::memcpy(record_.segment[index].data(), &handle, sizeof handle);
  if (index == 0) record_.gpu = gpu_;
  // After the row is written; read with acquire by whoever opens it.
  record_.segments.store(static_cast<std::uint32_t>(index + 1), std::memory_order_release);
  const std::size_t size = buffer.size();
  segments_.push_back({std::move(buffer), base::FreeRanges(size)});
  return true;
}

std::optional<Window::Piece> Window::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const gpu::ContextScope scope(driver_, context_);
  bytes = rounded(bytes);
  std::optional<Piece> piece;
  for (std::size_t index = 0; !piece; ++index) {
    if (index == segments_.size() && !grow(std::max(bytes, segment_bytes))) return std::nullopt;
    piece = take_from(index, bytes);
  }
  return piece;
}

std::optional<Window::Piece> Window::take_apart(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const gpu::ContextScope scope(driver_, context_);
  bytes = rounded(bytes);
  return grow(bytes) ? take_from(segments_.size() - 1, bytes) : std::nullopt;
}

std::optional<Window::Piece> Window::take(std::size_t bytes, gpu::StreamView stream) {
  const auto piece = take(bytes);
  if (!piece) return piece;
  try {
    const gpu::ContextScope scope(driver_, context_);
    gpu::fill_async(piece->data, 0, piece->bytes, stream);
  } catch (...) {
    give_back(*piece);
    throw;
  }
  return piece;
}

void Window::give_back(const Piece& piece) noexcept {
  const std::lock_guard lock(mutex_);
  segments_[piece.region.segment].free.give_back(piece.region.offset, piece.bytes);
}

std::byte* PeerWindows::reach(const WindowRecord& record, int local_rank, Region region, Exposure::Closing closing) {
  const std::lock_guard lock(mutex_);
  const std::pair key{local_rank, region.segment};
  auto found = mapped_.find(key);
  if (found == mapped_.end()) {
    if (region.segment >= record.segments.load(std::memory_order_acquire))
      throw base::Error(base::ErrorClass::intern, "local rank {} has no window segment {}", local_rank, region.segment);
    const gpu::ContextScope scope(driver_, context_);
    found = mapped_.emplace(key, exposure_.map(local_rank, record.segment[region.segment], closing)).first;
  }
  return found->second.data() + region.offset;
}

}  // namespace crosslane::share
