// See launch.h.
#include "kernel/launch.h"

#include "base/error.h"

#include <algorithm>
#include <bit>

namespace crosslane::kernel {
namespace {

constexpr unsigned threads = 256;  // as the kernels' launch bounds
// Several blocks for each multiprocessor of the largest GPUs; blocks loop over what is more.
constexpr std::uint64_t most_blocks = 2048;

gpu::Grid blocks_for(std::uint64_t items, std::uint64_t items_a_block) {
  return {
      static_cast<unsigned>(std::clamp<std::uint64_t>((items + items_a_block - 1) / items_a_block, 1, most_blocks))};
}

const void* image_for(const gpu::Driver& driver) {
  if (driver.emulated) return &emulated_image();
  if (!available(driver)) {
    throw base::Error(
        base::ErrorClass::unsupported,
        "this build of Crosslane has no GPU kernels; build it with a CUDA compiler (CROSSLANE_CUDA_KERNELS=ON)");
  }
  return fat_binary().data();
}

template <class Parameters>
void launch(const gpu::Function& function, gpu::StreamView stream, gpu::Grid blocks, const Parameters& parameters) {
  function.launch(stream, blocks, {threads}, 0, parameters);
}

}  // namespace

bool available(const gpu::Driver& driver) noexcept { return driver.emulated || !fat_binary().empty(); }

Kernels::Kernels(const gpu::Driver& driver)
    : module_(driver, image_for(driver)),
      copy_(module_.function("crosslane_copy")),
      strided_{module_.function("crosslane_gather_strided"), module_.function("crosslane_scatter_strided")},
      pieces_{module_.function("crosslane_gather_pieces"), module_.function("crosslane_scatter_pieces")} {
  for (std::size_t op = 0; op < op_count; ++op) {
    for (std::size_t element = 0; element < element_count; ++element) {
      const char* const name = reduce_kernel(static_cast<Op>(op), static_cast<Element>(element));
      reductions_.push_back(name == nullptr ? std::nullopt : std::optional(module_.function(name)));
    }
  }
}

void Kernels::copy(gpu::StreamView stream, void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  launch(copy_, stream, blocks_for(bytes, Copy::tile), CopyParameters{to, from, bytes});
}

std::uint32_t word_for(const void* packed, const void* base, const Strided& shape, std::size_t begin,
                       std::size_t end) noexcept {
  std::uint64_t all = 16 | reinterpret_cast<std::uintptr_t>(packed) | shape.width | begin | end;
  all |= reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uint64_t>(shape.offset);
  for (std::size_t d = 0; d < shape.dimensions; ++d) all |= static_cast<std::uint64_t>(shape.dimension[d].stride);
  return std::uint32_t{1} << std::countr_zero(all);
}

void Kernels::strided(gpu::StreamView stream, Way way, void* packed, void* base, const Strided& shape,
                      std::size_t begin, std::size_t end) const {
  if (begin >= end) return;
  StridedParameters parameters{};
  parameters.word = word_for(packed, base, shape, begin, end);
  parameters.packed = packed;
  parameters.base = base;
  parameters.offset = shape.offset;
  parameters.begin = begin / parameters.word;
  parameters.end = end / parameters.word;
  parameters.dimensions = static_cast<std::uint32_t>(shape.dimensions);
  parameters.words_per_run = Divider::by(shape.width / parameters.word);
  for (std::size_t d = 0; d < shape.dimensions; ++d) {
    parameters.count[d] = Divider::by(shape.dimension[d].count);
    parameters.stride[d] = shape.dimension[d].stride;
  }
  constexpr std::uint64_t words_a_thread = 4;
  launch(strided_[way == Way::gather ? 0 : 1], stream,
         blocks_for(parameters.end - parameters.begin, threads * words_a_thread), parameters);
}

void Kernels::pieces(gpu::StreamView stream, Way way, void* packed, void* base, const Piece* list, std::size_t count,
                     std::size_t bytes) const {
  if (count == 0) return;
  // As many threads a piece as its words of 16 bytes keep busy.
  const std::uint64_t words = std::max<std::uint64_t>(bytes / count / 16, 1);
  const auto lanes = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::bit_floor(words), 32));
  launch(pieces_[way == Way::gather ? 0 : 1], stream, blocks_for(count, threads / lanes),
         PiecesParameters{packed, base, list, count, lanes});
}

void Kernels::reduce(gpu::StreamView stream, Op op, Element element, void* inout, const void* in,
                     std::size_t count) const {
  const auto& function = reductions_[static_cast<std::size_t>(op) * element_count + static_cast<std::size_t>(element)];
  if (!function) {
    throw base::Error(base::ErrorClass::op, "MPI does not define this operation for elements of this kind");
  }
  if (count == 0) return;
  launch(*function, stream, blocks_for(count * bytes_of(element), threads * 16), ReduceParameters{inout, in, count});
}

}  // namespace crosslane::kernel
