// Reduction kernels for every operation and element, against plain loops on the host.
#include "kernel_machine.h"

#include "base/error.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

namespace crosslane::test {
namespace {

using kernel::Element;
using kernel::Op;

template <class Kind>
class ReduceTest : public KernelTest<Kind> {};
TYPED_TEST_SUITE(ReduceTest, Machines, MachineNames);

// MPI's definition, in C++'s own types.
template <class T>
std::optional<T> expected(Op op, T in, T inout) {
  if constexpr (std::is_floating_point_v<T> || std::is_integral_v<T>) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      const auto a = static_cast<std::uint64_t>(static_cast<Unsigned>(in)),
                 b = static_cast<std::uint64_t>(static_cast<Unsigned>(inout));
      switch (op) {
        case Op::sum:
          return static_cast<T>(a + b);
        case Op::prod:
          return static_cast<T>(a * b);
        case Op::land:
          return static_cast<T>(in && inout);
        case Op::lor:
          return static_cast<T>(in || inout);
        case Op::lxor:
          return static_cast<T>(!in != !inout);
        case Op::band:
          return static_cast<T>(a & b);
        case Op::bor:
          return static_cast<T>(a | b);
        case Op::bxor:
          return static_cast<T>(a ^ b);
        default:
          break;
      }
    }
    if (op == Op::min) return inout < in ? inout : in;
    if (op == Op::max) return inout > in ? inout : in;
  }
  if constexpr (!std::is_integral_v<T>) {
    if (op == Op::sum) return in + inout;
    if (op == Op::prod) return in * inout;
  }
  return std::nullopt;
}

template <class T>
T random_value(std::mt19937_64& engine) {
  if constexpr (std::is_integral_v<T>) {
    // Small values too, so that the logical operations see zeros.
    return static_cast<T>(engine() % 3 == 0 ? engine() % 2 : engine());
  } else if constexpr (std::is_floating_point_v<T>) {
    // Multiples of 1/8 in a small range: sums and products are exact, whatever fuses multiplication and addition.
    return static_cast<T>(static_cast<int>(engine() % 2001) - 1000) / 8;
  } else {
    using Part = typename T::value_type;
    return {random_value<Part>(engine), random_value<Part>(engine)};
  }
}

template <class T, class Fixture>
void check_element(Fixture& test, Element element) {
  std::mt19937_64 engine(test.seed_ + static_cast<std::uint64_t>(element));
  for (std::size_t o = 0; o < kernel::op_count; ++o) {
    const auto op = static_cast<Op>(o);
    ASSERT_EQ(kernel::reduce_kernel(op, element) != nullptr, expected<T>(op, T{}, T{}).has_value());
    if (kernel::reduce_kernel(op, element) == nullptr) {
      EXPECT_THROW(test.reduce(op, element, nullptr, nullptr, 1), base::Error);
      continue;
    }
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{1000} + engine() % 5000}) {
      // Aligned to 16 bytes, to the element, and to nothing.
      for (const std::size_t shift : {std::size_t{0}, sizeof(T), std::size_t{1}}) {
        std::vector<T> in(count), inout(count), result(count);
        for (std::size_t i = 0; i < count; ++i) {
          in[i] = random_value<T>(engine);
          inout[i] = random_value<T>(engine);
          result[i] = *expected(op, in[i], inout[i]);
        }
        test.expect_reduced(op, element, std::as_bytes(std::span(in)), std::as_bytes(std::span(inout)),
                            std::as_bytes(std::span(result)), count, shift);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

template <class Fixture>
class Access {
 public:
  Access(const kernel::Kernels& kernels, gpu::StreamView stream, const gpu::Driver& driver, std::uint64_t seed)
      : seed_(seed), kernels_(kernels), stream_(stream), driver_(driver) {}
  void reduce(Op op, Element element, void* inout, const void* in, std::size_t count) {
    kernels_.reduce(stream_, op, element, inout, in, count);
  }
  void expect_reduced(Op op, Element element, std::span<const std::byte> in, std::span<const std::byte> inout,
                      std::span<const std::byte> result, std::size_t count, std::size_t shift) {
    typename Fixture::OnGpu left(driver_, Bytes(in.begin(), in.end()), shift),
        right(driver_, Bytes(inout.begin(), inout.end()), shift);
    reduce(op, element, right.data(), left.data(), count);
    finish(stream_);
    ASSERT_EQ(right.bytes(), Bytes(result.begin(), result.end()))
        << kernel::reduce_kernel(op, element) << " of " << count << " at " << shift << ", seed " << seed_;
    ASSERT_EQ(left.bytes(), Bytes(in.begin(), in.end()));
  }
  std::uint64_t seed_;

 private:
  const kernel::Kernels& kernels_;
  gpu::StreamView stream_;
  const gpu::Driver& driver_;
};

template <class Kind>
class OpenFixture : public KernelTest<Kind> {
 public:
  using typename KernelTest<Kind>::OnGpu;
};

TYPED_TEST(ReduceTest, EveryOperationAndElement) {
  Access<OpenFixture<TypeParam>> access(this->kernels(), this->stream(), this->driver(), this->seed_);
  check_element<std::int8_t>(access, Element::i8);
  check_element<std::uint8_t>(access, Element::u8);
  check_element<std::int16_t>(access, Element::i16);
  check_element<std::uint16_t>(access, Element::u16);
  check_element<std::int32_t>(access, Element::i32);
  check_element<std::uint32_t>(access, Element::u32);
  check_element<std::int64_t>(access, Element::i64);
  check_element<std::uint64_t>(access, Element::u64);
  check_element<float>(access, Element::f32);
  check_element<double>(access, Element::f64);
  check_element<std::complex<float>>(access, Element::c64);
  check_element<std::complex<double>>(access, Element::c128);
}

TYPED_TEST(ReduceTest, NotANumberFollowsTheMpis) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> in{nan, 1, nan}, inout{2, nan, nan};
  Bytes left_bytes(24), right_bytes(24);
  std::memcpy(left_bytes.data(), in.data(), 24);
  std::memcpy(right_bytes.data(), inout.data(), 24);
  for (const Op op : {Op::min, Op::max}) {
    typename TestFixture::OnGpu left(this->driver(), left_bytes, 0), right(this->driver(), right_bytes, 0);
    this->kernels().reduce(this->stream(), op, Element::f64, right.data(), left.data(), 3);
    finish(this->stream());
    double result[3];
    std::memcpy(result, right.bytes().data(), 24);
    EXPECT_TRUE(std::isnan(result[0]));  // what does not compare: `in` stays
    EXPECT_EQ(result[1], 1);
    EXPECT_TRUE(std::isnan(result[2]));
  }
}

TEST(Catalogue, ImagesAreWhatDriversTake) {
  const auto& image = kernel::emulated_image();
  EXPECT_GE(image.count, 5U + 12U * 2U + 10U * 2U + 8U * 6U);
  const auto binary = kernel::fat_binary();
  if (binary.empty()) GTEST_SKIP() << "built without GPU kernels";
  std::uint32_t magic = 0;
  std::memcpy(&magic, binary.data(), sizeof magic);
  EXPECT_EQ(magic, 0xba55ed50U);
}

}  // namespace
}  // namespace crosslane::test
