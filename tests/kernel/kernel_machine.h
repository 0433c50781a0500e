// A GPU of either driver with the kernels loaded, and device buffers with guards, for the tests of src/kernel.
#pragma once

#include "gpu/machine.h"
#include "kernel/launch.h"
#include "reference.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace crosslane::test {

template <class Kind>
class KernelTest : public MachineTest<Kind> {
 protected:
  void SetUp() override {
    MachineTest<Kind>::SetUp();
    if (this->IsSkipped()) return;
    if (!kernel::available(this->driver())) GTEST_SKIP() << "built without GPU kernels";
    kernels_.emplace(this->driver());
    stream_.emplace(this->driver());
    seed_ = seed();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    engine_.seed(seed_);
  }
  [[nodiscard]] const kernel::Kernels& kernels() const { return *kernels_; }
  [[nodiscard]] gpu::StreamView stream() const { return stream_->view(); }
  /// A number of [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }

  /// Device memory that holds `bytes` from `shift` bytes after a 256-byte boundary on, with 64 bytes more on both
  /// sides.
  class OnGpu {
   public:
    OnGpu(const gpu::Driver& driver, const Bytes& bytes, std::size_t shift)
        : driver_(driver),
          whole_(bytes.size() + shift + 2 * guard, std::byte{0xa5}),
          shift_(shift),
          size_(bytes.size()),
          buffer_(driver, whole_.size()) {
      std::copy(bytes.begin(), bytes.end(), whole_.begin() + static_cast<std::ptrdiff_t>(guard + shift));
      write(driver, buffer_.data(), whole_);
    }
    [[nodiscard]] std::byte* data() const {
      return static_cast<std::byte*>(static_cast<void*>(buffer_.data())) + guard + shift_;
    }
    /// What it holds now; fails the test if a guard was touched.
    [[nodiscard]] Bytes bytes() const {
      const Bytes now = read(driver_, buffer_.data(), whole_.size());
      const auto first = static_cast<std::ptrdiff_t>(guard + shift_), last = first + static_cast<std::ptrdiff_t>(size_);
      EXPECT_TRUE(std::equal(now.begin(), now.begin() + first, whole_.begin())) << "before the buffer";
      EXPECT_TRUE(std::equal(now.begin() + last, now.end(), whole_.begin() + last)) << "behind the buffer";
      return {now.begin() + first, now.begin() + last};
    }

   private:
    static constexpr std::size_t guard = 256;
    const gpu::Driver& driver_;
    Bytes whole_;
    std::size_t shift_, size_;
    gpu::Buffer buffer_;
  };

  std::uint64_t seed_ = 0;

 private:
  std::optional<kernel::Kernels> kernels_;
  std::optional<gpu::Stream> stream_;
  std::mt19937_64 engine_;
};

}  // namespace crosslane::test
