// See argument.h.
#include "interpose/argument.h"

#include "base/error.h"
#include "interpose/memories.h"

#include <algorithm>

namespace crosslane::interpose {
namespace {

// Calls f(part, begin, end) for each part that has bytes of [begin, end) of the stream that the parts make together.
template <class F>
void for_each_part(Argument::Parts parts, std::size_t begin, std::size_t end, F&& f) {
  std::size_t start = 0;
  for (const auto& part : parts) {
    const std::size_t from = std::max(begin, start);
    const std::size_t to = std::min(end, start + part.bytes);
    if (from < to) f(part, from - start, to - start);
    start += part.bytes;
  }
}

}  // namespace

void Argument::stage(lane::Batch& batch, Staging staging) {
  if (!on_gpu()) return;
  host_ = staging == Staging::ordinary ? batch.lend_ordinary(host_bytes_) : batch.lend(place_, host_bytes_);
  address_ = lane::byte_at(host_.data(), first_);
}

void Argument::throw_if_gone() const {
  if (host_.gone())
    throw base::Error(
        base::ErrorClass::buffer,
        "the CUDA context whose memory the request was made with was destroyed or reset; make the request anew");
}

std::byte* Argument::host_of(const Part& part, std::size_t begin) const {
  return lane::byte_at(host_.data(),
                       part.offset + (form_ == lane::Form::packed ? static_cast<std::ptrdiff_t>(begin) : 0));
}

void Argument::fetch_range(lane::Batch& batch, std::size_t begin, std::size_t end) const {
  for_each_part(parts(), begin, end, [&](const Part& part, std::size_t from, std::size_t to) {
    interpose::fetch(batch, part.place, host_of(part, from), part.memory, *part.layout, part.count, part.begin + from,
                     part.begin + to, form_);
  });
}

void Argument::deliver_range(lane::Batch& batch, std::size_t begin, std::size_t end) const {
  host_.use();
  for_each_part(parts(), begin, end, [&](const Part& part, std::size_t from, std::size_t to) {
    interpose::deliver(batch, part.place, const_cast<std::byte*>(part.memory), host_of(part, from), *part.layout,
                       part.count, part.begin + from, part.begin + to, form_);
  });
}

}  // namespace crosslane::interpose
