// Writer: the kernels by which this rank writes long payloads to memory of other GPUs, two at a time, while copy engines of theirs read others
// (held.cpp). Until one has begun its receiver may call it off (kernel/push.h): so no payload waits for a GPU that is full of the application's
// kernels. It must not know matching, nor where payloads lie.
#pragma once

#include "engine/engine.h"
#include "gpu/buffer.h"
#include "gpu/marker.h"
#include "gpu/stream.h"
#include "lane/mover.h"
#include "share/offers.h"
#include "team/home.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace crosslane::message {

/// Of one rank. Thread-safe.
class Writer {
 public:
  /// All must outlive it. `writes`: else it is never ready.
  Writer(engine::Engine& engine, share::Offers& offers, lane::Mover& mover, bool writes)
      : engine_(engine), offers_(offers), mover_(mover), writes_(writes) {}
  ~Writer() { leave(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// This rank takes part with that GPU: once. Nothing is made yet.
  void live_at(team::Home& home) noexcept;
  /// Makes what kernels need, once: before the driver may wait for the application's, and these for who would make it. False where
  /// memory was short: to be tried again.
  bool make() noexcept;
  /// The home goes. Nothing is being written any more.
  void leave() noexcept;

  /// False: no kernel is to be had; or the GPU is full of others, so that one that was called off has yet to begin.
  [[nodiscard]] bool ready();

  /// Contiguous bytes of this GPU, at least one, what becomes of a word behind them, and by what it may be called off until it has begun.
  struct Errand {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
    share::Offers::Ticket offer;
    gpu::WordWrite word;
    CUdeviceptr begun, called_off;  ///< Of the offer, as the GPU reaches them.
  };
  /// Launches a kernel that does that, where this is ready(). Throws Error where the driver refuses.
  void write(const Errand& errand);
  /// It is there, or its receiver has read it: closes the offer, once the kernel that was launched for it looks at that no more.
  void close(const share::Offers::Ticket& offer);
  /// Closes those that were left so. True if there were any.
  bool close_seen();
  /// Throws Error where the GPU has failed, or the application has ended its context: then nothing tells of an end.
  void throw_if_failed() const;

  /// How many payloads it has written.
  [[nodiscard]] std::uint64_t written() const noexcept { return written_.load(std::memory_order_relaxed); }

 private:
  struct Channel {
    explicit Channel(const gpu::Driver& driver);
    gpu::Stream stream;
    gpu::Buffer control;  // kernel::PushControl
  };
  using Channels = std::array<Channel, 2>;
  bool close_seen_locked();
  void throw_if_gone() const;
  static void throw_if_failed(const Channels& channels);

  engine::Engine& engine_;
  share::Offers& offers_;
  lane::Mover& mover_;
  const bool writes_;
  mutable std::mutex mutex_;  // of what follows
  team::Home* home_ = nullptr;
  // Not lent by the copier: of a kernel that has told of its end some blocks may have yet to begin, and what came behind them would wait for that.
  std::unique_ptr<Channels> channels_;  // null where no kernel is to be had
  std::size_t next_ = 0;
  std::vector<share::Offers::Ticket> called_off_;  // of kernels that may have yet to begin
  std::atomic<std::uint64_t> written_{0};
};

}  // namespace crosslane::message
