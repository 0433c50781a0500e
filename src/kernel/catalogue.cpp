// See catalogue.h.
#include "kernel/catalogue.h"

#include "kernel/entries.h"

#include <algorithm>
#include <iterator>

namespace crosslane::kernel {
namespace {

#define CROSSLANE_ROW(op_name, functor, element, type) {Op::op_name, Element::element, #op_name "_" #element},
constexpr Combination rows[] = {CROSSLANE_COMBINATIONS(CROSSLANE_ROW)};

#undef CROSSLANE_ROW
#define CROSSLANE_ROW(op_name, functor, element, type) {Op::op_name, Element::element, nullptr},
constexpr Combination pipelined_rows[] = {CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)};

constexpr bool bitwise(Op op) { return op == Op::band || op == Op::bor || op == Op::bxor; }

constexpr Element unsigned_of(Element element) {
  switch (element) {
    case Element::i8:
      return Element::u8;
    case Element::i16:
      return Element::u16;
    case Element::i32:
      return Element::u32;
    case Element::i64:
      return Element::u64;
    default:
      return element;
  }
}

constexpr bool is_unsigned(Element element) {
  return element == Element::u8 || element == Element::u16 || element == Element::u32 || element == Element::u64;
}

}  // namespace

std::size_t bytes_of(Element element) noexcept {
  switch (element) {
    case Element::i8:
    case Element::u8:
      return 1;
    case Element::i16:
    case Element::u16:
    case Element::f16:
    case Element::bf16:
      return 2;
    case Element::i32:
    case Element::u32:
    case Element::f32:
      return 4;
    case Element::i64:
    case Element::u64:
    case Element::f64:
    case Element::c64:
    case Element::i16_i32:
    case Element::i32_i32:
    case Element::f32_i32:
    case Element::f32_f32:
      return 8;
    case Element::i64_i32:
    case Element::f64_i32:
    case Element::f64_f64:
    case Element::c128:
      return 16;
  }
  return 0;
}

std::span<const Combination> combinations() noexcept { return rows; }

bool pipelined(const Combination& row) noexcept {
  return std::any_of(std::begin(pipelined_rows), std::end(pipelined_rows),
                     [&](const Combination& one) { return one.op == row.op && one.element == row.element; });
}

std::optional<Combined> combination(Op op, Element element) noexcept {
  std::size_t factor = 1;
  if (op != Op::min && op != Op::max) element = unsigned_of(element);
  if (bitwise(op) && is_unsigned(element)) {
    factor = bytes_of(element);
    element = Element::u8;
  }
  for (std::size_t row = 0; row < std::size(rows); ++row)
    if (rows[row].op == op && rows[row].element == element) return Combined{row, factor};
  return std::nullopt;
}

}  // namespace crosslane::kernel
