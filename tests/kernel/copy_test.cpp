// Copy kernels: contiguous and nests of loops, at every alignment, against loops on the host. Lists, and the choice
// between kernels, are tested with the engine that makes them (tests/lane).
#include "kernel/copies.h"
#include "kernel_machine.h"

#include <cstring>
#include <numeric>

namespace crosslane::test {
namespace {

using kernel::Laid;
using kernel::Strided;

template <class Kind>
class CopyTest : public KernelTest<Kind> {
 protected:
  void SetUp() override {
    KernelTest<Kind>::SetUp();
    if (!this->IsSkipped()) copies_.emplace(this->driver());
  }
  [[nodiscard]] const kernel::Copies& copies() const { return *copies_; }
  void gather(void* packed, void* base, const Strided& shape, std::size_t begin, std::size_t end) const {
    copies_->laid(this->stream(), Laid::packed(packed, begin), {base, shape, {}}, begin, end);
  }
  void scatter(void* packed, void* base, const Strided& shape, std::size_t begin, std::size_t end) const {
    copies_->laid(this->stream(), {base, shape, {}}, Laid::packed(packed, begin), begin, end);
  }

 private:
  std::optional<kernel::Copies> copies_;
};
TYPED_TEST_SUITE(CopyTest, Machines, MachineNames);

// The offset of each packed byte.
std::vector<std::int64_t> offsets_of(const Strided& shape) {
  std::vector<std::int64_t> starts{shape.offset};
  for (std::size_t d = 0; d < shape.dimensions; ++d) {
    std::vector<std::int64_t> more;
    for (std::uint64_t i = 0; i < shape.dimension[d].count; ++i)
      for (const auto start : starts) more.push_back(start + static_cast<std::int64_t>(i) * shape.dimension[d].stride);
    starts = std::move(more);
  }
  std::vector<std::int64_t> offsets;
  for (const auto start : starts)
    for (std::size_t i = 0; i < shape.width; ++i) offsets.push_back(start + static_cast<std::int64_t>(i));
  return offsets;
}

TYPED_TEST(CopyTest, ContiguousAtEveryAlignment) {
  for (int i = 0; i < 120; ++i) {
    const auto size = static_cast<std::size_t>(i % 4 == 0 ? this->between(0, 300'000) : this->between(0, 200));
    const auto from_shift = static_cast<std::size_t>(this->between(0, 31)),
               to_shift = static_cast<std::size_t>(this->between(0, 31));
    const Bytes data = pattern(size, this->seed_ + static_cast<std::uint64_t>(i));
    typename TestFixture::OnGpu from(this->driver(), data, from_shift), to(this->driver(), Bytes(size), to_shift);
    this->copies().contiguous(this->stream(), to.data(), from.data(), size);
    finish(this->stream());
    ASSERT_EQ(to.bytes(), data) << size << " bytes from " << from_shift << " to " << to_shift;
    ASSERT_EQ(from.bytes(), data);
  }
}

// Random loops, but for their strides.
template <class Between>
Strided random_loops(std::int64_t unit, Between between) {
  Strided shape;
  shape.width = static_cast<std::size_t>(unit * between(1, 5));
  shape.dimensions = static_cast<std::size_t>(between(0, 4));
  for (std::size_t d = 0; d < shape.dimensions; ++d)
    shape.dimension[d].count = static_cast<std::uint64_t>(between(1, d == 0 ? 40 : 6));
  return shape;
}

// A random nest of them, and how many bytes it reaches over. Dimensions are at least as far apart as what they hold, so that no two bytes lie in
// one place; some run backwards.
template <class Between>
std::pair<Strided, std::size_t> random_nest(const Strided& loops, std::int64_t unit, Between between) {
  Strided shape = loops;
  auto reach = static_cast<std::int64_t>(shape.width);
  std::int64_t low = 0;
  for (std::size_t d = 0; d < shape.dimensions; ++d) {
    const auto count = static_cast<std::int64_t>(shape.dimension[d].count), stride = reach + unit * between(0, 3);
    const bool backwards = between(0, 3) == 0;
    shape.dimension[d].stride = backwards ? -stride : stride;
    if (backwards) low -= (count - 1) * stride;
    reach = count * stride;
  }
  shape.offset = -low;
  return {shape, static_cast<std::size_t>(reach)};
}

TYPED_TEST(CopyTest, TogetherAndTheirWords) {
  const auto between = [&](std::int64_t low, std::int64_t high) { return this->between(low, high); };
  gpu::Buffer counter(this->driver(), sizeof(std::uint64_t));
  write(this->driver(), counter.data(), Bytes(sizeof(std::uint64_t)));
  constexpr std::size_t most_words = 70, apart = 8;
  gpu::PinnedBuffer words(this->driver(), most_words * apart * sizeof(std::uint64_t));
  auto* const told = static_cast<std::uint64_t*>(static_cast<void*>(words.data()));
  std::size_t nests = 0;
  for (int i = 0; i < 40; ++i) {
    struct One {
      std::unique_ptr<typename TestFixture::OnGpu> from, to;
      Bytes wanted;
    };
    std::vector<One> ones;
    std::vector<kernel::Part> parts;
    const std::int64_t count = between(0, 70);
    for (std::int64_t k = 0; k < count; ++k) {
      const auto seed = this->seed_ + static_cast<std::uint64_t>(i) * 100 + static_cast<std::uint64_t>(k);
      const auto from_shift = static_cast<std::size_t>(between(0, 1) * between(0, 31)),
                 to_shift = static_cast<std::size_t>(between(0, 1) * between(0, 31));
      // Either side may be the packed stream, and a nest may be cut.
      const std::int64_t unit = std::int64_t{1} << between(0, 4);
      const Strided loops = random_loops(unit, between);
      std::size_t all = loops.width;
      for (std::size_t d = 0; d < loops.dimensions; ++d) all *= loops.dimension[d].count;
      if (loops.dimensions == 0) all = static_cast<std::size_t>(between(1, between(0, 2) == 0 ? 100'000 : 40));
      const bool packed_from = loops.dimensions == 0 || between(0, 3) == 0,
                 packed_to = loops.dimensions == 0 || between(0, 3) == 0;
      const auto bytes =
          between(0, 3) == 0 ? static_cast<std::size_t>(between(1, static_cast<std::int64_t>(all))) : all;
      Strided contiguous;
      contiguous.width = all;
      const auto [from_shape, from_reach] =
          packed_from ? std::pair{contiguous, all} : random_nest(loops, unit, between);
      const auto [to_shape, to_reach] = packed_to ? std::pair{contiguous, all} : random_nest(loops, unit, between);
      One one;
      const Bytes source = pattern(from_reach, seed);
      one.wanted = Bytes(to_reach);
      const auto from_offsets = offsets_of(from_shape), to_offsets = offsets_of(to_shape);
      for (std::size_t b = 0; b < bytes; ++b)
        one.wanted[static_cast<std::size_t>(to_offsets[b])] = source[static_cast<std::size_t>(from_offsets[b])];
      one.from = std::make_unique<typename TestFixture::OnGpu>(this->driver(), source, from_shift);
      one.to = std::make_unique<typename TestFixture::OnGpu>(this->driver(), Bytes(to_reach), to_shift);
      const auto laid = [](bool packed, std::byte* base, const Strided& shape) {
        return packed ? Laid::packed(base, 0) : Laid{base, shape, {}};
      };
      const auto part = kernel::part_of(laid(packed_to, one.to->data(), to_shape),
                                        laid(packed_from, one.from->data(), from_shape), bytes);
      if (!part) {
        EXPECT_GT(loops.dimensions, 1U) << "nothing to turn, nor too many loops";
        continue;
      }
      nests += part->loops_used != 0 ? 1 : 0;
      parts.push_back(*part);
      ones.push_back(std::move(one));
    }
    std::memset(told, 0, words.size());
    std::vector<kernel::Ending> endings;
    const std::int64_t ends = between(0, static_cast<std::int64_t>(most_words));
    for (std::int64_t k = 0; k < ends; ++k)
      endings.push_back({kernel::pointer_to<std::uint64_t>(words.device_address() +
                                                           static_cast<std::size_t>(k) * apart * sizeof(std::uint64_t)),
                         this->seed_ + static_cast<std::uint64_t>(k)});
    this->copies().together(this->stream(), parts, endings, kernel::pointer_to<std::uint64_t>(counter.address()));
    finish(this->stream());
    for (std::size_t k = 0; k < ones.size(); ++k)
      ASSERT_EQ(ones[k].to->bytes(), ones[k].wanted) << "case " << i << ", part " << k << " of " << ones.size();
    for (std::size_t k = 0; k < most_words; ++k)
      ASSERT_EQ(told[k * apart], k < endings.size() ? this->seed_ + k : 0) << "case " << i << ", word " << k;
    ASSERT_EQ(read(this->driver(), counter.data(), sizeof(std::uint64_t)), Bytes(sizeof(std::uint64_t)));
  }
  EXPECT_GT(nests, 50U);
}

// One launch after another by the same control, some of which were called off before; each tells in its own use of the words what became of it.
TYPED_TEST(CopyTest, PushesUnlessCalledOff) {
  using kernel::Revocation;
  gpu::Buffer control(this->driver(), sizeof(kernel::PushControl));
  write(this->driver(), control.data(), Bytes(control.size()));
  gpu::PinnedBuffer words(this->driver(), 3 * sizeof(std::uint64_t));
  auto* const told = static_cast<std::uint64_t*>(static_cast<void*>(words.data()));
  const auto word = [&](std::size_t i) {
    return kernel::pointer_to<std::uint64_t>(words.device_address() + i * sizeof(std::uint64_t));
  };
  constexpr std::size_t begun = 0, called_off = 1, ending = 2;
  std::memset(told, 0, words.size());
  for (int i = 0; i < 60; ++i) {
    const std::int64_t most[] = {40, 300'000, 3'000'000};
    const auto size = static_cast<std::size_t>(this->between(1, most[i % 3]));
    const auto from_shift = static_cast<std::size_t>(this->between(0, 1) * this->between(0, 31)),
               to_shift = static_cast<std::size_t>(this->between(0, 1) * this->between(0, 31));
    const auto blocks = static_cast<unsigned>(this->between(1, 80));
    const Bytes data = pattern(size, this->seed_ + static_cast<std::uint64_t>(i));
    typename TestFixture::OnGpu from(this->driver(), data, from_shift), to(this->driver(), Bytes(size), to_shift);
    const std::uint64_t use = 16 * (static_cast<std::uint64_t>(i) + 1);
    const bool off = this->between(0, 2) == 0;
    if (off) told[called_off] = Revocation::off(use);
    const std::uint64_t before = told[ending];
    this->copies().push(this->stream(), to.data(), from.data(), size, {word(begun), word(called_off), use},
                        {word(ending), use}, reinterpret_cast<kernel::PushControl*>(control.data()), blocks);
    finish(this->stream());
    SCOPED_TRACE(testing::Message() << size << " bytes by " << blocks << " blocks");
    ASSERT_EQ(told[begun], off ? Revocation::stays_away(use) : Revocation::goes(use));
    ASSERT_EQ(told[ending], off ? before : use);
    ASSERT_EQ(to.bytes(), off ? Bytes(size) : data);
    ASSERT_EQ(read(this->driver(), control.data(), control.size()), Bytes(control.size()));
  }
}

TYPED_TEST(CopyTest, SwapsWhatIsWanted) {
  gpu::Buffer counter(this->driver(), sizeof(std::uint64_t));
  write(this->driver(), counter.data(), Bytes(counter.size()));
  gpu::PinnedBuffer word(this->driver(), sizeof(std::uint64_t));
  auto* const told = static_cast<std::uint64_t*>(static_cast<void*>(word.data()));
  for (int i = 0; i < 100; ++i) {
    const auto size = static_cast<std::size_t>(this->between(1, kernel::SwapParameters::most_bytes));
    const auto shift = [&] { return static_cast<std::size_t>(this->between(0, 1) * this->between(0, 8)); };
    const auto bytes = [&](std::uint64_t which) { return pattern(size, this->seed_ + 3 * which); };
    enum class Case : std::uint8_t { equal, other_byte, any };
    const auto which = static_cast<Case>(this->between(0, 2));
    const auto round = static_cast<std::uint64_t>(i);
    const Bytes was = bytes(2 * round), next = bytes(2 * round + 1);
    Bytes wanted = was;
    if (which == Case::other_byte)
      wanted[static_cast<std::size_t>(this->between(0, static_cast<std::int64_t>(size) - 1))] ^= std::byte{4};
    typename TestFixture::OnGpu value(this->driver(), was, shift()), from(this->driver(), next, shift()),
        compared(this->driver(), wanted, shift()), before(this->driver(), Bytes(size), shift());
    const auto address = [](const auto& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); };
    kernel::SwapParameters what{};
    what.value = address(value);
    what.next = address(from);
    what.wanted = which == Case::any ? 0 : address(compared);
    what.before = address(before);
    what.bytes = static_cast<std::uint32_t>(size);
    const bool tells = i % 2 == 0;
    if (tells) {
      what.ending = {kernel::pointer_to<std::uint64_t>(word.device_address()), this->seed_ + round};
      what.counter = kernel::pointer_to<std::uint64_t>(counter.address());
    }
    *told = 0;
    this->copies().swap(this->stream(), what);
    finish(this->stream());
    SCOPED_TRACE(testing::Message() << size << " bytes, case " << static_cast<int>(which));
    ASSERT_EQ(value.bytes(), which == Case::other_byte ? was : next);
    ASSERT_EQ(before.bytes(), was);
    ASSERT_EQ(*told, tells ? this->seed_ + round : 0);
    ASSERT_EQ(read(this->driver(), counter.data(), counter.size()), Bytes(counter.size()));
  }
}

TYPED_TEST(CopyTest, RandomNestsOfLoops) {
  const auto between = [&](std::int64_t low, std::int64_t high) { return this->between(low, high); };
  for (int i = 0; i < 150; ++i) {
    const std::int64_t unit = std::int64_t{1} << this->between(0, 4);
    const auto [shape, room] = random_nest(random_loops(unit, between), unit, between);
    const auto offsets = offsets_of(shape);
    const auto all = static_cast<std::int64_t>(offsets.size());
    const std::int64_t end = i % 2 == 0 ? all : this->between(0, all), begin = i % 2 == 0 ? 0 : this->between(0, end);
    const auto length = static_cast<std::size_t>(end - begin);
    const auto shift = static_cast<std::size_t>(i % 3 == 0 ? this->between(0, 15) : 0);

    const Bytes source = pattern(room, this->seed_ + static_cast<std::uint64_t>(i));
    Bytes gathered(length);
    for (std::size_t k = 0; k < length; ++k)
      gathered[k] = source[static_cast<std::size_t>(offsets[static_cast<std::size_t>(begin) + k])];
    typename TestFixture::OnGpu base(this->driver(), source, shift),
        packed(this->driver(), Bytes(length), i % 5 == 0 ? 3 : 0);
    this->gather(packed.data(), base.data(), shape, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
    finish(this->stream());
    ASSERT_EQ(packed.bytes(), gathered) << "case " << i;

    Bytes scattered(room);
    for (std::size_t k = 0; k < length; ++k)
      scattered[static_cast<std::size_t>(offsets[static_cast<std::size_t>(begin) + k])] = gathered[k];
    typename TestFixture::OnGpu target(this->driver(), Bytes(room), shift);
    this->scatter(packed.data(), target.data(), shape, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
    finish(this->stream());
    ASSERT_EQ(target.bytes(), scattered) << "case " << i;
  }
}

TYPED_TEST(CopyTest, ToMappedHostMemory) {
  const Bytes source = pattern(80'000, this->seed_);
  typename TestFixture::OnGpu base(this->driver(), source, 0);
  gpu::PinnedBuffer host(this->driver(), 40'000);
  Strided shape;
  shape.width = 8;
  shape.dimensions = 1;
  shape.dimension[0] = {5000, 16};
  auto* const packed = static_cast<std::byte*>(static_cast<void*>(host.data()));
  this->gather(packed, base.data(), shape, 0, 40'000);
  finish(this->stream());
  for (std::size_t i = 0; i < 40'000; ++i) ASSERT_EQ(packed[i], source[i / 8 * 16 + i % 8]) << i;
}

TEST(Divider, IsExactBelowItsLimit) {
  std::mt19937_64 engine(3);
  std::vector<std::uint64_t> divisors{
      1, 2, 3, 5, 7, 641, 65535, 65536, 65537, (1U << 30) - 1, 1U << 30, (1U << 30) + 1, (1U << 31) - 1};
  for (int i = 0; i < 2000; ++i) divisors.push_back(1 + engine() % (std::uint64_t{1} << (1 + engine() % 31)));
  for (const auto divisor : divisors) {
    if (divisor >= kernel::Divider::limit) continue;
    const auto divider = kernel::Divider::by(divisor);
    std::vector<std::uint64_t> numbers{0, 1, divisor - 1, divisor, kernel::Divider::limit - 1};
    const auto multiple = divisor * (engine() % (kernel::Divider::limit / divisor));
    for (const auto number :
         {multiple, multiple + divisor - 1, multiple == 0 ? 0 : multiple - 1, engine() % kernel::Divider::limit})
      numbers.push_back(number);
    for (const auto number : numbers) {
      if (number >= kernel::Divider::limit) continue;
      ASSERT_EQ(divider.quick(static_cast<std::uint32_t>(number)), number / divisor) << number << " / " << divisor;
    }
  }
  const auto beyond = kernel::Divider::by(kernel::Divider::limit + 5);
  EXPECT_EQ(beyond.quick(0x7fffffff), 0U);
  EXPECT_EQ(beyond.any((kernel::Divider::limit + 5) * 3 + 1), 3U);
}

}  // namespace
}  // namespace crosslane::test
