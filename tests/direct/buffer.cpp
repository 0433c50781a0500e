// See buffer.h.
#include "direct/buffer.h"

#include "support/check.h"

#include <algorithm>
#include <utility>

namespace crosslane::tests {
namespace {

std::int64_t elements_in(const Type& type, std::size_t units) {
  return static_cast<std::int64_t>(units) / type.elements();
}

std::size_t span_of(const Type& type, std::size_t units) {
  const auto count = elements_in(type, units);
  return static_cast<std::size_t>(type.end(count) - type.begin(count));
}

}  // namespace

Buffer::Buffer(MemoryKind kind, const Base& base, Type type, std::size_t units, std::size_t offset, std::uint64_t noise)
    : base_(base),
      type_(std::move(type)),
      low_(type_.begin(elements_in(type_, units))),
      ignored_(span_of(type_, units), 0),
      memory_(kind, span_of(type_, units), offset) {
  load({}, 0, noise);
}

void* Buffer::address() const { return memory_.as<std::byte>() - low_; }

int Buffer::count_of(std::size_t units) const { return static_cast<int>(elements_in(type_, units)); }

std::string Buffer::text() const {
  return fmt::format("{} of {} in {} memory", type_.text, base_.name, name(memory_.kind()));
}

void Buffer::load(std::span<const std::byte> packed, std::size_t at, std::uint64_t noise) {
  image_ = pattern(noise, ignored_.size());
  std::fill(ignored_.begin(), ignored_.end(), std::uint8_t{0});
  place(packed, at);
  memory_.write(image_);
}

void Buffer::expect(std::span<const std::byte> packed, std::size_t at) {
  place(packed, at);
  const bool gaps = std::ranges::find(base_.padding, std::uint8_t{1}) != base_.padding.end();
  for_each_run(at, packed.size() / base_.extent, [&](std::ptrdiff_t to, std::size_t, std::size_t units) {
    auto out = ignored_.begin() + to;
    if (!gaps) std::fill_n(out, units * base_.extent, std::uint8_t{0});
    for (; gaps && units > 0; --units) out = std::copy(base_.padding.begin(), base_.padding.end(), out);
  });
}

void Buffer::forget(std::size_t at, std::size_t units) {
  for_each_run(at, units, [&](std::ptrdiff_t to, std::size_t, std::size_t run) {
    std::fill_n(ignored_.begin() + to, run * base_.extent, std::uint8_t{1});
  });
}

void Buffer::place(std::span<const std::byte> packed, std::size_t at) {
  for_each_run(at, packed.size() / base_.extent, [&](std::ptrdiff_t to, std::size_t first, std::size_t units) {
    std::copy_n(packed.begin() + static_cast<std::ptrdiff_t>(first * base_.extent), units * base_.extent,
                image_.begin() + to);
  });
}

template <class Body>
void Buffer::for_each_run(std::size_t at, std::size_t units, Body&& body) const {
  const auto per = static_cast<std::size_t>(type_.elements());
  const auto extent = static_cast<std::ptrdiff_t>(base_.extent);
  std::ptrdiff_t element = static_cast<std::ptrdiff_t>(at / per) * type_.extent - low_;
  std::size_t within = at % per, first = 0;
  std::ptrdiff_t begin = 0, end = -1;  // of the run so far, which begins with unit `first`; none yet
  for (std::size_t unit = 0; unit < units; ++unit) {
    const std::ptrdiff_t here = element + type_.offsets[within];
    if (here != end) {
      if (unit > first) body(begin, first, unit - first);
      first = unit;
      begin = here;
    }
    end = here + extent;
    if (++within == per) {
      within = 0;
      element += type_.extent;
    }
  }
  if (units > first) body(begin, first, units - first);
}

void Buffer::check(const std::string& what) const {
  const auto found = memory_.read();
  if (found == image_) return;
  std::size_t wrong = 0, first = 0;
  for (std::size_t at = found.size(); at-- > 0;) {
    if (found[at] == image_[at] || ignored_[at] != 0) continue;
    ++wrong;
    first = at;
  }
  CROSSLANE_CHECK(wrong == 0, "{}: {} of {} bytes are wrong, the first at {} ({} instead of {}); {}", what, wrong,
                  found.size(), first, std::to_integer<int>(found[first]), std::to_integer<int>(image_[first]), text());
}

}  // namespace crosslane::tests
