// See ferry.h.
#include "share/ferry.h"

#include <cstdint>
#include <cstring>
#include <new>

namespace crosslane::share {

Ferry::Ferry(const Directory& directory, int local_rank) noexcept
    : memory_(std::launder(reinterpret_cast<Memory*>(directory.ferry(local_rank).data()))) {}

engine::Completion Ferry::turn(std::uint64_t number) const noexcept {
  return engine::Completion::of(memory_->turn.word, number);
}

std::uint64_t Ferry::next_number() const noexcept {
  return memory_->asked.word.fetch_add(1, std::memory_order_relaxed);
}

engine::Completion Ferry::room() const noexcept {
  const std::uint64_t next = memory_->filled.word.load(std::memory_order_relaxed);
  return next < slots ? engine::Completion() : engine::Completion::of(memory_->taken.word, next + 1 - slots);
}

void Ferry::break_off() const noexcept { fill({}); }

void Ferry::fill(std::span<const std::byte> chunk) const noexcept {
  const std::uint64_t next = memory_->filled.word.load(std::memory_order_relaxed);
  const std::size_t slot = next % slots;
  if (!chunk.empty()) std::memcpy(memory_->chunks[slot].data(), chunk.data(), chunk.size());
  memory_->lengths[slot].word.store(chunk.size(), std::memory_order_relaxed);
  memory_->filled.word.store(next + 1, std::memory_order_release);
}

engine::Completion Ferry::arrival() const noexcept {
  return engine::Completion::of(memory_->filled.word, memory_->taken.word.load(std::memory_order_relaxed) + 1);
}

std::span<const std::byte> Ferry::chunk() const noexcept {
  const std::size_t slot = memory_->taken.word.load(std::memory_order_relaxed) % slots;
  return {memory_->chunks[slot].data(), memory_->lengths[slot].word.load(std::memory_order_relaxed)};
}

void Ferry::take() const noexcept { memory_->taken.word.fetch_add(1, std::memory_order_release); }

void Ferry::end_turn() const noexcept { memory_->turn.word.fetch_add(1, std::memory_order_release); }

void Ferry::abandon_turn() const noexcept {
  memory_->taken.word.store(memory_->filled.word.load(std::memory_order_acquire), std::memory_order_release);
  end_turn();
}

}  // namespace crosslane::share
