// The one list of kernels: X(name, functor). The .cu files make a GPU entry of each row, the emulated_*.cpp files an
// emulated one. A new kernel is a row here; its functor is in its family's file.
#pragma once

#include "kernel/carry.h"
#include "kernel/exchange.h"
#include "kernel/lingering.h"
#include "kernel/low_latency.h"
#include "kernel/low_latency_shares.h"
#include "kernel/operation.h"
#include "kernel/pairwise.h"
#include "kernel/pipelined.h"
#include "kernel/pushed.h"
#include "kernel/reduce.h"
#include "kernel/ring.h"

// clang-format off: tables, of which it would make staircases
#define CROSSLANE_EXCHANGE_KERNELS(X)                           \
  X(crosslane_exchange_move, crosslane::kernel::ExchangeMove) \
  X(crosslane_exchange_spread, crosslane::kernel::ExchangeSpread)
#define CROSSLANE_PAIRWISE_KERNELS(X)                           \
  X(crosslane_pairwise_move, crosslane::kernel::PairwiseMove) \
  X(crosslane_pushed_move, crosslane::kernel::PushedMove)
#define CROSSLANE_LOW_LATENCY_KERNELS(X) \
  X(crosslane_low_latency_move, crosslane::kernel::LowLatencyMove<crosslane::kernel::Packets>) \
  X(crosslane_low_latency_even, crosslane::kernel::LowLatencyEvenMove<crosslane::kernel::Packets>)
#define CROSSLANE_LINGERING_KERNELS(X) \
  X(crosslane_lingering_packets, crosslane::kernel::Lingering<crosslane::kernel::LowLatencyMove<crosslane::kernel::Packets>>) \
  X(crosslane_lingering_lines, crosslane::kernel::Lingering<crosslane::kernel::LowLatencyMove<crosslane::kernel::Lines>>)     \
  X(crosslane_lingering_even_packets, crosslane::kernel::Lingering<crosslane::kernel::LowLatencyEvenMove<crosslane::kernel::Packets>>) \
  X(crosslane_lingering_even_lines, crosslane::kernel::Lingering<crosslane::kernel::LowLatencyEvenMove<crosslane::kernel::Lines>>) \
  X(crosslane_lingering_move, crosslane::kernel::Lingering<crosslane::kernel::ExchangeMove>)                                  \
  X(crosslane_lingering_spread, crosslane::kernel::Lingering<crosslane::kernel::ExchangeSpread>)                              \
  X(crosslane_lingering_carry, crosslane::kernel::Lingering<crosslane::kernel::Carry>)
#define CROSSLANE_RING_KERNELS(X) X(crosslane_ring_move, crosslane::kernel::RingMove)
#define CROSSLANE_LINES_KERNELS(X)                                                        \
  X(crosslane_lines_move, crosslane::kernel::LowLatencyMove<crosslane::kernel::Lines>) \
  X(crosslane_lines_even, crosslane::kernel::LowLatencyEvenMove<crosslane::kernel::Lines>)

// Y(op in names, op's functor, element in names, C type). Each family has a kernel crosslane_<family>_<op>_<element> a row.
// Operations that do the same to signed and unsigned elements stand here for the unsigned ones, and bitwise operations
// for bytes: combination() knows.
#define CROSSLANE_WIDE_UNSIGNED(Y, op, functor) Y(op, functor, u32, std::uint32_t) Y(op, functor, u64, std::uint64_t)
#define CROSSLANE_WIDE_SIGNED(Y, op, functor) Y(op, functor, i32, std::int32_t) Y(op, functor, i64, std::int64_t)
#define CROSSLANE_UNSIGNED(Y, op, functor)                                             \
  Y(op, functor, u8, std::uint8_t) Y(op, functor, u16, std::uint16_t) CROSSLANE_WIDE_UNSIGNED(Y, op, functor)
#define CROSSLANE_SIGNED(Y, op, functor)                                               \
  Y(op, functor, i8, std::int8_t) Y(op, functor, i16, std::int16_t) CROSSLANE_WIDE_SIGNED(Y, op, functor)
#define CROSSLANE_REALS(Y, op, functor)                                                \
  Y(op, functor, f16, crosslane::kernel::Float16) Y(op, functor, bf16, crosslane::kernel::BFloat16) \
  Y(op, functor, f32, float) Y(op, functor, f64, double)
#define CROSSLANE_COMPLEXES(Y, op, functor) \
  Y(op, functor, c64, crosslane::kernel::ComplexFloat) Y(op, functor, c128, crosslane::kernel::ComplexDouble)
#define CROSSLANE_PAIRS(Y, op, functor)                                                                     \
  Y(op, functor, i16_i32, crosslane::kernel::I16I32) Y(op, functor, i32_i32, crosslane::kernel::I32I32)     \
  Y(op, functor, i64_i32, crosslane::kernel::I64I32) Y(op, functor, f32_i32, crosslane::kernel::F32I32)     \
  Y(op, functor, f64_i32, crosslane::kernel::F64I32) Y(op, functor, f32_f32, crosslane::kernel::F32F32)     \
  Y(op, functor, f64_f64, crosslane::kernel::F64F64)

#define CROSSLANE_COMBINATIONS(Y)                                                                      \
  CROSSLANE_UNSIGNED(Y, sum, Sum) CROSSLANE_REALS(Y, sum, Sum) CROSSLANE_COMPLEXES(Y, sum, Sum)        \
  CROSSLANE_UNSIGNED(Y, prod, Prod) CROSSLANE_REALS(Y, prod, Prod) CROSSLANE_COMPLEXES(Y, prod, Prod)  \
  CROSSLANE_UNSIGNED(Y, min, Min) CROSSLANE_SIGNED(Y, min, Min) CROSSLANE_REALS(Y, min, Min)           \
  CROSSLANE_UNSIGNED(Y, max, Max) CROSSLANE_SIGNED(Y, max, Max) CROSSLANE_REALS(Y, max, Max)           \
  CROSSLANE_UNSIGNED(Y, land, Land) CROSSLANE_UNSIGNED(Y, lor, Lor) CROSSLANE_UNSIGNED(Y, lxor, Lxor)  \
  Y(band, Band, u8, std::uint8_t) Y(bor, Bor, u8, std::uint8_t) Y(bxor, Bxor, u8, std::uint8_t)        \
  CROSSLANE_PAIRS(Y, minloc, Minloc) CROSSLANE_PAIRS(Y, maxloc, Maxloc)

// What large arrays are made of: these have a pipelined kernel, too, one for rings, one for shares, and one that lingers.
#define CROSSLANE_PIPELINED_COMBINATIONS(Y)                                                            \
  CROSSLANE_WIDE_UNSIGNED(Y, sum, Sum) CROSSLANE_REALS(Y, sum, Sum)                                    \
  CROSSLANE_WIDE_UNSIGNED(Y, prod, Prod) CROSSLANE_REALS(Y, prod, Prod)                                \
  CROSSLANE_WIDE_UNSIGNED(Y, min, Min) CROSSLANE_WIDE_SIGNED(Y, min, Min) CROSSLANE_REALS(Y, min, Min) \
  CROSSLANE_WIDE_UNSIGNED(Y, max, Max) CROSSLANE_WIDE_SIGNED(Y, max, Max) CROSSLANE_REALS(Y, max, Max)
// clang-format on
