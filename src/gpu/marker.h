// A marker: a word in host memory that a stream writes when it gets there, and the host reads at no cost.
// Unlike an event it can be read during a graph capture and by a thread that makes no CUDA call.
// This file must not wait: engine/ does.
#pragma once

#include "gpu/driver.h"
#include "gpu/pinned_pages.h"
#include "gpu/stores.h"
#include "gpu/stream.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace crosslane::gpu {

/// True if streams of the current context's GPU write 64-bit words.
[[nodiscard]] bool writes_words(const Driver& driver);

/// Enqueues "the word becomes `value`", after a memory barrier. `address` is where the GPU knows the word; 0 where it cannot write it:
/// then a host function does, slower by some microseconds.
void write_word(StreamView stream, std::atomic<std::uint64_t>& word, CUdeviceptr address, std::uint64_t value);

/// One such word, and what it becomes.
struct WordWrite {
  std::atomic<std::uint64_t>* word;
  CUdeviceptr address;
  std::uint64_t value;
};
/// The same of several, in one call of the driver if that can be.
void write_words(StreamView stream, std::span<const WordWrite> writes);

/// The word and the last value asked for. Move-only, address-stable word, which may be read as long as the Marker lives, but grows no more once its
/// context has ended. post() is for one thread at a time, on streams that run in order after each other: values only grow, so two unordered
/// streams would mark for one another.
///
/// States of the word w against the last posted value v: w == v idle; w < v under way. Only the stream (or a kernel there, or the host
/// function in its stead) writes w, and skips what next() gave in vain; only post() and next() write v; whoever reads w >= some posted
/// value with acquire sees all that the stream wrote before, in host memory too, since the write of the value carries a memory barrier.
class Marker {
 public:
  /// The context that is current decides which streams may post: those of its GPU (and other GPUs', pinned memory is
  /// portable). Where the system pins no more memory, or the GPU writes no 64-bit words, the stream has a host function
  /// write the word: slower by some microseconds, and nothing else changes.
  explicit Marker(const Driver& driver);

  /// Enqueues "the word becomes the next value" and returns that value. The Marker must live until it is reached.
  std::uint64_t post(StreamView stream);
  /// The same behind stores, which it enqueues.
  std::uint64_t post(StreamView stream, Stores& stores);
  /// What post() would enqueue, for who does so by other means. Where that fails nothing is to wait for the value.
  [[nodiscard]] WordWrite next() noexcept { return {word_, address(), ++posted_}; }

  [[nodiscard]] const std::atomic<std::uint64_t>& word() const noexcept { return *word_; }
  [[nodiscard]] bool reached(std::uint64_t value) const noexcept {
    return word_->load(std::memory_order_acquire) >= value;
  }
  /// True when everything posted has happened.
  [[nodiscard]] bool idle() const noexcept { return reached(posted_); }
  /// The word as the GPU knows it, for kernels and stream waits; 0 where it could not be pinned.
  [[nodiscard]] CUdeviceptr device_address() const noexcept { return pinned_.device_address(); }

 private:
  struct alignas(64) Line {
    std::atomic<std::uint64_t> word{0};
  };

  /// Where streams write the word; 0 where they cannot.
  [[nodiscard]] CUdeviceptr address() const noexcept { return stream_writes_ ? pinned_.device_address() : 0; }

  PinnedPages pinned_;
  std::unique_ptr<Line> ordinary_;  // holds the word where pinned_ is empty
  std::atomic<std::uint64_t>* word_ = nullptr;
  std::uint64_t posted_ = 0;
  bool stream_writes_ = false;  // by cuStreamWriteValue64; else a host function writes the word
};

}  // namespace crosslane::gpu
