// See elements.h. A row a handle; handles that the loaded MPI lacks are null and equal no valid one.
#include "interpose/elements.h"

#include <array>
#include <cwchar>

namespace crosslane::interpose {
namespace {

using kernel::Element;

// What MPI defines operations by beside the element (MPI 5.0, section 6.9.2): Fortran's integers and those of all languages (MPI_AINT, ...)
// take no logical operations, truth values these alone, and bytes those on bits.
enum class Group { any, not_logical, truth, bits };

struct TypeRow {
  MPI_Datatype mpi::Handles::* type;
  Element element;
  Group group = Group::any;
  bool by_flags = false;
};
constexpr bool by_flags = true;
using H = mpi::Handles;
constexpr std::array type_rows = std::to_array<TypeRow>({
    {&H::int_, Element::i32},
    {&H::float_, Element::f32},
    {&H::double_, Element::f64},
    {&H::unsigned_, Element::u32},
    {&H::long_, Element::i64},
    {&H::unsigned_long, Element::u64},
    {&H::long_long, Element::i64},
    {&H::unsigned_long_long, Element::u64},
    {&H::short_, Element::i16},
    {&H::unsigned_short, Element::u16},
    {&H::signed_char, Element::i8},
    {&H::unsigned_char, Element::u8},
    {&H::byte, Element::u8, Group::bits},
    {&H::int8, Element::i8},
    {&H::int16, Element::i16},
    {&H::int32, Element::i32},
    {&H::int64, Element::i64},
    {&H::uint8, Element::u8},
    {&H::uint16, Element::u16},
    {&H::uint32, Element::u32},
    {&H::uint64, Element::u64},
    {&H::aint, Element::i64, Group::not_logical},
    {&H::offset, Element::i64, Group::not_logical},
    {&H::count, Element::i64, Group::not_logical},
    {&H::c_bool, Element::u8, Group::truth},
    {&H::cxx_bool, Element::u8, Group::truth},
    {&H::c_float_complex, Element::c64},
    {&H::c_double_complex, Element::c128},
    {&H::cxx_float_complex, Element::c64},
    {&H::cxx_double_complex, Element::c128},
    {&H::float_int, Element::f32_i32},
    {&H::double_int, Element::f64_i32},
    {&H::long_int, Element::i64_i32},
    {&H::short_int, Element::i16_i32},
    {&H::two_int, Element::i32_i32},
    {&H::logical, Element::i32, Group::truth, by_flags},
    {&H::logical1, Element::i8, Group::truth},
    {&H::logical2, Element::i16, Group::truth},
    {&H::logical4, Element::i32, Group::truth},
    {&H::logical8, Element::i64, Group::truth},
    {&H::integer, Element::i32, Group::not_logical, by_flags},
    {&H::integer1, Element::i8, Group::not_logical},
    {&H::integer2, Element::i16, Group::not_logical},
    {&H::integer4, Element::i32, Group::not_logical},
    {&H::integer8, Element::i64, Group::not_logical},
    {&H::real, Element::f32, Group::any, by_flags},
    {&H::real2, Element::f16},
    {&H::real4, Element::f32},
    {&H::real8, Element::f64},
    {&H::double_precision, Element::f64, Group::any, by_flags},
    {&H::complex, Element::c64, Group::any, by_flags},
    {&H::complex8, Element::c64},
    {&H::complex16, Element::c128},
    {&H::double_complex, Element::c128, Group::any, by_flags},
    {&H::two_integer, Element::i32_i32, Group::any, by_flags},
    {&H::two_real, Element::f32_f32, Group::any, by_flags},
    {&H::two_double_precision, Element::f64_f64, Group::any, by_flags},
});

struct OpRow {
  MPI_Op mpi::Handles::* op;
  kernel::Op kernel;
};
constexpr std::array op_rows = std::to_array<OpRow>({
    {&H::sum, kernel::Op::sum},
    {&H::max, kernel::Op::max},
    {&H::min, kernel::Op::min},
    {&H::prod, kernel::Op::prod},
    {&H::land, kernel::Op::land},
    {&H::lor, kernel::Op::lor},
    {&H::lxor, kernel::Op::lxor},
    {&H::band, kernel::Op::band},
    {&H::bor, kernel::Op::bor},
    {&H::bxor, kernel::Op::bxor},
    {&H::minloc, kernel::Op::minloc},
    {&H::maxloc, kernel::Op::maxloc},
});

const TypeRow* row_of(const mpi::Handles& handles, MPI_Datatype type) noexcept {
  if (type == MPI_Datatype{} || type == handles.datatype_null) return nullptr;
  for (const TypeRow& row : type_rows)
    if (handles.*row.type == type) return &row;
  return nullptr;
}

bool logical(kernel::Op op) noexcept {
  return op == kernel::Op::land || op == kernel::Op::lor || op == kernel::Op::lxor;
}

bool takes(Group group, kernel::Op op) noexcept {
  switch (group) {
    case Group::any:
      return true;
    case Group::not_logical:
      return !logical(op);
    case Group::truth:
      return logical(op);
    case Group::bits:
      return op == kernel::Op::band || op == kernel::Op::bor || op == kernel::Op::bxor;
  }
  return false;
}

}  // namespace

std::optional<Element> element_of(const mpi::Handles& handles, MPI_Datatype type) noexcept {
  const TypeRow* const row = row_of(handles, type);
  return row == nullptr ? std::nullopt : std::optional(row->element);
}

std::optional<kernel::Op> op_of(const mpi::Handles& handles, MPI_Op op) noexcept {
  if (op == MPI_Op{} || op == handles.op_null) return std::nullopt;
  for (const OpRow& row : op_rows)
    if (handles.*row.op == op) return row.kernel;
  return std::nullopt;
}

std::optional<Combining> combining_of(const mpi::Handles& handles, MPI_Datatype type, MPI_Op op) noexcept {
  const TypeRow* const row = row_of(handles, type);
  if (row == nullptr) return std::nullopt;
  const auto known = op_of(handles, op);
  if (!known || !kernel::combination(*known, row->element) || !takes(row->group, *known)) return std::nullopt;
  return Combining{row->element, *known, row->by_flags};
}

}  // namespace crosslane::interpose
