// See layout.h.
#include "layout/layout.h"

#include "base/error.h"

#include <array>
#include <cstring>

namespace crosslane::layout {
namespace {

// Most runs are one element of a basic type, for which a call of memcpy costs more than the copy.
inline void copy_run(std::byte* target, const std::byte* source, std::size_t length) {
  switch (length) {
    case 1:
      std::memcpy(target, source, 1);
      return;
    case 2:
      std::memcpy(target, source, 2);
      return;
    case 4:
      std::memcpy(target, source, 4);
      return;
    case 8:
      std::memcpy(target, source, 8);
      return;
    case 16:
      std::memcpy(target, source, 16);
      return;
    default:
      std::memcpy(target, source, length);
  }
}

// Not pointer arithmetic: with MPI_BOTTOM the offsets are addresses.
std::byte* at(const void* base, std::int64_t offset) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(offset));
}

}  // namespace

Span Layout::span(std::int64_t count) const {
  if (count <= 0 || node_->kind == Node::Kind::empty) return {};
  std::int64_t last = 0;
  Span span;
  if (__builtin_mul_overflow(extent_, count - 1, &last) ||
      __builtin_add_overflow(node_->low, std::min<std::int64_t>(last, 0), &span.begin) ||
      __builtin_add_overflow(node_->high, std::max<std::int64_t>(last, 0), &span.end)) {
    throw base::Error(base::ErrorClass::count,
                      "{} elements of extent {} reach farther than 64-bit displacements; check the count", count,
                      extent_);
  }
  return span;
}

std::size_t Layout::packed_size(std::int64_t count) const {
  if (count <= 0) return 0;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::int64_t>(size()), count, &bytes)) {
    throw base::Error(base::ErrorClass::count, "{} elements of {} bytes are more than 63 bits count; check the count",
                      count, size());
  }
  return static_cast<std::size_t>(bytes);
}

std::optional<Strided> Layout::as_strided(std::int64_t count) const noexcept {
  if (count <= 0 || node_->kind == Node::Kind::empty) return std::nullopt;
  Strided shape;
  const Node* node = node_.get();
  std::size_t loops = count > 1 ? 1 : 0;
  for (; node->kind == Node::Kind::loop; node = node->child.get()) ++loops;
  // One more than fits: the elements' own loop may still fold into the outermost one.
  if (node->kind != Node::Kind::block || loops > Strided::limit + 1) return std::nullopt;
  shape.offset = node->low;
  shape.width = node->size;

  std::array<Strided::Dimension, Strided::limit + 1> found{};  // outermost first
  std::size_t used = 0;
  if (count > 1) found[used++] = {static_cast<std::uint64_t>(count), extent_};
  for (node = node_.get(); node->kind == Node::Kind::loop; node = node->child.get())
    found[used++] = {node->count, node->stride};
  if (count > 1) {
    if (used == 1) {
      if (static_cast<std::int64_t>(shape.width) == extent_) {  // dense
        std::size_t all = 0;
        if (__builtin_mul_overflow(shape.width, static_cast<std::size_t>(count), &all)) return std::nullopt;
        shape.width = all;
        return shape;
      }
    } else {
      std::int64_t reach = 0;
      std::uint64_t all = 0;
      if (!__builtin_mul_overflow(found[1].stride, found[1].count, &reach) && reach == extent_ &&
          !__builtin_mul_overflow(found[0].count, found[1].count, &all)) {
        found[1].count = all;
        for (std::size_t i = 1; i < used; ++i) found[i - 1] = found[i];
        --used;
      }
    }
  }
  if (used > Strided::limit) return std::nullopt;
  shape.dimensions = used;
  for (std::size_t i = 0; i < used; ++i) shape.dimension[i] = found[used - 1 - i];
  return shape;
}

void Layout::pack(void* packed, const void* source, std::int64_t count, std::size_t begin, std::size_t end) const {
  auto* target = static_cast<std::byte*>(packed);
  for_each_run(count, begin, end, [&](std::int64_t offset, std::size_t length) {
    copy_run(target, at(source, offset), length);
    target += length;
  });
}

void Layout::unpack(void* target, const void* packed, std::int64_t count, std::size_t begin, std::size_t end) const {
  const auto* source = static_cast<const std::byte*>(packed);
  for_each_run(count, begin, end, [&](std::int64_t offset, std::size_t length) {
    copy_run(at(target, offset), source, length);
    source += length;
  });
}

}  // namespace crosslane::layout
