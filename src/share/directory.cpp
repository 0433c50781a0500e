// Where everything lies in the segment, and the writes whose order matters.
#include "share/directory.h"

#include "base/error.h"

#include <unistd.h>

#include <new>

namespace crosslane::share {
namespace {

constexpr std::uint64_t magic = 0x31656e616c737243;  // "Crslane1", little-endian

// The memory is zero and shared: objects are not constructed in it, they are there already, for every process.
template <class T>
T* at(std::byte* memory, std::size_t offset) noexcept {
  return std::launder(reinterpret_cast<T*>(memory + offset));
}

std::size_t count(int ranks) noexcept { return static_cast<std::size_t>(ranks); }

}  // namespace

std::size_t Directory::bytes_for(const Shape& shape) noexcept {
  const std::size_t ranks = count(shape.ranks);
  return sizeof(Node) + ranks * sizeof(RankRecord) +
         (ranks * shape.lines_per_rank + ranks * ranks * shape.lines_per_pair) * sizeof(Line) +
         ranks * shape.ferry_bytes + shape.board_bytes;
}

Directory::Directory(Segment segment, const Shape& shape, int local_rank)
    : segment_(std::move(segment)), shape_(shape), local_rank_(local_rank) {
  const auto memory = segment_.memory();
  if (memory.size() < bytes_for(shape))
    throw base::Error(base::ErrorClass::intern, "the directory needs {} bytes, the segment has {}", bytes_for(shape),
                      memory.size());
  std::size_t offset = 0;
  node_ = at<Node>(memory.data(), offset);
  offset += sizeof(Node);
  records_ = at<RankRecord>(memory.data(), offset);
  offset += count(shape.ranks) * sizeof(RankRecord);
  rank_lines_ = at<Line>(memory.data(), offset);
  offset += count(shape.ranks) * shape.lines_per_rank * sizeof(Line);
  pair_lines_ = at<Line>(memory.data(), offset);
  offset += count(shape.ranks) * count(shape.ranks) * shape.lines_per_pair * sizeof(Line);
  ferries_ = memory.data() + offset;
  board_ = memory.subspan(bytes_for(shape) - shape.board_bytes, shape.board_bytes);
  // Local rank 0 writes them before any other rank gets the token: MPI's message orders that.
  if (local_rank == 0) {
    node_->magic = magic;
    node_->bytes = bytes_for(shape);
  } else if (node_->magic != magic || node_->bytes != bytes_for(shape)) {
    throw base::Error(base::ErrorClass::intern, "the node's directory was made by another version of Crosslane");
  }
}

void Directory::join(int world_rank) noexcept {
  RankRecord& own = records_[count(local_rank_)];
  own.process = getpid();
  own.world_rank = world_rank;
  segment_.hold_mark(local_rank_);
  own.presence.store(Presence::joined, std::memory_order_release);  // after the plain writes above; read by record()
}

void Directory::have_received() noexcept {
  records_[count(local_rank_)].presence.store(Presence::received, std::memory_order_release);
}

void Directory::leave() noexcept {
  records_[count(local_rank_)].presence.store(Presence::left, std::memory_order_release);
}

bool Directory::alive(int local_rank) const noexcept {
  const Presence presence = record(local_rank).presence.load(std::memory_order_acquire);
  if (presence == Presence::absent || presence == Presence::left || local_rank == local_rank_) return true;
  // It may have left between the two.
  return segment_.mark_held(local_rank) ||
         record(local_rank).presence.load(std::memory_order_acquire) == Presence::left;
}

std::optional<int> Directory::only_dead() const noexcept {
  std::optional<int> dead;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!alive(rank))
      dead = rank;
    else if (record(rank).presence.load(std::memory_order_acquire) < Presence::received)
      return std::nullopt;
  }
  return dead;
}

void Directory::begin_wait() noexcept { records_[count(local_rank_)].waits.fetch_add(1, std::memory_order_relaxed); }

void Directory::end_wait() noexcept { records_[count(local_rank_)].waits.fetch_sub(1, std::memory_order_relaxed); }

void Directory::ask(int local_rank) noexcept {
  records_[count(local_rank)].asks.fetch_add(1, std::memory_order_release);
}

void Directory::see_device(const Uuid& gpu) noexcept {
  RankRecord& own = records_[count(local_rank_)];
  if (own.device_seen.load(std::memory_order_relaxed) == 0) {
    own.gpu_uuid = gpu;
    own.device_seen.store(1, std::memory_order_release);
  }
  node_->device_seen.store(1, std::memory_order_relaxed);
  // The other half of device_seen()'s fence: what the caller reads next is at least as new as this store.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Directory::device_seen() const noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return node_->device_seen.load(std::memory_order_relaxed) != 0;
}

std::span<std::byte> Directory::ferry(int local_rank) const noexcept {
  return {ferries_ + count(local_rank) * shape_.ferry_bytes, shape_.ferry_bytes};
}

std::span<Line> Directory::lines(int local_rank) const noexcept {
  return {rank_lines_ + count(local_rank) * shape_.lines_per_rank, shape_.lines_per_rank};
}

std::span<Line> Directory::lines(int from, int to) const noexcept {
  const std::size_t pair = count(from) * count(shape_.ranks) + count(to);
  return {pair_lines_ + pair * shape_.lines_per_pair, shape_.lines_per_pair};
}

}  // namespace crosslane::share
