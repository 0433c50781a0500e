// See lingerer.h.
#include "team/lingerer.h"

#include "kernel/ringing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <utility>

namespace crosslane::team {

using kernel::Bell;

Lingerer::Lingerer(const gpu::Driver& driver, engine::Engine& engine, const engine::Watch& watch, std::uint32_t room,
                   base::Duration stay, std::uint32_t also)
    : engine_(engine),
      watch_(watch),
      stay_(stay),
      life_(std::max<base::Duration>(std::chrono::milliseconds{1}, 4 * stay)),
      room_(room),
      also_(also) {
  if (stay_.count() <= 0) return;
  memory_ = gpu::PinnedBuffer(driver, sizeof(Bell));
  bell_ = new (memory_.data()) Bell{};
}

void Lingerer::begin() noexcept {
  if (bell_ == nullptr) return;
  began_ = base::now();
  soon_ = ended_ && began_ - *ended_ < stay_;
  const std::lock_guard lock(mutex_);
  vain_.pass();
}

void Lingerer::end() noexcept {
  if (bell_ != nullptr) ended_ = base::now();
}

std::uint64_t Lingerer::state() const noexcept { return std::atomic_ref(bell_->state).load(std::memory_order_seq_cst); }

std::optional<Lingerer::Kernel> Lingerer::stays() const noexcept {
  const std::lock_guard lock(mutex_);
  return !stays_ || is_old() || gone() ? std::nullopt : stays_;
}

bool Lingerer::ring(Kernel kernel, std::span<const std::uint64_t> call) {
  std::unique_lock lock(mutex_);
  if (stays_ != kernel || is_old()) return false;
  if (!gone()) {
    write(call);
    const std::uint64_t rung = rung_;
    lock.unlock();
    const auto told = [&] { return state() != Bell::leaving(rung); };
    if (!told() && !engine_.soon(told)) engine_.until(told, watch_);
    lock.lock();
    if (state() != Bell::left(rung)) {
      heard_ = true;
      vain_.prove();
      return true;
    }
  }
  forget();
  return false;
}

kernel::Stay Lingerer::next(bool idle) noexcept {
  const std::lock_guard lock(mutex_);
  send_away();
  return {reinterpret_cast<Bell*>(memory_.device_address()), ++rung_, static_cast<std::uint64_t>(stay_.count()),
          idle ? std::uint64_t{1} : 0};
}

void Lingerer::launched(Kernel kernel) noexcept {
  const std::lock_guard lock(mutex_);
  stays_ = kernel;
  heard_ = false;
  launched_ = base::now();
}

void Lingerer::dismiss() noexcept {
  const std::lock_guard lock(mutex_);
  send_away();
}

void Lingerer::send_away() noexcept {
  if (!stays_ || memory_.gone()) return;
  if (!gone()) write({});
  forget();
}

// While it waits for the next ring.
bool Lingerer::gone() const noexcept { return state() == Bell::left(rung_ + 1); }

bool Lingerer::is_old() const noexcept { return began_ - launched_ > life_; }

void Lingerer::forget() noexcept {
  if (std::exchange(stays_, std::nullopt) && !heard_) vain_.rest();
}

void Lingerer::write(std::span<const std::uint64_t> call) noexcept {
  kernel::write_ring(*bell_, ++rung_, call, room_, also_);
}

}  // namespace crosslane::team
