// The class Gpu: finding the driver library of the process and asking it about addresses. Each test runs in a process
// of its own under ctest, so that "nothing is loaded yet" is true; run by hand in one process, those are skipped.
#include "machine.h"

#include <dlfcn.h>

#include <array>
#include <thread>

namespace crosslane::test {
namespace {

using Kind = gpu::PointerInfo::Kind;

base::Settings with_gpu(const char* value) {
  base::Settings settings;
  settings.gpu = value;
  return settings;
}

bool loaded() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

void load_emulated_first() {
  ASSERT_NE(dlopen(CROSSLANE_EMULATED_LIBRARY, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
}

TEST(GpuTest, IsAbsentUntilADriverIsLoaded) {
  if (loaded()) GTEST_SKIP() << "a driver is loaded already in this process";
  gpu::Gpu gpu(with_gpu("auto")), none(with_gpu("none"));
  int host = 0;
  EXPECT_FALSE(gpu.present());
  EXPECT_FALSE(gpu.present());
  EXPECT_EQ(gpu.inspect(&host).kind, Kind::host);
  EXPECT_THROW(static_cast<void>(gpu.driver()), base::Error);
  load_emulated_first();
  EXPECT_TRUE(gpu.present());
  EXPECT_EQ(gpu.inspect(&host).kind, Kind::host) << "before cuInit";
  EXPECT_FALSE(none.present());
  EXPECT_THROW(static_cast<void>(none.driver()), base::Error);
}

TEST(GpuTest, ManyThreadsFindItAtOnce) {
  if (loaded()) GTEST_SKIP() << "a driver is loaded already in this process";
  gpu::Gpu gpu(with_gpu("auto"));
  std::vector<std::thread> threads;
  for (int at = 0; at < 8; ++at) {
    threads.emplace_back([&] {
      while (!gpu.present()) std::this_thread::yield();
      EXPECT_TRUE(gpu.driver().emulated);
    });
  }
  load_emulated_first();
  for (std::thread& thread : threads) thread.join();
}

TEST(GpuTest, MalformedSettingsAreErrors) {
  for (const char* value : {"emulated", "emulated:", "emulated:x", "emulated:0", "emulated:2x", "cuda"}) {
    EXPECT_THROW(gpu::Gpu(with_gpu(value)), base::Error) << value;
  }
}

// An owner's view of emulated memory of every kind.
class InspectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (load(Real(), reason) != nullptr) GTEST_SKIP() << "the machine's own driver is loaded and found first";
    load_emulated_first();
    gpu_.emplace(with_gpu("emulated:2"));
    gpu::check(gpu_->driver(), gpu_->driver().initialize(0), "cuInit");
  }
  std::optional<gpu::Gpu> gpu_;
};

TEST_F(InspectTest, CreatesNoContext) {
  int host = 0;
  EXPECT_EQ(gpu_->inspect(&host).kind, Kind::host);
  EXPECT_FALSE(gpu::PrimaryContext::active(gpu_->driver(), 0));
  CUcontext context = nullptr;
  ASSERT_CUDA(gpu_->driver().ctx_get_current(&context));
  EXPECT_EQ(context, nullptr);
}

TEST_F(InspectTest, TellsKindsApart) {
  const gpu::Driver& driver = gpu_->driver();
  const gpu::PrimaryContext second(driver, 1);
  const gpu::ContextScope scope(driver, second.context());
  const gpu::Buffer buffer(driver, 10'000);
  const gpu::PinnedBuffer pinned(driver, 10'000);
  CUdeviceptr managed = 0, ordered = 0;
  ASSERT_CUDA(driver.mem_alloc_managed(&managed, 100, CU_MEM_ATTACH_GLOBAL));
  const gpu::Stream stream(driver);
  ASSERT_CUDA(driver.mem_alloc_async(&ordered, 5000, stream.view().handle()));

  const auto device = gpu_->inspect(buffer.data() + 9'999);
  EXPECT_EQ(device.kind, Kind::device);
  EXPECT_EQ(device.base, buffer.address());
  EXPECT_EQ(device.size, 10'000U);
  EXPECT_EQ(device.device, 1);
  EXPECT_EQ(device.context, second.context());
  EXPECT_NE(device.buffer_id, 0U);
  EXPECT_EQ(gpu_->inspect(buffer.data() + 10'000).kind, Kind::host) << "one beyond";
  EXPECT_EQ(gpu_->inspect(pinned.data() + 5).kind, Kind::pinned);
  EXPECT_FALSE(gpu_->on_gpu(pinned.data()));
  EXPECT_EQ(gpu_->inspect(reinterpret_cast<void*>(managed)).kind, Kind::managed);
  EXPECT_TRUE(gpu_->on_gpu(reinterpret_cast<void*>(managed)));
  const auto pool = gpu_->inspect(reinterpret_cast<void*>(ordered));
  EXPECT_EQ(pool.kind, Kind::device);
  EXPECT_EQ(pool.context, nullptr) << "memory of pools belongs to no context";
  EXPECT_EQ(pool.device, 1);
  const std::vector<int> heap(100'000);
  EXPECT_EQ(gpu_->inspect(heap.data()).kind, Kind::host);
  EXPECT_EQ(gpu_->inspect(nullptr).kind, Kind::host);
  EXPECT_EQ(gpu_->contiguous_from(buffer.data() + 1'000, 100'000), 9'000U);
  EXPECT_EQ(gpu_->contiguous_from(buffer.data(), 10), 10U);
  EXPECT_EQ(gpu_->contiguous_from(heap.data(), 10), 0U);
  ASSERT_CUDA(driver.mem_free_async(ordered, stream.view().handle()));
  ASSERT_CUDA(driver.mem_free(managed));
}

TEST_F(InspectTest, BuffersOfSeveralMappingsAreOne) {
  const gpu::Driver& driver = gpu_->driver();
  const gpu::PrimaryContext context(driver, 0);
  const gpu::ContextScope scope(driver, context.context());
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  std::size_t piece = 0;
  ASSERT_CUDA(driver.mem_get_allocation_granularity(&piece, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr base = 0;
  ASSERT_CUDA(driver.mem_address_reserve(&base, 4 * piece, 0, 0, 0));
  std::array<CUmemGenericAllocationHandle, 3> handles{};
  const CUmemAccessDesc access{.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (std::size_t at = 0; at < handles.size(); ++at) {
    ASSERT_CUDA(driver.mem_create(&handles[at], piece, &property, 0));
    ASSERT_CUDA(driver.mem_map(base + at * piece, piece, 0, handles[at], 0));
  }
  ASSERT_CUDA(driver.mem_set_access(base, 3 * piece, &access, 1));
  auto* const start = reinterpret_cast<std::byte*>(base);
  EXPECT_EQ(gpu_->inspect(start + piece + 1).base, base + piece);
  EXPECT_EQ(gpu_->contiguous_from(start + 5, 4 * piece), 3 * piece - 5);
  EXPECT_EQ(gpu_->contiguous_from(start + 5, 2 * piece), 2 * piece);
  ASSERT_CUDA(driver.mem_unmap(base + piece, piece));
  EXPECT_EQ(gpu_->contiguous_from(start, 3 * piece), piece);
  ASSERT_CUDA(driver.mem_unmap(base, piece));
  ASSERT_CUDA(driver.mem_unmap(base + 2 * piece, piece));
  for (const auto handle : handles) ASSERT_CUDA(driver.mem_release(handle));
  ASSERT_CUDA(driver.mem_address_free(base, 4 * piece));
}

TEST_F(InspectTest, ReadabilityIsAskedWithoutASignal) {
  const gpu::Driver& driver = gpu_->driver();
  const gpu::PrimaryContext context(driver, 0);
  const gpu::ContextScope scope(driver, context.context());
  int local = 0;
  const gpu::Buffer buffer(driver, 64);
  EXPECT_TRUE(gpu::Gpu::readable_by_cpu(&local));
  EXPECT_FALSE(gpu::Gpu::readable_by_cpu(nullptr));
  EXPECT_FALSE(gpu::Gpu::readable_by_cpu(reinterpret_cast<const void*>(8)));
  EXPECT_FALSE(gpu::Gpu::readable_by_cpu(buffer.data()));
  int copy = -1;
  EXPECT_TRUE(gpu::Gpu::read_by_cpu(&copy, &local, sizeof copy));
  EXPECT_EQ(copy, local);
  EXPECT_FALSE(gpu::Gpu::read_by_cpu(&copy, nullptr, sizeof copy));
  EXPECT_FALSE(gpu::Gpu::read_by_cpu(&copy, buffer.data(), sizeof copy));
}

}  // namespace
}  // namespace crosslane::test
