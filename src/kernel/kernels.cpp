// The kernels' entries for the emulated driver, and the names of the catalogue. See catalogue.h and entries.h.
#include "kernel/catalogue.h"
#include "kernel/entries.h"

#include <cstring>
#include <iterator>

namespace crosslane::kernel {
namespace {

template <class Functor>
void run(const gpu::EmulatedLaunch& launch, void** parameters) {
  typename Functor::Parameters mine;
  std::memcpy(&mine, parameters[0], sizeof(mine));
  Functor{}(EmulatedBlock(launch), mine);
}

template <class Functor>
constexpr std::uint32_t parameter_size = sizeof(typename Functor::Parameters);

// No row waits for another block, so blocks may run one after another.
#define CROSSLANE_ROW(name, ...) {#name, &run<__VA_ARGS__>, false, 1, &parameter_size<__VA_ARGS__>},
#define CROSSLANE_REDUCE_ROW(op_name, functor, element, type)                            \
  {"crosslane_reduce_" #op_name "_" #element, &run<Reduce<type, op::functor>>, false, 1, \
   &parameter_size<Reduce<type, op::functor>>},
constexpr gpu::EmulatedKernel kernels[] = {CROSSLANE_COPY_KERNELS(CROSSLANE_ROW)
                                               CROSSLANE_REDUCTIONS(CROSSLANE_REDUCE_ROW)};

constexpr gpu::EmulatedImage image{.count = std::size(kernels), .kernels = kernels};

struct Reduction {
  Op op;
  Element element;
  const char* name;
};
#define CROSSLANE_REDUCTION(op_name, functor, element, type) \
  {Op::op_name, Element::element, "crosslane_reduce_" #op_name "_" #element},
constexpr Reduction reductions[] = {CROSSLANE_REDUCTIONS(CROSSLANE_REDUCTION)};

}  // namespace

const gpu::EmulatedImage& emulated_image() noexcept { return image; }

std::size_t bytes_of(Element element) noexcept {
  switch (element) {
    case Element::i8:
    case Element::u8:
      return 1;
    case Element::i16:
    case Element::u16:
      return 2;
    case Element::i32:
    case Element::u32:
    case Element::f32:
      return 4;
    case Element::i64:
    case Element::u64:
    case Element::f64:
    case Element::c64:
      return 8;
    case Element::c128:
      return 16;
  }
  return 0;
}

const char* reduce_kernel(Op op, Element element) noexcept {
  for (const Reduction& reduction : reductions)
    if (reduction.op == op && reduction.element == element) return reduction.name;
  return nullptr;
}

}  // namespace crosslane::kernel
