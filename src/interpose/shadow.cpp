// See shadow.h.
#include "interpose/shadow.h"

#include "interpose/argument_builder.h"
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

// Calls f(begin, end) for each range of bytes in which the two differ, from front to back.
template <class F>
void for_each_difference(const std::byte* one, const std::byte* other, std::size_t bytes, F&& f) {
  constexpr std::size_t block = 4096;  // most are alike, which memcmp tells at the memory's speed
  constexpr std::size_t word = sizeof(std::uint64_t);
  std::size_t begin = 0, end = 0;
  const auto differs = [&](std::size_t at) {
    if (at != end || begin == end) {
      if (begin != end) f(begin, end);
      begin = at;
    }
    end = at + 1;
  };
  for (std::size_t at = 0; at < bytes; at += block) {
    const std::size_t stop = std::min(bytes, at + block);
    if (std::memcmp(one + at, other + at, stop - at) == 0) continue;
    for (std::size_t first = at; first < stop; first += word) {
      const std::size_t last = std::min(stop, first + word);
      if (std::memcmp(one + first, other + first, last - first) == 0) continue;
      for (std::size_t i = first; i < last; ++i)
        if (one[i] != other[i]) differs(i);
    }
  }
  if (begin != end) f(begin, end);
}

}  // namespace

// Lent memory, and the copies between it and a part of the window.
struct Shadow::Chunk {
  Range part{};
  lane::HostBlock host;               // outlives the batch, which waits for what it has enqueued
  std::optional<lane::Batch> copies;  // the last ones

  // Returns once they are over.
  void finish() {
    if (!copies) return;
    lane::Batch& batch = *copies;
    batch.wait();
  }
};

Shadow::Shadow(Process& process, const char* call, void* base, MPI_Aint bytes)
    : process_(process), base_(static_cast<std::byte*>(base)), bytes_(static_cast<std::size_t>(bytes)) {
  const auto byte = process.library().handles().byte;
  const auto memory =
      ArgumentBuilder(process.copier(), process.layouts(), call)
          .single("base", base, "size", bytes, 1, byte, Direction::inout, lane::Form::mirror, false, false);
  place_ = memory->place();
  byte_ = process.layouts().of(byte);
  process.see_device(place_.device);
  public_ = std::make_unique<std::byte[]>(bytes_);
  synchronised_ = std::make_unique<std::byte[]>(bytes_);
  publish(call);
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

void Shadow::publish(const char* call) {
  if (mutated(call, "copy in dropped")) return;
  std::array<Chunk, 2> chunks;
  const auto part = [this](std::size_t begin) { return Range{begin, std::min(bytes_, begin + chunk_bytes)}; };
  fetch(chunks[0], part(0), call);
  for (std::size_t begin = 0, i = 0; begin < bytes_; begin += chunk_bytes, ++i) {
    if (begin + chunk_bytes < bytes_) fetch(chunks[(i + 1) % 2], part(begin + chunk_bytes), call);
    Chunk& chunk = chunks[i % 2];
    chunk.finish();
    const std::byte* const now = chunk.host.data();
    for_each_difference(now, &synchronised_[begin], chunk.part.end - begin, [&](std::size_t from, std::size_t to) {
      std::memcpy(&public_[begin + from], now + from, to - from);
      std::memcpy(&synchronised_[begin + from], now + from, to - from);
    });
  }
}

void Shadow::acquire(const char* call) {
  if (mutated(call, "copy out dropped")) return;
  std::array<Chunk, 2> chunks;
  std::vector<Range> changed;
  std::size_t which = 0;
  for (std::size_t begin = 0; begin < bytes_; begin += chunk_bytes) {
    changed.clear();
    for_each_difference(&public_[begin], &synchronised_[begin], std::min(chunk_bytes, bytes_ - begin),
                        [&](std::size_t from, std::size_t to) { changed.push_back({begin + from, begin + to}); });
    // Others may store there already in their next epoch: what is read here once is what both copies then have.
    for (const Range& range : changed)
      std::memcpy(&synchronised_[range.begin], &public_[range.begin], range.end - range.begin);
    if (!changed.empty()) write(chunks[which++ % 2], changed, call);
  }
  for (Chunk& chunk : chunks) chunk.finish();
}

// Enqueues the copies of these ranges, all within a chunk's length, to the GPU.
void Shadow::write(Chunk& chunk, const std::vector<Range>& changed, const char* call) const {
  constexpr std::size_t few = 8;
  chunk.finish();
  const Range all{changed.front().begin, changed.back().end};
  if (changed.size() > few) {
    // With what lies between, as the GPU has it.
    fetch(chunk, all, call);
    chunk.finish();
  } else {
    chunk.part = all;
    chunk.copies.emplace(process_.copier(), engine::Watch{.call = call});
    if (chunk.host.data() == nullptr) chunk.host = chunk.copies->lend(place_, std::min(bytes_, chunk_bytes));
  }
  const auto copy = [&](Range range) {
    const std::size_t bytes = range.end - range.begin;
    chunk.copies->to_gpu(place_, base_ + range.begin, chunk.host.data() + (range.begin - all.begin), *byte_,
                         static_cast<MPI_Count>(bytes), 0, bytes, lane::Form::mirror);
  };
  for (const Range& range : changed)
    std::memcpy(chunk.host.data() + (range.begin - all.begin), &synchronised_[range.begin], range.end - range.begin);
  if (changed.size() > few) return copy(all);
  for (const Range& range : changed) copy(range);
}

}  // namespace crosslane::interpose
