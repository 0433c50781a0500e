// See shadow.h.
#include "interpose/shadow.h"

#include "interpose/memories.h"
#include "interpose/mutant.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

namespace crosslane::interpose {
namespace {

// So much is on its way while as much is looked at.
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

constexpr std::size_t line = 64;

// Calls f(begin, end) for each range of bytes in which the two differ, from front to back.
template <class F>
void for_each_difference(const std::byte* one, const std::byte* other, std::size_t bytes, F&& f) {
  constexpr std::size_t block = 4096;  // most are alike, which memcmp tells at the memory's speed
  constexpr std::size_t word = sizeof(std::uint64_t);
  std::size_t begin = 0, end = 0;
  const auto differ = [&](std::size_t from, std::size_t to) {
    if (from != end) {
      if (begin != end) f(begin, end);
      begin = from;
    }
    end = to;
  };
  for (std::size_t at = 0; at < bytes; at += block) {
    const std::size_t stop = std::min(bytes, at + block);
    if (std::memcmp(one + at, other + at, stop - at) == 0) continue;
    std::size_t first = at;
    for (; first + word <= stop; first += word) {
      std::uint64_t mine = 0, theirs = 0;
      std::memcpy(&mine, one + first, word);
      std::memcpy(&theirs, other + first, word);
      const std::uint64_t changed = mine ^ theirs;
      if (changed == 0) continue;
      for (std::size_t i = 0; i < word; ++i)
        if ((changed >> (8 * i) & 0xff) != 0) differ(first + i, first + i + 1);
    }
    for (; first < stop; ++first)
      if (one[first] != other[first]) differ(first, first + 1);
  }
  if (begin != end) f(begin, end);
}

}  // namespace

// Lent memory, and the copies between it and a part of the window.
struct Shadow::Chunk {
  Range part{};
  lane::HostBlock host;               // outlives the batch, which waits for what it has enqueued
  std::optional<lane::Batch> copies;  // the last ones
  std::vector<Range> changed;         // what is on its way to the GPU
};

Shadow::Shadow(Process& process, const char* call, void* base, MPI_Aint bytes)
    : process_(process), base_(static_cast<std::byte*>(base)), bytes_(static_cast<std::size_t>(bytes)) {
  byte_ = process.layouts().of(process.library().handles().byte);
  place_ = locate(process.copier(), call, "base", base, *byte_, bytes, Apart::never).place.value_or(lane::Place{});
  process.see_device(place_.device);
  const std::size_t whole = (bytes_ + line - 1) / line * line;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(2 * whole + line);
  public_ = memory_.get() + (line - reinterpret_cast<std::uintptr_t>(memory_.get()) % line) % line;
  synchronised_ = public_ + whole;
  const bool dropped = mutated(call, "copy in dropped");
  for_each_part(call, [&](std::size_t begin, const std::byte* now, std::size_t length) {
    if (dropped) return;
    std::memcpy(public_ + begin, now, length);
    std::memcpy(synchronised_ + begin, now, length);
  });
}

template <class F>
void Shadow::for_each_part(const char* call, const F& f) {
  std::array<Chunk, 2> chunks;
  const auto part = [this](std::size_t begin) { return Range{begin, std::min(bytes_, begin + chunk_bytes)}; };
  fetch(chunks[0], part(0), call);
  for (std::size_t begin = 0, i = 0; begin < bytes_; begin += chunk_bytes, ++i) {
    if (begin + chunk_bytes < bytes_) fetch(chunks[(i + 1) % 2], part(begin + chunk_bytes), call);
    Chunk& chunk = chunks[i % 2];
    finish(chunk);
    f(begin, chunk.host.data(), chunk.part.end - begin);
  }
}

// Enqueues the copies of that part of the window to the chunk.
void Shadow::fetch(Chunk& chunk, Range what, const char* call) const {
  chunk.part = what;
  chunk.copies.emplace(process_.copier(), engine::Watch{.call = call});
  const std::size_t bytes = what.end - what.begin;
  if (chunk.host.data() == nullptr) chunk.host = chunk.copies->lend(place_, std::min(bytes_, chunk_bytes));
  chunk.copies->to_host(place_, chunk.host.data(), base_ + what.begin, *byte_, static_cast<MPI_Count>(bytes), 0, bytes,
                        lane::Form::mirror);
}

// Returns once its copies are over. What they have written, the GPU has.
void Shadow::finish(Chunk& chunk) {
  if (chunk.copies) {
    lane::Batch& batch = *chunk.copies;
    batch.wait();
  }
  for (const Range& range : chunk.changed)
    std::memcpy(synchronised_ + range.begin, chunk.host.data() + (range.begin - chunk.part.begin),
                range.end - range.begin);
  chunk.changed.clear();
}

void Shadow::publish(const char* call) {
  if (mutated(call, "copy in dropped")) return;
  for_each_part(call, [&](std::size_t begin, const std::byte* now, std::size_t length) {
    for_each_difference(now, synchronised_ + begin, length, [&](std::size_t from, std::size_t to) {
      std::memcpy(public_ + begin + from, now + from, to - from);
      std::memcpy(synchronised_ + begin + from, now + from, to - from);
    });
  });
}

void Shadow::acquire(const char* call) {
  if (mutated(call, "copy out dropped")) return;
  std::array<Chunk, 2> chunks;
  std::size_t which = 0;
  for (std::size_t begin = 0; begin < bytes_; begin += chunk_bytes) {
    Chunk& chunk = chunks[which % 2];
    finish(chunk);
    for_each_difference(public_ + begin, synchronised_ + begin, std::min(chunk_bytes, bytes_ - begin),
                        [&](std::size_t from, std::size_t to) { chunk.changed.push_back({begin + from, begin + to}); });
    if (chunk.changed.empty()) continue;
    write(chunk, call);
    ++which;
  }
  for (Chunk& chunk : chunks) finish(chunk);
}

// Enqueues the copies of what has changed, all within a chunk's length, to the GPU.
void Shadow::write(Chunk& chunk, const char* call) const {
  constexpr std::size_t few = 8;
  const Range all{chunk.changed.front().begin, chunk.changed.back().end};
  const bool together = chunk.changed.size() > few;
  if (together) {
    // With what lies between, as the GPU has it.
    fetch(chunk, all, call);
    lane::Batch& batch = *chunk.copies;
    batch.wait();
  } else {
    chunk.part = all;
    chunk.copies.emplace(process_.copier(), engine::Watch{.call = call});
    if (chunk.host.data() == nullptr) chunk.host = chunk.copies->lend(place_, std::min(bytes_, chunk_bytes));
  }
  // The lent memory is gone, too, where the application has ended the context.
  chunk.copies->look(base_ + all.begin, *byte_, static_cast<MPI_Count>(all.end - all.begin), 0,
                     lane::Batch::Use::written);
  // Others may store there already in their next epoch: what is read here once is what the GPU gets.
  for (const Range& range : chunk.changed)
    std::memcpy(chunk.host.data() + (range.begin - all.begin), public_ + range.begin, range.end - range.begin);
  const auto copy = [&](Range range) {
    const std::size_t bytes = range.end - range.begin;
    chunk.copies->to_gpu(place_, base_ + range.begin, chunk.host.data() + (range.begin - all.begin), *byte_,
                         static_cast<MPI_Count>(bytes), 0, bytes, lane::Form::mirror);
  };
  if (together) return copy(all);
  for (const Range& range : chunk.changed) copy(range);
}

}  // namespace crosslane::interpose
