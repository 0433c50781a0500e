// The one list of kernels: X(name, functor). kernels.cu makes a GPU entry of each row, kernels.cpp an emulated one.
// A new kernel is a row here; its functor is in its family's file.
#pragma once

#include "kernel/copy.h"
#include "kernel/reduce.h"

// clang-format off: tables, of which it would make staircases
#define CROSSLANE_COPY_KERNELS(X)                                               \
  X(crosslane_copy, crosslane::kernel::Copy)                                    \
  X(crosslane_gather_strided, crosslane::kernel::StridedCopy<crosslane::kernel::Way::gather>)   \
  X(crosslane_scatter_strided, crosslane::kernel::StridedCopy<crosslane::kernel::Way::scatter>) \
  X(crosslane_gather_pieces, crosslane::kernel::PiecesCopy<crosslane::kernel::Way::gather>)     \
  X(crosslane_scatter_pieces, crosslane::kernel::PiecesCopy<crosslane::kernel::Way::scatter>)

// Y(op in names, op's functor, element in names, C type)
#define CROSSLANE_INTEGERS(Y, op, functor)                                           \
  Y(op, functor, i8, std::int8_t) Y(op, functor, u8, std::uint8_t)                   \
  Y(op, functor, i16, std::int16_t) Y(op, functor, u16, std::uint16_t)               \
  Y(op, functor, i32, std::int32_t) Y(op, functor, u32, std::uint32_t)               \
  Y(op, functor, i64, std::int64_t) Y(op, functor, u64, std::uint64_t)
#define CROSSLANE_REALS(Y, op, functor) Y(op, functor, f32, float) Y(op, functor, f64, double)
#define CROSSLANE_COMPLEXES(Y, op, functor) \
  Y(op, functor, c64, crosslane::kernel::ComplexFloat) Y(op, functor, c128, crosslane::kernel::ComplexDouble)

#define CROSSLANE_REDUCTIONS(Y)                                                                       \
  CROSSLANE_INTEGERS(Y, sum, Sum) CROSSLANE_REALS(Y, sum, Sum) CROSSLANE_COMPLEXES(Y, sum, Sum)       \
  CROSSLANE_INTEGERS(Y, prod, Prod) CROSSLANE_REALS(Y, prod, Prod) CROSSLANE_COMPLEXES(Y, prod, Prod) \
  CROSSLANE_INTEGERS(Y, min, Min) CROSSLANE_REALS(Y, min, Min)                                        \
  CROSSLANE_INTEGERS(Y, max, Max) CROSSLANE_REALS(Y, max, Max)                                        \
  CROSSLANE_INTEGERS(Y, land, Land) CROSSLANE_INTEGERS(Y, lor, Lor) CROSSLANE_INTEGERS(Y, lxor, Lxor) \
  CROSSLANE_INTEGERS(Y, band, Band) CROSSLANE_INTEGERS(Y, bor, Bor) CROSSLANE_INTEGERS(Y, bxor, Bxor)
// clang-format on
