// See lifted.h. Copies pass through pinned host memory, whatever the two sides are: memory of another GPU, managed memory, memory in
// pieces, host memory. All of these are the exception.
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
  const auto length = static_cast<std::size_t>(span.end - span.begin);
  auto& gpu = process_.gpu();
  info_ = gpu.inspect(data_);
  if (info_.on_gpu()) {
    const bool within = reinterpret_cast<std::uintptr_t>(data_) + length <= info_.base + info_.size;
    if (!within && gpu.contiguous_from(data_, length) < length) {
      if (may_be_apart(base, *extent_.layout, extent_.count, info_.size)) {
        divide(argument);
        return;
      }
      throw base::Error(base::ErrorClass::buffer,
                        "{}: argument {} spans {} bytes from {}, but its GPU allocation ends before; check count and "
                        "datatype against what was allocated",
                        call_, argument, length, static_cast<const void*>(data_));
    }
    // What looked synchronous to the application may still be under way: settled at first sight, for this call by the copies.
    const lane::Place place = process_.copier().place(info_);
    const bool ours = place.context == home_.context() && info_.kind == gpu::PointerInfo::Kind::device;
    if (ours && place.settled && extent_.usable()) return;
    segments_.push_back({0, extent_.bytes(), place});
  } else if (!gpu::Gpu::readable_by_cpu(data_)) {
    throw base::Error(base::ErrorClass::buffer,
                      "{}: argument {} ({}) is neither memory of this process nor live GPU memory; was it freed before "
                      "the call, or does it belong to a context that was destroyed?",
                      call_, argument, static_cast<const void*>(data_));
  } else if (reaches_gpu(process_.copier(), base, *extent_.layout, extent_.count)) {
    divide(argument);
    return;
  } else {
    segments_.push_back({0, extent_.bytes(), std::nullopt});
  }
  copied_ = true;
}

void Lifted::divide(const char* argument) {
  segments_ = segments_of(process_.copier(), call_, argument, base_, *extent_.layout, extent_.count);
  copied_ = true;
}

void Lifted::make_room() {
  if (!copied_) return;
  copy_ = home_.lend(extent_.bytes());
  data_ = copy_->data();
}

Lifted::~Lifted() {
  if (copy_) home_.take_back(*std::move(copy_));
}

share::Exposed Lifted::show() const noexcept {
  if (!is_buffer()) return {};
  return home_.exposure().show(info_, data_);
}

void Lifted::lift() {
  if (is_buffer()) return;
  const std::size_t bytes = extent_.bytes();
  const lane::Place here{home_.context(), home_.device(), true};
  const Extent packed = Extent::of_bytes(process_.teams()->byte(), bytes);
  lane::Batch batch(process_.copier(), {.call = call_});
  const lane::HostBlock host = batch.lend(here, bytes);
  for (const auto& [begin, end, place] : segments_)
    fetch(batch, place, host.data() + begin, base_, *extent_.layout, extent_.count, begin, end, lane::Form::packed);
  batch.wait();
  batch.to_gpu(here, data_, host.data(), *packed.layout, packed.count, 0, bytes, lane::Form::packed);
  batch.wait();
}

void Lifted::lower() {
  if (is_buffer()) return;
  const std::size_t bytes = extent_.bytes();
  const lane::Place here{home_.context(), home_.device(), true};
  const Extent packed = Extent::of_bytes(process_.teams()->byte(), bytes);
  lane::Batch batch(process_.copier(), {.call = call_});
  const lane::HostBlock host = batch.lend(here, bytes);
  batch.to_host(here, host.data(), data_, *packed.layout, packed.count, 0, bytes, lane::Form::packed);
  batch.wait();
  for (const auto& [begin, end, place] : segments_)
    deliver(batch, place, base_, host.data() + begin, *extent_.layout, extent_.count, begin, end, lane::Form::packed);
  batch.wait();
}

}  // namespace crosslane::interpose
