// See lifted.h. What lies in the same context is packed and unpacked there; the rest, memory of another GPU, of the host, passes through
// pinned host memory.
#include "interpose/lifted.h"

#include "base/error.h"
#include "interpose/teams.h"

#include <utility>

namespace crosslane::interpose {

Lifted::Lifted(Process& process, team::Home& home, const char* call, const char* argument, const void* base,
               Extent extent)
    : process_(process),
      home_(home),
      call_(call),
      base_(static_cast<std::byte*>(const_cast<void*>(base))),
      extent_(std::move(extent)) {
  const auto span = extent_.layout->span(extent_.count);
  data_ = lane::byte_at(base_, static_cast<std::ptrdiff_t>(span.begin));
  const Located located = locate(process_.copier(), call_, argument, base, *extent_.layout, extent_.count,
                                 extent_.apart ? Apart::always : Apart::if_meant);
  info_ = located.seen;
  const bool ours =
      located.place && located.place->context == home_.context() && info_.kind == gpu::PointerInfo::Kind::device;
  if (ours && extent_.usable()) {
    settle(*located.place);
    return;
  }
  segments_ = located.in_segments(extent_.bytes());
  copied_ = true;
}

// What looked synchronous to the application may still be under way there, at first sight.
void Lifted::settle(const lane::Place& place) { process_.copier().settle(place, {.call = call_}); }

void Lifted::make_room() {
  if (!copied_) return;
  copy_.emplace(process_, home_, call_, extent_.bytes());
  data_ = copy_->data();
}

void Lifted::give_back() noexcept {
  if (copy_) copy_->give_back();
}

share::Exposed Lifted::show() const {
  if (is_buffer()) return home_.exposure().show(info_, data_);
  // What is not kept is another allocation in each call, which others would open for nothing.
  if (!copy_->lasts()) return {};
  return home_.exposure().show(process_.gpu().inspect(data_), data_);
}

void Lifted::lift() {
  if (is_buffer()) return;
  copy(Way::in);
}

void Lifted::lower() {
  if (is_buffer()) return;
  copy(Way::out);
}

bool Lifted::enqueues() const noexcept {
  if (is_buffer()) return false;
  for (const auto& segment : segments_)
    if (!is_here(segment.place) || !process_.copier().settled(*segment.place)) return false;
  return true;
}

void Lifted::enqueue(Way way, gpu::StreamView stream) {
  const lane::Batch batch(process_.copier(), {.call = call_});
  for (const auto& [begin, end, place] : segments_) {
    look(batch, begin, way);
    const auto [to, from] = sides(begin, way);
    process_.copier().mover().copy(home_.context(), stream, to, from, begin, end);
  }
}

void Lifted::look(const lane::Batch& batch, std::size_t begin, Way way) const {
  batch.look(base_, *extent_.layout, extent_.count, begin,
             way == Way::in ? lane::Batch::Use::read : lane::Batch::Use::written);
}

Lifted::Sides Lifted::sides(std::size_t begin, Way way) const {
  const auto elements = lane::Side::of(base_, *extent_.layout, extent_.count);
  const auto packed = lane::Side::packed(data_ + begin);
  return way == Way::in ? Sides{packed, elements} : Sides{elements, packed};
}

void Lifted::copy(Way way) {
  lane::HostBlock host;  // outlives what is copied through it
  lane::Batch batch(process_.copier(), {.call = call_});
  bool beside = false;  // some of it is elsewhere
  for (const auto& [begin, end, place] : segments_) {
    if (!is_here(place)) {
      beside = true;
      continue;
    }
    look(batch, begin, way);
    const auto [to, from] = sides(begin, way);
    batch.across(*place, to, from, begin, end);
  }
  if (beside && copy_->on_gpu()) {
    host = batch.lend(here(), extent_.bytes());
    copy_by_host(batch, host.data(), way);
  } else if (beside) {
    copy_elsewhere(batch, data_, way);
  }
  batch.wait();
}

// What is not here, between where it is and a packed copy on the host.
void Lifted::copy_elsewhere(lane::Batch& batch, std::byte* host, Way way) {
  for (const auto& [begin, end, place] : segments_) {
    if (is_here(place)) continue;
    if (way == Way::in)
      fetch(batch, place, host + begin, base_, *extent_.layout, extent_.count, begin, end, lane::Form::packed);
    else
      deliver(batch, place, base_, host + begin, *extent_.layout, extent_.count, begin, end, lane::Form::packed);
  }
  batch.wait();
}

// The same, and from there to the copy on the GPU, or back.
void Lifted::copy_by_host(lane::Batch& batch, std::byte* host, Way way) {
  if (way == Way::in) copy_elsewhere(batch, host, way);
  const layout::Layout& byte = *process_.teams()->byte();
  for (const auto& [begin, end, place] : segments_) {
    if (is_here(place)) continue;
    const auto bytes = static_cast<MPI_Count>(end - begin);
    if (way == Way::in)
      batch.to_gpu(here(), data_ + begin, host + begin, byte, bytes, 0, end - begin, lane::Form::packed);
    else
      batch.to_host(here(), host + begin, data_ + begin, byte, bytes, 0, end - begin, lane::Form::packed);
  }
  batch.wait();
  if (way == Way::out) copy_elsewhere(batch, host, way);
}

lane::Place Lifted::here() const noexcept { return {home_.context(), home_.device()}; }

bool Lifted::is_here(const std::optional<lane::Place>& place) const noexcept {
  return place && place->context == home_.context();
}

}  // namespace crosslane::interpose
