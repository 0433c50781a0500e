// What only the emulated driver has: kernels as host functions, faults on demand, the hook that forbids allocating,
// topologies, and harmlessness to forked children.
#include "gpu/emulated/image.h"
#include "gpu/graph.h"
#include "gpu/module.h"
#include "machine.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace crosslane::test {
namespace {

// Adds `value` to `count` numbers, a block a stretch.
void add_run(const gpu::EmulatedLaunch& launch, void** parameters) {
  const auto numbers = *static_cast<std::uint64_t*>(parameters[0]);
  const auto count = *static_cast<std::uint32_t*>(parameters[1]);
  const auto value = *static_cast<std::int32_t*>(parameters[2]);
  auto* const at = static_cast<std::int32_t*>(launch.translate(numbers));
  for (std::uint32_t index = launch.block_index[0]; index < count; index += launch.grid[0]) at[index] += value;
}

// Every block announces itself and waits for all others: possible only if all run at once.
void meet_run(const gpu::EmulatedLaunch& launch, void** parameters) {
  auto* const word = static_cast<std::uint32_t*>(launch.translate(*static_cast<std::uint64_t*>(parameters[0])));
  const std::atomic_ref<std::uint32_t> arrived(*word);
  arrived.fetch_add(1, std::memory_order_acq_rel);
  while (arrived.load(std::memory_order_acquire) < launch.grid[0] * launch.grid[1] && !launch.aborted()) sched_yield();
}

// Writes to each block's own shared memory and adds up.
void shared_run(const gpu::EmulatedLaunch& launch, void** parameters) {
  auto* const out = static_cast<std::uint32_t*>(launch.translate(*static_cast<std::uint64_t*>(parameters[0])));
  auto* const mine = static_cast<unsigned char*>(launch.shared);
  std::uint32_t sum = 0;
  for (unsigned at = 0; at < launch.shared_bytes; ++at)
    mine[at] = static_cast<unsigned char>(at + launch.block_index[0]);
  for (unsigned at = 0; at < launch.shared_bytes; ++at) sum += mine[at];
  out[launch.block_index[0]] = sum;
}

constexpr std::array<std::uint32_t, 3> add_sizes{8, 4, 4};
constexpr std::array<std::uint32_t, 1> pointer_size{8};
constexpr std::array kernels{
    gpu::EmulatedKernel{"add", add_run, false, 3, add_sizes.data()},
    gpu::EmulatedKernel{"meet", meet_run, true, 1, pointer_size.data()},
    gpu::EmulatedKernel{"shared", shared_run, true, 1, pointer_size.data()},
};
constexpr gpu::EmulatedImage image{.count = kernels.size(), .kernels = kernels.data()};

class EmulatedTest : public MachineTest<Emulated> {};

TEST_F(EmulatedTest, KernelsAreHostFunctions) {
  const gpu::Module module(driver(), &image);
  const gpu::Function add = module.function("add");
  EXPECT_THROW(static_cast<void>(module.function("missing")), base::Error);
  constexpr std::uint32_t count = 1000;
  const gpu::Buffer device(driver(), count * 4);
  const gpu::PinnedBuffer pinned(driver(), count * 4);
  const gpu::Stream stream(driver());
  gpu::fill_async(device.data(), 0, count * 4, stream);
  gpu::fill_async(pinned.data(), 0, count * 4, stream);
  for (std::int32_t value = 1; value <= 10; ++value) {  // the argument is copied at the launch
    add.launch(stream, {7}, {128}, 0, device.address(), count, value);
    add.launch(stream, {3}, {32}, 0, pinned.device_address(), count, -value);
  }
  finish(stream);
  const auto bytes = read(driver(), device.data(), count * 4);
  for (std::size_t at = 0; at < count; ++at) {
    std::int32_t got = 0, host = 0;
    std::memcpy(&got, bytes.data() + 4 * at, 4);
    std::memcpy(&host, pinned.data() + 4 * at, 4);
    ASSERT_EQ(got, 55);
    ASSERT_EQ(host, -55);
  }
}

TEST_F(EmulatedTest, ConcurrentBlocksRunAtOnce) {
  const gpu::Module module(driver(), &image);
  const gpu::Function meet = module.function("meet");
  const gpu::Buffer word(driver(), 4);
  const gpu::Stream stream(driver());
  gpu::fill_async(word.data(), 0, 4, stream);
  meet.launch(stream, {4, 4}, {64}, 0, word.address());
  finish(stream);
  EXPECT_EQ(read(driver(), word.data(), 4)[0], std::byte{16});
  EXPECT_THROW(meet.launch(stream, {100'000}, {64}, 0, word.address()), base::Error);
  EXPECT_GT(meet.resident_blocks(64, 0), 0);
}

TEST_F(EmulatedTest, BlocksHaveSharedMemory) {
  const gpu::Module module(driver(), &image);
  const gpu::PinnedBuffer out(driver(), 16);
  const gpu::Stream stream(driver());
  module.function("shared").launch(stream, {4}, {32}, 100, out.device_address());
  finish(stream);
  for (std::uint32_t block = 0; block < 4; ++block) {
    std::uint32_t sum = 0;
    std::memcpy(&sum, out.data() + std::size_t{4} * block, 4);
    EXPECT_EQ(sum, 4950 + 100 * block);
  }
}

TEST_F(EmulatedTest, KernelsAreCaptured) {
  const gpu::Module module(driver(), &image);
  const gpu::Function add = module.function("add");
  const gpu::PinnedBuffer number(driver(), 4);
  const gpu::Stream stream(driver());
  gpu::fill_async(number.data(), 0, 4, stream);
  gpu::Capture capture(stream);
  add.launch(stream, {1}, {1}, 0, number.device_address(), std::uint32_t{1}, std::int32_t{3});
  const gpu::GraphExec graph = capture.end();
  for (int launch = 0; launch < 5; ++launch) graph.launch(stream);
  finish(stream);
  std::int32_t got = 0;
  std::memcpy(&got, number.data(), 4);
  EXPECT_EQ(got, 15);
}

TEST_F(EmulatedTest, BranchesOfAGraphRunAtOnce) {
  // One branch waits for a word that the other writes; captured in the order that a serial execution would hang on.
  const gpu::Stream stream(driver()), side(driver());
  const gpu::PinnedBuffer memory(driver(), 8);
  gpu::fill_async(memory.data(), 0, 8, stream);
  finish(stream);
  gpu::Event fork(driver()), join(driver());
  gpu::Capture capture(stream);
  gpu::fill_async(memory.data() + 4, 0, 4, stream);
  fork.record(stream);
  fork.make_wait(side);
  ASSERT_CUDA(
      driver().stream_wait_value_32(stream.view().handle(), memory.device_address(), 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CUDA(driver().stream_write_value_32(side.view().handle(), memory.device_address(), 1, 0));
  join.record(side);
  join.make_wait(stream);
  const gpu::GraphExec graph = capture.end();
  graph.launch(stream);
  finish(stream);
}

TEST_F(EmulatedTest, GpuCodeIsRefused) {
  const std::array<char, 64> cubin{0x7f, 'E', 'L', 'F'};
  CUmodule module = nullptr;
  EXPECT_CUDA(CUDA_ERROR_NO_BINARY_FOR_GPU, driver().module_load_data(&module, cubin.data()));
}

TEST_F(EmulatedTest, AForkedChildIsUnharmed) {
  const gpu::Buffer buffer(driver(), 4096);
  write(driver(), buffer.data(), pattern(4096, 1));
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    CUdeviceptr pointer = 0;
    _exit(driver().mem_alloc(&pointer, 64) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read(driver(), buffer.data(), 4096), pattern(4096, 1));
}

TEST_F(EmulatedTest, ForbiddenAllocationsAbort) {
  void* const library = dlopen(CROSSLANE_EMULATED_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto forbid = reinterpret_cast<void (*)(int)>(dlsym(library, "crosslane_emulated_forbid"));
  ASSERT_NE(forbid, nullptr);
  EXPECT_DEATH(
      {
        forbid(1);
        const gpu::Buffer buffer(driver(), 64);
      },
      "cuMemAlloc_v2 was called where allocating");
  forbid(1);
  const gpu::Stream stream(driver());  // not an allocation of memory
  forbid(0);
  const gpu::Buffer buffer(driver(), 64);
}

TEST_F(EmulatedTest, MemoryIsLimited) {
  std::size_t free_bytes = 0, total = 0;
  ASSERT_CUDA(driver().mem_get_info(&free_bytes, &total));
  constexpr std::size_t each = 100 << 20;
  std::vector<gpu::Buffer> buffers;
  try {
    while (buffers.size() <= total / each) buffers.emplace_back(driver(), each);
    ADD_FAILURE() << "more than the GPU's " << total << " bytes";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.error_class(), base::ErrorClass::no_memory);
    EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos);
  }
  EXPECT_EQ(buffers.size(), total / each);
  buffers.clear();
  ASSERT_CUDA(driver().mem_get_info(&free_bytes, &total));
  EXPECT_EQ(free_bytes, total);
}

TEST_F(EmulatedTest, ManySmallAllocations) {
  std::vector<gpu::Buffer> buffers;
  for (int at = 0; at < 5000; ++at) buffers.emplace_back(driver(), 1 + static_cast<std::size_t>(at));
  for (std::size_t at = 0; at < buffers.size(); at += 2) buffers[at] = gpu::Buffer();
  for (int at = 0; at < 2500; ++at) buffers.emplace_back(driver(), 700);
}

TEST_F(EmulatedTest, ContextsThatGoAwayStopWhatWaits) {
  CUcontext context = nullptr;
  ASSERT_CUDA(driver().device_primary_ctx_retain(&context, 1));
  const gpu::ContextScope scope(driver(), context);
  const gpu::PinnedBuffer word(driver(), 8);
  const gpu::Stream stream(driver());
  ASSERT_CUDA(driver().stream_wait_value_32(stream.view().handle(), word.device_address(), 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CUDA(driver().device_primary_ctx_release(1));  // must return
}

TEST(EmulatedChildTest, FaultsComeOnDemand) {
  Child other({"emulated", "faults"},
              {"CROSSLANE_EMULATED_FAULTS=cuMemAlloc:3,cuMemHostAlloc:*=CUDA_ERROR_NOT_PERMITTED,cuMemFree_v2:2"});
  EXPECT_EQ(other.line(), "0 0 2 0 800 800 0 2 0");
  Child range({"emulated", "faults"}, {"CROSSLANE_EMULATED_FAULTS=cuMemAlloc:2-3,cuMemFree:1-1"});
  EXPECT_EQ(range.line(), "0 2 2 0 0 0 2 0 0");
  EXPECT_EQ(range.wait(), 0);
  EXPECT_EQ(other.wait(), 0);
  Child armed({"emulated", "faults"}, {"CROSSLANE_EMULATED_FAULTS=cuMemAlloc:+2,cuMemFree:+*"});
  EXPECT_EQ(armed.line(), "0 0 0 2 0 0 2 2 2");
  EXPECT_EQ(armed.wait(), 0);
}

TEST(EmulatedChildTest, MalformedSettingsAreRefused) {
  EXPECT_NE(Child({"emulated", "faults"}, {"CROSSLANE_EMULATED_FAULTS=cuMemAlloc"}).wait(), 0);
  EXPECT_NE(Child({"emulated", "faults"}, {"CROSSLANE_EMULATED_FAULTS=cuMemAlloc:3-2"}).wait(), 0);
  EXPECT_NE(Child({"emulated", "faults"}, {"CROSSLANE_EMULATED_FAULTS=cuMemAlloc:+"}).wait(), 0);
  EXPECT_NE(Child({"emulated", "faults"}, {"CROSSLANE_EMULATED_FAULTS=cuMemAlloc:3-"}).wait(), 0);
  EXPECT_NE(Child({"emulated", "faults"}, {"CROSSLANE_EMULATED_FAULTS=cuMemAlloc:1=CUDA_ERROR_NOPE"}).wait(), 0);
  EXPECT_NE(Child({"emulated", "faults"}, {"CROSSLANE_EMULATED_MEMORY=lots"}).wait(), 0);
  EXPECT_NE(Child({"emulated", "faults"}, {"CROSSLANE_GPU=emulated:0"}).wait(), 0);
}

TEST(EmulatedChildTest, TopologyIsRead) {
  const std::string path = ::testing::TempDir() + "topology-" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << R"({"gpus": [{"name": "First", "pci": "0000:3B:00.0", "numa": 0}, {"numa": 1}],
                             "peer": [[0, 50, 0], [50, 0, 0], [0, 0, 0]]})";
  Child other({"emulated", "topology"}, {"CROSSLANE_GPU=emulated:3:" + path});
  EXPECT_EQ(other.line(), "3 First 0000:3B:00.0 1 0 0");
  EXPECT_EQ(other.wait(), 0);
  Child fewer({"emulated", "topology"}, {"CROSSLANE_GPU=emulated:3:" + path, "CUDA_VISIBLE_DEVICES=1,0"});
  EXPECT_EQ(fewer.line().substr(0, 2), "2 ");
  EXPECT_EQ(fewer.wait(), 0);
  // What a scheduler has set for the machine's own GPUs.
  Child scheduled({"emulated", "topology"}, {"CROSSLANE_GPU=emulated:3:" + path,
                                             "CUDA_VISIBLE_DEVICES=GPU-01234567-89ab-cdef-0123-456789abcdef"});
  EXPECT_EQ(scheduled.line().substr(0, 2), "3 ");
  EXPECT_EQ(scheduled.wait(), 0);
  unlink(path.c_str());
}

}  // namespace

namespace {

void arm_faults() {
  void* const library = dlopen(CROSSLANE_EMULATED_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  reinterpret_cast<void (*)()>(dlsym(library, "crosslane_emulated_arm"))();
}

}  // namespace

int child_of_emulated_test(const std::vector<std::string>& arguments, const gpu::Driver& driver);
int child_of_emulated_test(const std::vector<std::string>& arguments, const gpu::Driver& driver) {
  if (arguments.at(1) == "faults") {
    CUdeviceptr pointers[4] = {};
    void* host = nullptr;
    std::string results;
    const auto add = [&](CUresult result) {
      results += (results.empty() ? "" : " ") + std::to_string(static_cast<int>(result));
    };
    for (int i = 0; i < 4; ++i) {
      if (i == 2) arm_faults();
      add(driver.mem_alloc(&pointers[i], 4096));
    }
    add(driver.mem_host_alloc(&host, 64, 0));
    add(driver.mem_host_alloc(&host, 64, 0));
    add(driver.mem_free(pointers[0]));
    add(driver.mem_free(pointers[1]));
    add(driver.mem_free(pointers[1]));
    std::puts(results.c_str());
    return 0;
  }
  if (arguments.at(1) == "topology") {
    int count = 0, first_second = -1, first_third = -1, second_third = -1;
    char name[64] = {}, bus[32] = {};
    driver.device_get_count(&count);
    driver.device_get_name(name, sizeof name, 0);
    driver.device_get_pci_bus_id(bus, sizeof bus, 0);
    driver.device_can_access_peer(&first_second, 0, 1);
    driver.device_can_access_peer(&first_third, 0, 2);
    driver.device_can_access_peer(&second_third, 1, 2);
    std::printf("%d %s %s %d %d %d\n", count, name, bus, first_second, first_third, second_third);
    return 0;
  }
  return 98;
}

}  // namespace crosslane::test
