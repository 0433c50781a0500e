// Courier: the kernel that may stay on this rank's GPU to read the next short payloads from other GPUs (kernel/carry.h). From a word of the host
// in pinned memory to its first load it takes two microseconds, where a call of the driver, and the way from there to a copy engine, take six.
// It must not know matching, nor where payloads lie.
//
// It carries one payload at a time, or several that were found together, and is rung only where it is known to run and to wait: what it does not
// take goes the usual way, so that no payload waits for a kernel that cannot start, as where the application's kernels fill the GPU. So it is
// launched with nothing to do, behind payloads that went the usual way, where such payloads follow each other closely (team/lingerer.h says when
// that pays). Whether it is faster is measured: a kernel that shares its multiprocessors with others may take longer than a copy engine, and is
// then left alone for a while. So it is where it does not begin to run soon: the GPU is full of others, from which it would take room.
#pragma once

#include "base/backoff.h"
#include "base/clock.h"
#include "base/light_mutex.h"
#include "engine/engine.h"
#include "gpu/buffer.h"
#include "gpu/marker.h"
#include "gpu/pinned_buffer.h"
#include "gpu/stream.h"
#include "kernel/carry.h"
#include "message/comparison.h"
#include "team/home.h"
#include "team/lingerer.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace crosslane::message {

/// Of one rank. Thread-safe: whoever comes while another thread is at it goes the usual way.
class Courier {
 public:
  /// `linger_us`: as in Settings. `engine` must outlive it.
  Courier(engine::Engine& engine, std::optional<double> linger_us) : engine_(engine), linger_us_(linger_us) {}
  ~Courier() { leave(); }
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Longer payloads are faster by the copy engine, which brings more bytes a second.
  static constexpr std::size_t most_bytes = std::size_t{2} << 20;
  /// And of few that a call waits for, up to so many, longer ones are as fast by launches. Two H200, windows of four both ways: 64 KiB take 0.94
  /// to 1.0 of the time, 256 KiB 1.12; windows of 64 of 64 KiB one way 1.19.
  static constexpr std::size_t few = kernel::CarryParameters::most, most_bytes_of_few = std::size_t{64} << 10;

  /// This rank takes part with that GPU: once. Nothing is made yet.
  void live_at(team::Home& home) noexcept;
  /// The home goes. Nothing is being carried any more.
  void leave() noexcept;

  /// Contiguous bytes, 1 to most_bytes of them, and what becomes of a word in memory that others see when they are there.
  struct Errand {
    std::byte* to;  ///< In the home's context.
    const std::byte* from;
    std::size_t bytes;
    gpu::WordWrite word;
  };
  /// A payload has come that it might carry; the `first` one that its call finds: so it counts how closely such calls follow each other.
  void comes(base::Time now, bool first) noexcept;
  /// What payloads have in common whose times can be compared: how many bytes there are of them, and whether their call waits for several.
  struct Kind {
    std::size_t bytes;
    bool several;
  };
  /// Whether one runs that is large enough for such a payload, as it seems.
  enum class Presence : std::uint8_t { away, busy, free };
  [[nodiscard]] Presence presence(const Kind& kind, base::Time now) noexcept;
  /// Has it carry as many of these as it takes at a time, the first ones: how many. 0: they are the caller's to copy, who asks wants() behind that.
  [[nodiscard]] std::size_t carry(std::span<const Errand> errands);
  /// Whether a kernel had better stay for the next ones of about that kind, where none does.
  [[nodiscard]] bool wants(const Kind& kind) const noexcept;
  /// Launches it. Takes some microseconds; the first time some hundreds. False: it is not to be had.
  bool launch(std::size_t bytes) noexcept;

  /// Throws Error where the GPU has failed, which then never ends what is carried.
  void throw_if_failed() const;
  /// How long payloads that it might have carried took until the end of their first one was seen, and whether it did carry them.
  void took(const Kind& kind, bool carried, base::Duration time) noexcept;

  /// How many payloads it has carried.
  [[nodiscard]] std::uint64_t carried() const noexcept { return carried_.load(std::memory_order_relaxed); }

 private:
  // What a kernel needs, in the home's context.
  struct Equipment {
    Equipment(team::Home& home, engine::Engine& engine, base::Duration stay);
    /// With a check of the GPU.
    [[nodiscard]] engine::Watch watch(const char* call) const noexcept;

    team::Home& home;
    gpu::Stream stream;
    gpu::Marker marker;      // of the stream
    gpu::PinnedBuffer word;  // grows with each launch, once it runs
    gpu::Buffer control;     // kernel::Control of a team of one
    team::Lingerer lingerer;
    std::uint64_t launches = 0;
    std::optional<base::Time> launched;  // until it is seen to run
    engine::Completion free;             // what it was given last is done, or it runs by now
  };
  [[nodiscard]] Comparison& of(const Kind& kind) noexcept { return kind.several ? several_ : single_; }
  [[nodiscard]] const Comparison& of(const Kind& kind) const noexcept { return kind.several ? several_ : single_; }
  [[nodiscard]] bool rests(const Kind& kind) const noexcept { return compares_ && of(kind).rests(); }
  [[nodiscard]] unsigned blocks_for(std::size_t bytes) const noexcept;
  [[nodiscard]] kernel::CarryParameters parameters() const noexcept;
  [[nodiscard]] std::optional<team::Lingerer::Kernel> staying_for(std::size_t bytes) const noexcept;
  [[nodiscard]] std::optional<team::Lingerer::Kernel> free_for(std::size_t bytes) const noexcept;

  engine::Engine& engine_;
  const std::optional<double> linger_us_;
  mutable base::LightMutex mutex_;  // of what follows
  team::Home* home_ = nullptr;      // where a kernel may stay
  base::Duration stay_{};
  unsigned most_blocks_ = 1;
  std::unique_ptr<Equipment> equipment_;
  base::Backoff<64, 4096> rests_;      // in payloads, where memory for it was short
  std::optional<base::Time> asked_;    // the last time
  bool soon_ = false;                  // that was soon after the time before
  bool compares_ = true;               // times of emulated GPUs are the processors', and tell nothing
  Comparison single_{3}, several_{3};  // of short ones, longer ones, and long ones
  std::atomic<std::uint64_t> carried_{0};
};

}  // namespace crosslane::message
