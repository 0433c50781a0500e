// Ferry: host memory through which a payload comes whose reader cannot reach it where it is: one for each rank of the node, which reads
// from it what the payload's owner fills in, chunk by chunk, both without MPI. It must not know GPUs, nor whose turn it is.
//
// Two words count the chunks of all payloads so far; each has one writer at a time:
//
//   filled   by the owner of a payload, after the chunk is in place (release); its reader then reads the chunk
//   taken    by the reader, after its last look at the chunk (release); the owner then may fill in another one over it
//
// No more chunks are in between than there is room for. A payload begins where the one before has ended: when its reader asks the owner for it,
// by a word of their own, both words are equal, and no other owner has one to write until they are again.
#pragma once

#include "engine/completion.h"
#include "share/directory.h"

#include <array>
#include <cstddef>
#include <span>

namespace crosslane::share {

class Ferry {
 public:
  static constexpr std::size_t most_chunk_bytes = std::size_t{32} << 10;

  /// Of a directory: what each of its ranks needs.
  [[nodiscard]] static std::size_t bytes() noexcept { return sizeof(Memory); }
  /// That rank's. Zero at first.
  Ferry(const Directory& directory, int local_rank) noexcept;

  // For the owner of a payload that this ferry's rank has asked for.

  /// There is room for a chunk.
  [[nodiscard]] engine::Completion room() const noexcept;
  /// Then: the next one, of 1 to most_chunk_bytes.
  void fill(std::span<const std::byte> chunk) const noexcept;
  /// Then, in its stead: no more comes, since something has failed.
  void break_off() const noexcept;

  // For the ferry's rank.

  /// There is a chunk.
  [[nodiscard]] engine::Completion arrival() const noexcept;
  /// Then: what it is; empty where its owner has broken off.
  [[nodiscard]] std::span<const std::byte> chunk() const noexcept;
  /// It is not needed any more.
  void take() const noexcept;

 private:
  static constexpr std::size_t slots = 2;
  struct Memory {
    Line filled, taken;
    std::array<Line, slots> lengths;
    std::array<std::array<std::byte, most_chunk_bytes>, slots> chunks;
  };
  Memory* memory_;
};

}  // namespace crosslane::share
