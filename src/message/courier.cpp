// See courier.h.
#include "message/courier.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "kernel/ringing.h"
#include "share/steps.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <limits>
#include <mutex>

namespace crosslane::message {
namespace {

// One block is told of a payload, and has told that it is there, a microsecond earlier than several, and has 32 KiB in flight. Of more from
// another H200 few blocks bring as much as many: 512 KiB take 6.8 us with 16 blocks and 7.3 with 32, 1 MiB 8.1 with 32 and 8.8 with 64,
// 2 MiB 11.4 and 11.0.
constexpr std::size_t most_for_one_block = std::size_t{32} << 10, most_for_some = std::size_t{512} << 10;
constexpr unsigned some_blocks = 16, many_blocks = 32;

// Of several payloads at a time each waits for all of them.
constexpr std::size_t most_together_for_one_block = 2 * most_for_one_block;

std::size_t size_of(std::size_t bytes) noexcept {
  return bytes <= most_for_one_block ? 0 : bytes <= most_for_some ? 1 : 2;
}

// From a launch until a kernel runs on a GPU with room for it, by far.
constexpr std::chrono::microseconds soon_enough{20};

// In a ping-pong the other half goes the other way.
constexpr int legs = 2;

}  // namespace

Courier::Equipment::Equipment(team::Home& of, engine::Engine& engine, base::Duration stay)
    : home(of),
      stream(of.driver(), gpu::Stream::Priority::high),
      marker(of.driver()),
      word(of.driver(), share::line_bytes),
      control(of.driver(), sizeof(kernel::Control)),
      lingerer(of.driver(), engine, watch("a kernel that stays for messages"), kernel::told_room(1), stay,
               kernel::most_told_also<kernel::CarryParameters>) {
  std::fill_n(word.data(), word.size(), std::byte{0});
  gpu::fill_async(control.data(), 0, control.size(), stream);
}

engine::Watch Courier::Equipment::watch(const char* call) const noexcept {
  const auto throw_if_failed = [](const void* checked) {
    const auto& mine = *static_cast<const Equipment*>(checked);
    const gpu::ContextScope scope(mine.home.driver(), mine.home.context());
    static_cast<void>(mine.stream.view().idle());
  };
  return {.call = call, .check = throw_if_failed, .checked = this};
}

void Courier::live_at(team::Home& home) noexcept {
  const std::lock_guard lock(mutex_);
  stay_ = legs * team::Lingerer::stay_of(linger_us_, home.driver());
  compares_ = !home.driver().emulated;
  // Half of the GPU is the teams'.
  most_blocks_ = std::max(home.kernels().resident_team_blocks() / 2, 1U);
  if (stay_.count() > 0) home_ = &home;
}

void Courier::leave() noexcept {
  const std::lock_guard lock(mutex_);
  home_ = nullptr;
  if (equipment_ == nullptr) return;
  Equipment& made = *equipment_;
  try {
    if (made.home.stands() && !made.home.driver().unloading()) {
      // It uses the memory up to its end.
      const gpu::ContextScope scope(made.home.driver(), made.home.context());
      made.lingerer.dismiss();
      const std::uint64_t last = made.marker.post(made.stream);
      engine_.wait(engine::Completion::of(made.marker.word(), last),
                   made.watch("sending away a kernel that stays for messages"));
    }
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a kernel that stays for messages: {}", error.what());
  }
  equipment_.reset();
}

unsigned Courier::blocks_for(std::size_t bytes) const noexcept {
  const unsigned wanted = bytes <= most_for_one_block ? 1 : bytes <= most_for_some ? some_blocks : many_blocks;
  return std::min(wanted, most_blocks_);
}

std::optional<team::Lingerer::Kernel> Courier::staying_for(std::size_t bytes) const noexcept {
  if (equipment_ == nullptr) return std::nullopt;
  const auto stays = equipment_->lingerer.stays();
  return stays && stays->blocks >= blocks_for(bytes) ? stays : std::nullopt;
}

std::optional<team::Lingerer::Kernel> Courier::free_for(std::size_t bytes) const noexcept {
  return equipment_ != nullptr && equipment_->free.done() ? staying_for(bytes) : std::nullopt;
}

void Courier::comes(base::Time now, bool first) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || home_ == nullptr) return;
  if (first) {
    soon_ = asked_ && now - *asked_ < stay_;
    single_.begin();
    several_.begin();
    if (equipment_ != nullptr) equipment_->lingerer.begin();
  }
  asked_ = now;
  if (equipment_ != nullptr) equipment_->lingerer.end();
}

Courier::Presence Courier::presence(const Kind& kind, base::Time now) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || home_ == nullptr || equipment_ == nullptr) return Presence::away;
  Equipment& with = *equipment_;
  const bool idle = with.free.done();
  if (with.launched && idle) with.launched.reset();
  if (compares_ && with.launched && now - *with.launched > soon_enough) {
    with.launched.reset();
    single_.rest();
    several_.rest();
  }
  if (rests(kind)) {
    if (idle && single_.rests() && several_.rests()) with.lingerer.dismiss();
    return Presence::away;
  }
  if (with.launched || !staying_for(kind.bytes)) return Presence::away;
  return idle ? Presence::free : Presence::busy;
}

std::size_t Courier::carry(std::span<const Errand> errands) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || home_ == nullptr || errands.empty()) return 0;
  const auto stays = free_for(errands.front().bytes);
  if (!stays) return 0;
  Equipment& with = *equipment_;
  const Errand& first = errands.front();
  kernel::CarryParameters told = parameters();
  told.frame.done = reinterpret_cast<std::uint64_t*>(first.word.address);
  told.from = reinterpret_cast<std::uintptr_t>(first.from);
  told.to = reinterpret_cast<std::uintptr_t>(first.to);
  told.bytes = first.bytes;
  std::size_t bytes = first.bytes;
  for (const Errand& each : errands.subspan(1)) {
    bytes += each.bytes;
    const bool is_too_much =
        (stays->blocks == 1 && bytes > most_together_for_one_block) || blocks_for(each.bytes) > stays->blocks;
    if (told.others == std::size(told.other) || is_too_much) break;
    told.other[told.others++] = {
        .from = reinterpret_cast<std::uintptr_t>(each.from),
        .to = reinterpret_cast<std::uintptr_t>(each.to),
        .bytes = each.bytes,
        .ending = {reinterpret_cast<std::uint64_t*>(each.word.address), each.word.value},
    };
  }
  if (!with.lingerer.ring(*stays, kernel::ToldCall(told, first.word.value, 1).words())) return 0;
  with.free = engine::Completion::of(*first.word.word, first.word.value);
  const auto count = static_cast<std::size_t>(1 + told.others);
  carried_.fetch_add(count, std::memory_order_relaxed);
  return count;
}

bool Courier::wants(const Kind& kind) const noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || home_ == nullptr || !soon_ || (compares_ && !of(kind).tries(size_of(kind.bytes)))) return false;
  return equipment_ == nullptr || (equipment_->free.done() && !free_for(kind.bytes) && equipment_->lingerer.worth());
}

bool Courier::launch(std::size_t bytes) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || home_ == nullptr) return false;
  if (rests_.rests()) {
    rests_.pass();
    return false;
  }
  try {
    const gpu::ContextScope scope(home_->driver(), home_->context());
    if (equipment_ == nullptr) equipment_ = std::make_unique<Equipment>(*home_, engine_, stay_);
    Equipment& with = *equipment_;
    if (!with.free.done()) return false;
    kernel::CarryParameters nothing = parameters();
    nothing.frame.done = reinterpret_cast<std::uint64_t*>(with.word.device_address());
    nothing.frame.done_value = ++with.launches;
    const auto kernel = home_->kernels().lingering_carry();
    const unsigned blocks = blocks_for(bytes);
    kernel.launch(with.stream, nothing, blocks, with.lingerer.next(true));
    with.lingerer.launched({kernel.function, blocks});
    with.launched = base::now();
    with.free = engine::Completion::of(*reinterpret_cast<std::atomic<std::uint64_t>*>(with.word.data()), with.launches);
    return true;
  } catch (const std::exception& error) {
    base::log(base::Topic::info, "no kernel stays for messages: {}", error.what());
    if (base::is_shortage(error))
      rests_.rest();
    else
      home_ = nullptr;
    return false;
  }
}

void Courier::took(const Kind& kind, bool carried, base::Duration time) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || home_ == nullptr || !compares_) return;
  if (!carried)
    of(kind).usual(size_of(kind.bytes), time);
  else
    static_cast<void>(of(kind).quick(size_of(kind.bytes), time));
}

void Courier::throw_if_failed() const {
  const std::lock_guard lock(mutex_);
  if (equipment_ == nullptr)
    throw base::Error(base::ErrorClass::other, "the CUDA context that a message was read in has ended meanwhile");
  const engine::Watch watch = equipment_->watch("a message that a kernel reads");
  watch.check(watch.checked);
}

kernel::CarryParameters Courier::parameters() const noexcept {
  kernel::CarryParameters made{};
  made.frame.members = 1;
  made.frame.control[0] = reinterpret_cast<kernel::Control*>(equipment_->control.data());
  made.frame.limit = {std::numeric_limits<std::uint64_t>::max(), nullptr};
  return made;
}

}  // namespace crosslane::message
