// See writer.h.
#include "message/writer.h"

#include "base/error.h"
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
  if (writes_) home_ = &home;
}

bool Writer::make() noexcept {
  const std::lock_guard lock(mutex_);
  if (home_ == nullptr || channels_ != nullptr) return true;
  try {
    const gpu::Driver& driver = home_->driver();
    const gpu::ContextScope scope(driver, home_->context());
    if (mover_.prepare(home_->context()))
      channels_ = std::make_unique<Channels>(Channels{Channel(driver), Channel(driver)});
  } catch (const std::exception& error) {
    base::log(base::Topic::info, "this rank's messages are read, not written: {}", error.what());
    return !base::is_shortage(error);
  }
  return true;
}

// Kernels that were called off look at the offers' words before they stay away.
void Writer::leave() noexcept {
  const std::lock_guard lock(mutex_);
  team::Home* const home = std::exchange(home_, nullptr);
  if (channels_ == nullptr) return;
  try {
    if (home->stands() && !home->driver().unloading()) {
      const gpu::ContextScope scope(home->driver(), home->context());
      close_seen_locked();
      if (!called_off_.empty())
        engine_.until_apart(
            [this] {
              close_seen_locked();
              return called_off_.empty();
            },
            {.call = "messages that this GPU had no room to write",
             .check = [](const void* channels) { throw_if_failed(*static_cast<const Channels*>(channels)); },
             .checked = channels_.get()});
    }
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "kernels that were to write messages: {}", error.what());
  }
  channels_.reset();
  // No kernel is left to begin.
  for (const auto& offer : std::exchange(called_off_, {})) offers_.close(offer);
}

bool Writer::ready() {
  const std::lock_guard lock(mutex_);
  close_seen_locked();
  return called_off_.empty() && channels_ != nullptr;
}

void Writer::write(const Errand& errand) {
  const std::lock_guard lock(mutex_);
  throw_if_gone();
  const gpu::ContextScope scope(home_->driver(), home_->context());
  const Channel& channel = (*channels_)[next_++ % channels_->size()];
  const kernel::Revocation revocation{kernel::pointer_to<std::uint64_t>(errand.begun),
                                      kernel::pointer_to<const std::uint64_t>(errand.called_off),
                                      share::Offers::use(errand.offer)};
  mover_.push(home_->context(), channel.stream, errand.to, errand.from, errand.bytes, revocation, errand.word,
              channel.control);
}

void Writer::close(const share::Offers::Ticket& offer) {
  const std::lock_guard lock(mutex_);
  if (offers_.has_begun(offers_.owner(), offer)) written_.fetch_add(1, std::memory_order_relaxed);
  called_off_.push_back(offer);
  close_seen_locked();
}

bool Writer::close_seen() {
  const std::lock_guard lock(mutex_);
  return close_seen_locked();
}

bool Writer::close_seen_locked() {
  return std::erase_if(called_off_, [this](const auto& offer) {
           if (!offers_.has_looked(offer)) return false;
           offers_.close(offer);
           return true;
         }) != 0;
}

void Writer::throw_if_gone() const {
  if (channels_ == nullptr)
    throw base::Error(base::ErrorClass::other, "the CUDA context that this rank took part with was destroyed or reset");
}

void Writer::throw_if_failed() const {
  const std::lock_guard lock(mutex_);
  throw_if_gone();
  const gpu::ContextScope scope(home_->driver(), home_->context());
  throw_if_failed(*channels_);
}

void Writer::throw_if_failed(const Channels& channels) {
  for (const Channel& channel : channels) static_cast<void>(channel.stream.view().idle());
}

}  // namespace crosslane::message
