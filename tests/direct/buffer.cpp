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
  std::ranges::fill(ignored_, std::uint8_t{0});
  place(packed, at);
  memory_.write(image_);
}

void Buffer::expect(std::span<const std::byte> packed, std::size_t at) {
  place(packed, at);
  for (std::size_t unit = 0; unit < packed.size() / base_.extent; ++unit)
    std::ranges::copy(base_.padding, ignored_.begin() + where(at + unit));
}

void Buffer::forget(std::size_t at, std::size_t units) {
  for (std::size_t unit = at; unit < at + units; ++unit)
    std::fill_n(ignored_.begin() + where(unit), base_.extent, std::uint8_t{1});
}

void Buffer::place(std::span<const std::byte> packed, std::size_t at) {
  for (std::size_t unit = 0; unit < packed.size() / base_.extent; ++unit)
    std::ranges::copy(packed.subspan(unit * base_.extent, base_.extent), image_.begin() + where(at + unit));
}

std::ptrdiff_t Buffer::where(std::size_t unit) const {
  const auto per = static_cast<std::size_t>(type_.elements());
  return type_.offsets[unit % per] + static_cast<std::ptrdiff_t>(unit / per) * type_.extent - low_;
}

void Buffer::check(const std::string& what) const {
  const auto found = memory_.read();
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
