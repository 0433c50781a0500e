// See lingerer.h.
#include "team/lingerer.h"

#include <algorithm>
#include <atomic>
#include <new>

namespace crosslane::team {

using kernel::Bell;

Lingerer::Lingerer(const gpu::Driver& driver, engine::Engine& engine, int members, base::Duration stay)
    : engine_(engine), stay_(stay), words_(8 * static_cast<std::size_t>(members) + 8) {
  if (stay_.count() <= 0) return;
  memory_ = gpu::PinnedBuffer(driver, sizeof(Bell));
  bell_ = new (memory_.data()) Bell{};
}

void Lingerer::begin() noexcept {
  if (bell_ == nullptr) return;
  soon_ = base::now() - ended_ < stay_;
  if (skips_ != 0) --skips_;
}

void Lingerer::end() noexcept {
  if (bell_ != nullptr) ended_ = base::now();
}

std::uint64_t Lingerer::state() const noexcept { return std::atomic_ref(bell_->state).load(std::memory_order_seq_cst); }

bool Lingerer::ring(Kernel kernel, std::span<const std::uint64_t> call) {
  if (stays_ != kernel) return false;
  if (!gone()) {
    write(call);
    const auto told = [this] { return state() != Bell::leaving(rung_); };
    if (!told() && !engine_.soon(told)) engine_.until(told, {.call = "a kernel that stays for further calls"});
    if (state() != Bell::left(rung_)) {
      heard_ = true;
      penalty_ = 0;
      return true;
    }
  }
  forget();
  return false;
}

kernel::Stay Lingerer::next() noexcept {
  dismiss();
  return {reinterpret_cast<Bell*>(memory_.device_address()), ++rung_, static_cast<std::uint64_t>(stay_.count())};
}

void Lingerer::launched(Kernel kernel) noexcept {
  stays_ = kernel;
  heard_ = false;
}

void Lingerer::dismiss() noexcept {
  if (!stays_ || memory_.gone()) return;
  if (!gone()) write({});
  forget();
}

// While it waits for the next ring.
bool Lingerer::gone() const noexcept { return state() == Bell::left(rung_ + 1); }

void Lingerer::forget() noexcept {
  stays_.reset();
  if (heard_) return;
  constexpr unsigned least = 16, most = 256;
  penalty_ = std::clamp(2 * penalty_, least, most);
  skips_ = penalty_;
}

// Whole, whichever kernel reads it: so no flag of 2^32 rings ago is left. The last store is ordered before what is loaded next.
void Lingerer::write(std::span<const std::uint64_t> call) noexcept {
  const std::uint64_t flag = std::uint64_t{kernel::Packets::flag_of(++rung_)} << 32;
  for (std::size_t k = words_; k-- != 0;) {
    const std::uint64_t word = k < call.size() ? call[k] : 0;
    const auto order = k == 0 ? std::memory_order_seq_cst : std::memory_order_relaxed;
    std::atomic_ref(bell_->request[k].low).store((word & 0xffffffffU) | flag, std::memory_order_release);
    std::atomic_ref(bell_->request[k].high).store(word >> 32 | flag, order);
  }
}

}  // namespace crosslane::team
