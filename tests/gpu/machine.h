// What the tests of src/gpu run on: emulated GPUs, or the machine's own, through one table.
#pragma once

#include "gpu/buffer.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "gpu/driver.h"
#include "gpu/event.h"
#include "gpu/marker.h"
#include "gpu/pinned_buffer.h"
#include "gpu/stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::test {

/// The drivers that typed tests run over.
struct Emulated {
  static constexpr const char* name = "emulated";
};
struct Real {
  static constexpr const char* name = "real";
};

/// Loads the driver; nullptr and a reason where there is none.
const gpu::Driver* load(Emulated, std::string& reason);
const gpu::Driver* load(Real, std::string& reason);

/// Waits for all that the stream holds, through an event.
void finish(gpu::StreamView stream);

/// Copies to and from ordinary memory and waits.
std::vector<std::byte> read(const gpu::Driver& driver, const void* device, std::size_t bytes);
void write(const gpu::Driver& driver, void* device, const std::vector<std::byte>& bytes);

/// Bytes that tell their place.
std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed);

/// The seed of randomised tests: CROSSLANE_TEST_SEED or a fresh one; printed where it is used.
std::uint64_t seed();

/// Starts this program again with `arguments` and `environment` added. Its standard input and output are ours.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, const std::vector<std::string>& environment);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// The next line that it prints; empty at its end.
  std::string line();
  void say(const std::string& line);
  void kill();
  /// Its exit status, or 128 + the signal that ended it.
  int wait();

 private:
  int pid_ = -1, to_ = -1, from_ = -1;
};

/// What `gpu_test --child <what> ...` does; see processes_test.cpp and emulated_test.cpp. Returns its exit status.
int child(const std::vector<std::string>& arguments);

std::string to_hex(const void* data, std::size_t bytes);
void from_hex(const std::string& text, void* data, std::size_t bytes);

template <class Kind>
class MachineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    driver_ = load(Kind(), reason);
    if (driver_ == nullptr) GTEST_SKIP() << reason;
    context_.emplace(*driver_, 0);
    scope_.emplace(*driver_, context_->context());
  }
  [[nodiscard]] const gpu::Driver& driver() const { return *driver_; }
  [[nodiscard]] gpu::PointerInfo::Kind kind_of(const void* address) const {
    CUmemorytype type{};
    if (driver_->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       reinterpret_cast<CUdeviceptr>(address)) != CUDA_SUCCESS) {
      return gpu::PointerInfo::Kind::host;
    }
    return type == CU_MEMORYTYPE_DEVICE ? gpu::PointerInfo::Kind::device : gpu::PointerInfo::Kind::pinned;
  }
  [[nodiscard]] CUcontext context() const { return context_->context(); }

 private:
  const gpu::Driver* driver_ = nullptr;
  std::optional<gpu::PrimaryContext> context_;
  std::optional<gpu::ContextScope> scope_;
};

using Machines = ::testing::Types<Emulated, Real>;
struct MachineNames {
  template <class Kind>
  static std::string GetName(int) {
    return Kind::name;
  }
};

#define EXPECT_CUDA(expected, call) EXPECT_EQ(static_cast<int>(expected), static_cast<int>(call))
#define ASSERT_CUDA(call) ASSERT_EQ(static_cast<int>(CUDA_SUCCESS), static_cast<int>(call))

}  // namespace crosslane::test
