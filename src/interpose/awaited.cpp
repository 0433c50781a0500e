// See awaited.h.
#include "interpose/awaited.h"

#include "interpose/process.h"
#include "interpose/receive.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace crosslane::interpose {
namespace {

// Such are worth a look each.
constexpr std::size_t is_long = std::size_t{1} << 20;
constexpr unsigned short_ones_a_look = 32;
// Of one that begins receives: mostly nothing is there before the other rank sends, and a look costs as much as two of those.
constexpr base::Duration after_a_vain_look = std::chrono::microseconds{5};
// Of messages that take about as long as the launch that reads them: one that is read as soon as it is there takes this rank as long as four sends, and
// the other rank, which waits for these, sends ahead meanwhile; so it is not looked for more often than this, nor sooner after the first of a window
// (two H200, windows of 1 MiB both ways: of 64 some 430 us rather than 640, of 8 75 rather than 95; UCX 434 and 62).
constexpr base::Duration between_looks = std::chrono::microseconds{20};
// Who waits so soon after the last message that it began has not done anything in between.
constexpr base::Duration at_once = std::chrono::microseconds{20};
// Of what is read: so much takes longer than the calls that begin the next messages, and a look that begins no more does not keep this rank's own
// headers back (between two H200 one that began all there was of a window both ways took 30 us: 16 MiB). Three messages at least: two share what a
// link brings, and may end before the next look (windows both ways, two H200: of 4 MiB 260 GB/s with two, 273 with three; of 16 MiB 331 and 334).
constexpr std::size_t enough_under_way = std::size_t{6} << 20, enough_messages = 3;
// Messages up to this long take about as long as a launch, and several go by one kernel.
constexpr std::size_t is_brief = std::size_t{2} << 20;
// Of more the oldest wait for their own calls.
constexpr std::size_t most = 1024;

}  // namespace

void Awaited::add(Process& process, MPI_Request request, std::weak_ptr<Operation> operation) {
  if (process.multiple()) return;
  // What is over and gone holds its memory as long as it stands here, which the next ones are to be made of.
  while (!receives_.empty() && (receives_.size() == most || receives_.front().second.expired())) receives_.pop_front();
  receives_.emplace_back(request, std::move(operation));
}

void Awaited::completes(const Process& process) noexcept {
  if (process.multiple()) return;
  short_ones_ = 0;
  begins_window_ = true;
}

void Awaited::passes(Process& process) {
  constexpr unsigned seldom = 16;
  if (process.multiple() || ++passes_ % seldom != 0) return;
  try {
    look_around(process);
  } catch (const std::exception&) {
    return;  // whoever completes it meets that, too
  }
}

// The first such call tells, whatever it waits for, where it comes at once, or before all is over; that it was too late tells one that waits for these:
// others take their time.
void Awaited::waits_for(const Process& process, std::span<const MPI_Request> requests) noexcept {
  if (process.multiple() || !began_) return;
  const bool in_time = base::now() - last_begun_ <= at_once ||
                       std::ranges::any_of(under_way_, [](const UnderWay& each) { return !each.done.done(); });
  const auto is_awaited = [&] {
    if (under_way_.empty() && receives_.empty()) return true;
    const MPI_Request first = under_way_.empty() ? receives_.front().first : under_way_.front().receive.first;
    return std::ranges::find(requests, first) != requests.end();
  };
  if (!in_time && !is_awaited()) return;
  began_ = false;
  comes_at_once_ = in_time;
}

// Others are about as long as this one.
bool Awaited::keeps_busy(std::size_t under_way, std::size_t bytes) const noexcept {
  return is_enough(under_way) || (bytes <= is_brief && under_way != 0);
}

bool Awaited::is_enough(std::size_t under_way) const noexcept {
  return under_way >= enough_under_way && under_way_.size() >= enough_messages;
}

// What is over is let go: it holds a mapping of its sender's memory, which may be freed now, and other memory come to its address.
std::size_t Awaited::bytes_under_way(Process& process) {
  std::erase_if(under_way_, [&](const UnderWay& each) {
    if (!each.done.done()) return false;
    const auto operation = each.receive.second.lock();
    if (operation != nullptr && operation->active && operation->look->state == Look::State::pulling)
      look_at(process, *operation, each.receive.first);
    return true;
  });
  std::size_t bytes = 0;
  for (const auto& each : under_way_) bytes += each.bytes;
  return bytes;
}

void Awaited::look(Process& process, Begun begun, std::size_t bytes) {
  if (process.multiple()) return;
  if (bytes < is_long && (begun == Begun::receive || ++short_ones_ < short_ones_a_look)) return;
  short_ones_ = 0;
  began_ = true;
  last_begun_ = base::now();
  const bool is_receive = begun == Begun::receive, spares = is_receive || comes_at_once_;
  const bool is_spaced = spares && bytes <= is_brief;
  if (is_spaced && std::exchange(begins_window_, false)) next_look_ = last_begun_ + between_looks;
  if ((is_receive || is_spaced) && last_begun_ < next_look_) return;
  const std::size_t under_way = bytes_under_way(process);
  if (spares && keeps_busy(under_way, bytes)) return;
  const bool in_vain = begin_reading(process, under_way);
  if (is_spaced)
    next_look_ = base::now() + between_looks;
  else if (is_receive && in_vain)
    next_look_ = base::now() + after_a_vain_look;
}

bool Awaited::begin_reading(Process& process, std::size_t under_way) {
  message::Receiver::Gathering gathering(process.looks() ? &process.receiver() : nullptr);
  for (; !receives_.empty(); receives_.pop_front()) {
    const auto& [request, kept] = receives_.front();
    const auto operation = kept.lock();
    if (operation == nullptr || !operation->active) continue;
    const auto& look = *operation->look;
    const auto has_begun = [&] { return !look.awaits_mpi() && look.state != Look::State::put_off; };
    const bool begins = !has_begun();
    try {
      if (begins) look_at(process, *operation, request, &gathering);
    } catch (const std::exception&) {
      return false;  // whoever completes it meets that, too
    }
    if (!has_begun()) return true;
    if (look.state != Look::State::pulling) continue;
    // What goes on in turns of the engine only is over when its call comes.
    if (look.reading != nullptr) {
      under_way_.push_back({look.pull, look.payload, receives_.front()});
      under_way += look.payload;
    }
    if (!begins || !is_enough(under_way)) continue;
    receives_.pop_front();
    return false;
  }
  return false;
}

}  // namespace crosslane::interpose
