// Reduction kernels for every operation and element, against plain loops on the host.
#include "kernel_machine.h"

#include "base/error.h"
#include "gpu/pinned_buffer.h"
#include "kernel/copy.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace crosslane::test {
namespace {

using kernel::Element;
using kernel::Op;

template <class Kind>
class ReduceTest : public KernelTest<Kind> {};
TYPED_TEST_SUITE(ReduceTest, Machines, MachineNames);

TYPED_TEST(ReduceTest, EveryOperationAndElement) {
  std::mt19937_64 engine(this->seed_);
  for (const Element element : all_elements()) {
    for (const Op op : all_ops()) {
      ASSERT_EQ(kernel::Kernels::combines(op, element), defined(op, element)) << name_of(op, element);
      if (!defined(op, element)) {
        EXPECT_THROW(this->kernels().reduce(this->stream(), op, element, {nullptr, nullptr, 1}), base::Error);
        continue;
      }
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{1000} + engine() % 5000}) {
        // Aligned to 16 bytes, to the element, and to nothing.
        for (const std::size_t shift : {std::size_t{0}, kernel::bytes_of(element), std::size_t{1}}) {
          const Bytes in = random_elements(element, count, engine), inout = random_elements(element, count, engine);
          Bytes result = inout;
          combine(op, element, in, result);
          typename TestFixture::OnGpu left(this->driver(), in, shift), right(this->driver(), inout, shift);
          this->kernels().reduce(this->stream(), op, element, {right.data(), left.data(), count});
          finish(this->stream());
          ASSERT_EQ(significant(element, right.bytes()), significant(element, result))
              << name_of(op, element) << " of " << count << " at " << shift;
          ASSERT_EQ(left.bytes(), in);
        }
      }
    }
  }
}

// What was there goes elsewhere, and a word tells of the end of all blocks.
TYPED_TEST(ReduceTest, TellsWhatWasThereAndOfItsEnd) {
  std::mt19937_64 engine(this->seed_);
  gpu::Buffer counter(this->driver(), sizeof(std::uint64_t));
  write(this->driver(), counter.data(), Bytes(counter.size()));
  gpu::PinnedBuffer word(this->driver(), sizeof(std::uint64_t));
  auto* const told = static_cast<std::uint64_t*>(static_cast<void*>(word.data()));
  std::uint64_t ends = 0;
  for (const Element element : all_elements()) {
    const Op op = defined(Op::sum, element) ? Op::sum : Op::minloc;
    ASSERT_TRUE(defined(op, element));
    for (const std::size_t count : {std::size_t{1}, std::size_t{17}, std::size_t{1000} + engine() % 50'000}) {
      for (const bool tells : {false, true}) {
        const std::size_t shifts[] = {0, kernel::bytes_of(element), 1};
        const std::size_t in_shift = shifts[engine() % 3], shift = shifts[engine() % 3], other = shifts[engine() % 3];
        const Bytes in = random_elements(element, count, engine), inout = random_elements(element, count, engine);
        Bytes result = inout;
        combine(op, element, in, result);
        typename TestFixture::OnGpu left(this->driver(), in, in_shift), right(this->driver(), inout, shift),
            before(this->driver(), Bytes(inout.size()), other);
        kernel::ReduceParameters what{right.data(), left.data(), count, before.data()};
        if (tells) {
          what.ending = {kernel::pointer_to<std::uint64_t>(word.device_address()), this->seed_ + ++ends};
          what.counter = kernel::pointer_to<std::uint64_t>(counter.address());
        }
        *told = 0;
        this->kernels().reduce(this->stream(), op, element, what);
        finish(this->stream());
        SCOPED_TRACE(testing::Message() << name_of(op, element) << " of " << count << " at " << shift);
        ASSERT_EQ(significant(element, right.bytes()), significant(element, result));
        ASSERT_EQ(significant(element, before.bytes()), significant(element, inout));
        ASSERT_EQ(*told, tells ? this->seed_ + ends : 0);
        ASSERT_EQ(read(this->driver(), counter.data(), counter.size()), Bytes(counter.size()));
      }
    }
  }
}

TYPED_TEST(ReduceTest, NotANumberFollowsTheMpis) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> in{nan, 1, nan}, inout{2, nan, nan};
  Bytes left_bytes(24), right_bytes(24);
  std::memcpy(left_bytes.data(), in.data(), 24);
  std::memcpy(right_bytes.data(), inout.data(), 24);
  for (const Op op : {Op::min, Op::max}) {
    typename TestFixture::OnGpu left(this->driver(), left_bytes, 0), right(this->driver(), right_bytes, 0);
    this->kernels().reduce(this->stream(), op, Element::f64, {right.data(), left.data(), 3});
    finish(this->stream());
    double result[3];
    std::memcpy(result, right.bytes().data(), 24);
    EXPECT_TRUE(std::isnan(result[0]));  // what does not compare: `in` stays
    EXPECT_EQ(result[1], 1);
    EXPECT_TRUE(std::isnan(result[2]));
  }
}

TEST(Catalogue, ImagesAreWhatDriversTake) {
  EXPECT_EQ(kernel::emulated_local().count, kernel::combinations().size());
  for (const auto* image : {&kernel::emulated_exchange(), &kernel::emulated_low_latency()})
    EXPECT_GT(image->count, kernel::combinations().size());
  for (const auto* image : {&kernel::emulated_pipelined(), &kernel::emulated_ring(), &kernel::emulated_pairwise(),
                            &kernel::emulated_copy()})
    EXPECT_GT(image->count, 0U);
  for (const auto family :
       {kernel::Family::local, kernel::Family::exchange, kernel::Family::low_latency, kernel::Family::pipelined,
        kernel::Family::ring, kernel::Family::pairwise, kernel::Family::copy}) {
    const auto binary = kernel::fat_binary(family);
    if (binary.empty()) GTEST_SKIP() << "built without GPU kernels";
    std::uint32_t magic = 0;
    std::memcpy(&magic, binary.data(), sizeof magic);
    EXPECT_EQ(magic, 0xba55ed50U);
  }
}

}  // namespace
}  // namespace crosslane::test
