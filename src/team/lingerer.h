// Lingerer: the kernel that may stay on a team's GPU when a short blocking call is over (kernel/lingering.h), as its host sees it: who stays,
// how it is told of the next call, and whether staying pays. Of one rank: members need not agree. It must not know any collective.
//
// It costs a multiprocessor for as long as it stays, and whoever waits for all that runs on the GPU waits for that long. So it stays only where
// the last call began soon after the one before; where it stayed in vain, so many calls more go by before it is tried again; and it is launched
// anew from time to time, so that whoever waits for what runs on the GPU gets on, however many calls another thread has.
#pragma once

#include "base/backoff.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "gpu/driver.h"
#include "gpu/pinned_buffer.h"
#include "kernel/lingering.h"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

namespace crosslane::team {

class Lingerer {
 public:
  /// In the context of the team's kernels, which must be current. `room`: for how many words of a call, and `also` for how many that only some
  /// calls bring. `stay`: for how long, after each call; 0: never. `watch`: of its waits for what a kernel says, with a check of the GPU.
  Lingerer(const gpu::Driver& driver, engine::Engine& engine, const engine::Watch& watch, std::uint32_t room,
           base::Duration stay, std::uint32_t also = 0);
  Lingerer(const Lingerer&) = delete;
  Lingerer& operator=(const Lingerer&) = delete;
  ~Lingerer() { dismiss(); }

  /// What Settings::linger_us means on such GPUs.
  [[nodiscard]] static base::Duration stay_of(std::optional<double> linger_us, const gpu::Driver& driver) noexcept {
    return base::Duration(static_cast<std::int64_t>(linger_us.value_or(driver.emulated ? 0 : 20) * 1e3));
  }

  /// A blocking call begins on this rank; and is over.
  void begin() noexcept;
  void end() noexcept;

  struct Kernel {
    const void* function;  ///< Which it is.
    unsigned blocks;
    [[nodiscard]] bool operator==(const Kernel&) const noexcept = default;
  };
  /// Who stays, unless it has left, or stays for long.
  [[nodiscard]] std::optional<Kernel> stays() const noexcept;
  /// Has that kernel carry out a call (ToldCall's words), if it is what stays. False: it does not.
  [[nodiscard]] bool ring(Kernel kernel, std::span<const std::uint64_t> call);
  /// Whether a kernel that is launched now for a blocking call is to stay behind it.
  [[nodiscard]] bool worth() const noexcept {
    const std::lock_guard lock(mutex_);
    return soon_ && !vain_.rests();
  }
  /// What such a launch is given, which counts as a ring and sends away who stays; and that it succeeded. `idle`: its own call has nothing to
  /// do, and nobody rings before that is over.
  [[nodiscard]] kernel::Stay next(bool idle = false) noexcept;
  void launched(Kernel kernel) noexcept;
  /// Before anything else is enqueued on the stream: who stays is told to go, and goes within a microsecond or two. Any thread.
  void dismiss() noexcept;
  /// Whether any has been launched.
  [[nodiscard]] bool used() const noexcept { return rung_ != 0; }

 private:
  // With the mutex held:
  void send_away() noexcept;
  void write(std::span<const std::uint64_t> call) noexcept;
  void forget() noexcept;
  [[nodiscard]] bool gone() const noexcept;
  [[nodiscard]] bool is_old() const noexcept;
  [[nodiscard]] std::uint64_t state() const noexcept;

  engine::Engine& engine_;
  engine::Watch watch_;
  base::Duration stay_, life_;
  std::uint32_t room_, also_;
  mutable std::mutex mutex_;  // the helper thread and the caller's may both have something to enqueue
  gpu::PinnedBuffer memory_;
  kernel::Bell* bell_ = nullptr;
  std::uint64_t rung_ = 0;
  std::optional<Kernel> stays_;  // as far as is known
  bool heard_ = false;           // it has been rung
  base::Time launched_{}, began_{};
  std::optional<base::Time> ended_;  // the last call, if there was one
  bool soon_ = false;
  base::Backoff<16, 256> vain_;  // calls for which it stayed so
};

}  // namespace crosslane::team
