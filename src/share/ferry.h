// Ferry: host memory through which a payload comes whose reader cannot reach it where it is: one for each rank of the node, which reads
// from it what the payload's owner fills in, chunk by chunk, both without MPI. It must not know GPUs, nor how the owner is asked.
//
// Payloads are numbered as they are asked for, and come in that order. Four words, each with one writer at a time:
//
//   asked    by the reader: how many payloads so far
//   turn     by the reader, after its last look at a payload (release): the next one's number, whose owner may begin
//   filled   by the owner of the payload whose turn it is, after a chunk is in place (release): chunks so far, of all payloads; the reader
//            then reads it
//   taken    by the reader, after its last look at a chunk (release); the owner then may fill in another one over it
//
// No more chunks are in between than there is room for. When a turn begins filled and taken are equal: the reader has seen the last chunk of
// the owner before, and so has the next owner, who sees the turn.
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

  /// It is that payload's turn: before its first chunk.
  [[nodiscard]] engine::Completion turn(std::uint64_t number) const noexcept;
  /// There is room for a chunk.
  [[nodiscard]] engine::Completion room() const noexcept;
  /// Then: the next one, of 1 to most_chunk_bytes.
  void fill(std::span<const std::byte> chunk) const noexcept;
  /// Then, in its stead: no more comes, since something has failed.
  void break_off() const noexcept;

  // For the ferry's rank.

  /// Any thread: the number of a payload that it is about to ask for. It has to read it.
  [[nodiscard]] std::uint64_t next_number() const noexcept;
  // When it is that payload's turn:

  /// There is a chunk.
  [[nodiscard]] engine::Completion arrival() const noexcept;
  /// Then: what it is; empty where its owner has broken off.
  [[nodiscard]] std::span<const std::byte> chunk() const noexcept;
  /// It is not needed any more.
  void take() const noexcept;
  /// After the last one: on with the next payload.
  void end_turn() const noexcept;
  /// In its stead: the owner is gone, which fills in nothing any more.
  void abandon_turn() const noexcept;

 private:
  static constexpr std::size_t slots = 2;
  struct Memory {
    Line asked, turn, filled, taken;
    std::array<Line, slots> lengths;
    std::array<std::array<std::byte, most_chunk_bytes>, slots> chunks;
  };
  Memory* memory_;
};

}  // namespace crosslane::share
