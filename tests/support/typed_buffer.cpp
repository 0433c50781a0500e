// Buffers laid out by random datatypes, and the comparison of every byte with the model. It must not know Crosslane.
#include "support/check.h"
#include "support/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace crosslane::tests {
namespace {

struct Span {
  std::ptrdiff_t low = 0, high = 0;
};

// From the lowest to the highest byte that `count` elements touch or span, their address included.
Span span_of(const Layout& layout, int count) {
  if (count == 0) return {};
  const auto last = (count - 1) * layout.extent();
  Span span{std::min<std::ptrdiff_t>(0, layout.lower()),
            std::max<std::ptrdiff_t>(0, last + layout.lower() + layout.extent())};
  for (const auto& piece : layout.pieces()) {
    span.low = std::min(span.low, piece.offset);
    span.high = std::max(span.high, last + piece.offset + static_cast<std::ptrdiff_t>(piece.bytes));
  }
  return span;
}

std::size_t memory_bytes(const Layout& layout, int count) {
  const auto span = span_of(layout, count);
  return static_cast<std::size_t>(span.high - span.low);
}

}  // namespace

TypedBuffer::TypedBuffer(MemoryKind kind, Layout layout, int count, std::uint64_t noise, std::size_t offset,
                         bool absolute)
    : layout_(std::move(layout)),
      count_(count),
      low_(span_of(layout_, count).low),
      memory_(kind, memory_bytes(layout_, count), offset) {
  if (absolute) {
    MPI_Aint at = 0;
    CROSSLANE_MPI(MPI_Get_address(memory_.as<char>() - low_, &at));
    CROSSLANE_MPI(MPI_Type_create_hindexed(1, &count_, &at, layout_.type(), &absolute_));
    CROSSLANE_MPI(MPI_Type_commit(&absolute_));
  }
  scramble(noise);
}

TypedBuffer::~TypedBuffer() {
  if (absolute_ != MPI_DATATYPE_NULL) MPI_Type_free(&absolute_);
}

TypedBuffer::TypedBuffer(TypedBuffer&& other) noexcept
    : layout_(std::move(other.layout_)),
      count_(other.count_),
      low_(other.low_),
      image_(std::move(other.image_)),
      memory_(std::move(other.memory_)),
      absolute_(std::exchange(other.absolute_, MPI_DATATYPE_NULL)) {}

void* TypedBuffer::address() const {
  return absolute_ == MPI_DATATYPE_NULL ? static_cast<void*>(memory_.as<char>() - low_) : MPI_BOTTOM;
}

std::string TypedBuffer::text() const {
  return fmt::format("{} x {} in {} memory{}", count_, layout_.text(), name(memory_.kind()),
                     absolute_ == MPI_DATATYPE_NULL ? "" : " at MPI_BOTTOM");
}

void TypedBuffer::scramble(std::uint64_t noise) {
  image_ = pattern(mix(noise, 0x6e6f697365ULL), memory_.size());
  memory_.write(image_);
}

void TypedBuffer::scatter(const std::vector<std::byte>& packed, std::vector<std::byte>& image) const {
  const auto pieces = layout_.pieces();
  const std::byte* from = packed.data();
  std::size_t left = packed.size();
  for (std::ptrdiff_t element = -low_; left > 0; element += layout_.extent()) {
    for (const auto& piece : pieces) {
      const auto bytes = std::min(piece.bytes, left);
      std::copy_n(from, bytes, image.begin() + element + piece.offset);
      from += bytes;
      left -= bytes;
    }
  }
}

void TypedBuffer::load(const std::vector<std::byte>& packed) {
  CROSSLANE_CHECK(packed.size() <= bytes(), "the test loads {} bytes into {}", packed.size(), bytes());
  scatter(packed, image_);
  memory_.write(image_);
}

void TypedBuffer::check_received(const std::vector<std::byte>& packed, const std::string& what) {
  scatter(packed, image_);
  check_image(what);
}

bool TypedBuffer::would_match(const std::vector<std::byte>& packed) const {
  auto expected = image_;
  scatter(packed, expected);
  return memory_.read() == expected;
}

void TypedBuffer::check_gaps(const std::string& what) {
  const auto now = memory_.read();
  const auto pieces = layout_.pieces();
  for (int i = 0; i < count_; ++i) {
    for (const auto& piece : pieces) {
      const auto at = i * layout_.extent() - low_ + piece.offset;
      std::copy_n(now.begin() + at, piece.bytes, image_.begin() + at);
    }
  }
  CROSSLANE_CHECK(now == image_, "{}: gaps of {} changed", what, text());
}

void TypedBuffer::check_image(const std::string& what) const {
  const auto now = memory_.read();
  if (now == image_) return;
  const auto [differs, expected] = std::mismatch(now.begin(), now.end(), image_.begin());
  const auto count =
      std::inner_product(now.begin(), now.end(), image_.begin(), std::size_t{0}, std::plus<>(), std::not_equal_to<>());
  report_failure(fmt::format("{}: {}: {} of {} bytes differ, the first at {} ({:#04x}, expected {:#04x})", what, text(),
                             count, now.size(), (differs - now.begin()) + low_, static_cast<unsigned>(*differs),
                             static_cast<unsigned>(*expected)));
}

}  // namespace crosslane::tests
