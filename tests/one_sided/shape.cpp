// See shape.h.
#include "one_sided/shape.h"

#include <algorithm>
#include <array>

namespace crosslane::tests {
namespace {

std::size_t random_bytes(Random& random) {
  constexpr std::size_t small = 4096, medium = std::size_t{64} << 10, large = std::size_t{300} << 10;
  const auto kind = random.below(100);
  const auto wish = random.next();  // always drawn
  if (kind < 8) return 0;
  if (kind < 45) return 1 + wish % small;
  return 1 + wish % (kind < 85 ? medium : large);
}

}  // namespace

std::vector<std::byte> Shape::contents(std::uint64_t seed) const {
  auto result = pattern(seed, bytes);
  const auto put = [&result, seed](std::size_t at, std::size_t end, const Number& number) {
    const auto values = number.small(mix(seed, at), (end - at) / number.bytes);
    std::ranges::copy(values, result.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (const Area& area : areas)
    if (area.number != nullptr) put(area.begin, area.end, *area.number);
  if (has_counter) put(0, sizeof(long), long_number());
  return result;
}

std::string Shape::text() const {
  return fmt::format("{}+{}+{} bytes of {} memory by {}{}", before, bytes, after, name(kind), unit,
                     null_base ? ", no address" : "");
}

Shape random_shape(const Program& program, Random& random, int ranks) {
  Shape shape;
  shape.kind = program.kind(random);
  shape.bytes = random_bytes(random);
  // At the allocation's start, at a place that suits every type, at one that suits none.
  const auto place = random.below(3);
  shape.before = place == 0 ? 0 : place == 1 ? 16 * random.below(40) : random.below(600) | 1;
  shape.after = random.below(200);
  shape.unit = random.pick(std::array{1, 4, 8});
  shape.null_base = random.chance(50) && shape.bytes == 0;

  const std::size_t step = shape.step();
  const auto down = [step](std::size_t bytes) { return bytes / step * step; };
  constexpr std::size_t enough = 256, most_shared = 1024;
  std::size_t at = 0;
  const auto add = [&shape, &at](std::size_t bytes, int owner, const Number* number) {
    if (bytes > 0) shape.areas.push_back({at, at + bytes, owner, number});
    at += bytes;
  };
  if (shape.aligned() && shape.bytes >= enough) {
    shape.has_counter = true;
    at = step;
  }
  const std::size_t shared = down(std::min(shape.bytes / 16, most_shared));
  if (shape.aligned())
    for (const Number* const number : {&int_number(), &long_number(), &double_number()})
      add(shared, Area::everybody, number);
  else
    add(shared, Area::everybody, &byte_number());
  const std::size_t lane = down((shape.bytes - at) / static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t numbers = shape.aligned() ? down(lane / 4) : 0;
    add(lane - numbers, rank, nullptr);
    add(numbers, rank, &double_number());
  }
  return shape;
}

}  // namespace crosslane::tests
