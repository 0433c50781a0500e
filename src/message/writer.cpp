// See writer.h.
#include "message/writer.h"

#include "base/log.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "kernel/push.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace crosslane::message {

Writer::Channel::Channel(const gpu::Driver& driver)
    : stream(driver, gpu::Stream::Priority::high), control(driver, sizeof(kernel::PushControl)) {
  gpu::fill_async(control.data(), 0, control.size(), stream);
}

void Writer::live_at(team::Home& home) noexcept {
  const std::lock_guard lock(mutex_);
  home_ = &home;
}

// Kernels that were called off look at the offers' words before they stay away.
void Writer::leave() noexcept {
  const std::lock_guard lock(mutex_);
  team::Home* const home = std::exchange(home_, nullptr);
  if (channels_ == nullptr) return;
  try {
    if (home->stands() && !home->driver().unloading()) {
      const gpu::ContextScope scope(home->driver(), home->context());
      const auto throw_if_failed = [](const void* channels) {
        for (const Channel& channel : *static_cast<const Channels*>(channels))
          static_cast<void>(channel.stream.view().idle());
      };
      engine_.until_apart(
          [this] {
            close_seen();
            return called_off_.empty();
          },
          {.call = "messages that this GPU had no room to write",
           .check = throw_if_failed,
           .checked = channels_.get()});
    }
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "kernels that were to write messages: {}", error.what());
  }
  channels_.reset();
  // No kernel is left to begin.
  for (const auto& offer : std::exchange(called_off_, {})) offers_.close(offer);
}

bool Writer::make() noexcept {
  if (home_ == nullptr) return false;
  if (channels_ != nullptr) return true;
  try {
    const gpu::Driver& driver = home_->driver();
    const gpu::ContextScope scope(driver, home_->context());
    if (!mover_.prepare(home_->context())) return false;
    channels_ = std::make_unique<Channels>(Channels{Channel(driver), Channel(driver)});
    return true;
  } catch (const std::exception& error) {
    base::log(base::Topic::info, "messages are read, not written: {}", error.what());
    home_ = nullptr;
    return false;
  }
}

bool Writer::ready() noexcept {
  const std::lock_guard lock(mutex_);
  close_seen();
  return called_off_.empty() && make();
}

bool Writer::write(const Errand& errand) {
  const std::lock_guard lock(mutex_);
  if (errand.word.address == 0 || errand.begun == 0 || errand.called_off == 0 || !make()) return false;
  const gpu::ContextScope scope(home_->driver(), home_->context());
  const Channel& channel = (*channels_)[next_++ % channels_->size()];
  const kernel::Revocation revocation{kernel::pointer_to<std::uint64_t>(errand.begun),
                                      kernel::pointer_to<const std::uint64_t>(errand.called_off),
                                      share::Offers::use(errand.offer)};
  return mover_.push(home_->context(), channel.stream, errand.to, errand.from, errand.bytes, revocation, errand.word,
                     channel.control);
}

void Writer::close(const share::Offers::Ticket& offer) {
  if (offers_.has_begun(offers_.owner(), offer)) written_.fetch_add(1, std::memory_order_relaxed);
  if (offers_.has_looked(offer)) return offers_.close(offer);
  const std::lock_guard lock(mutex_);
  called_off_.push_back(offer);
}

void Writer::close_seen() {
  std::erase_if(called_off_, [this](const auto& offer) {
    if (!offers_.has_looked(offer)) return false;
    offers_.close(offer);
    return true;
  });
}

void Writer::throw_if_failed() const {
  const std::lock_guard lock(mutex_);
  if (channels_ == nullptr) return;
  const gpu::ContextScope scope(home_->driver(), home_->context());
  for (const Channel& channel : *channels_) static_cast<void>(channel.stream.view().idle());
}

}  // namespace crosslane::message
