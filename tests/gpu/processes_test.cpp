// Memory and events that cross processes: this program starts itself again and passes handles through pipes.
#include "gpu/mapping.h"
#include "machine.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <set>

namespace crosslane::test {

int child_of_emulated_test(const std::vector<std::string>& arguments, const gpu::Driver& driver);

namespace {

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  if (DIR* folder = opendir("/dev/shm")) {
    while (const dirent* entry = readdir(folder)) names.insert(entry->d_name);
    closedir(folder);
  }
  return names;
}

std::string input() {
  std::string line;
  std::getline(std::cin, line);
  return line;
}

// Doubles every byte of the memory behind the handle.
int doubles(const gpu::Driver& driver, const std::string& hex, std::size_t bytes) {
  CUipcMemHandle handle{};
  from_hex(hex, &handle, sizeof handle);
  const gpu::Mapping mapping(driver, handle);
  const gpu::Mapping again(driver, handle);  // the same address, counted
  if (mapping.address() != again.address()) return 3;
  if (gpu::Gpu::readable_by_cpu(mapping.data())) return 4;
  auto data = read(driver, mapping.data(), bytes);
  for (std::byte& one : data) one = static_cast<std::byte>(2 * std::to_integer<unsigned>(one));
  write(driver, mapping.data(), data);
  std::puts("done");
  return 0;
}

// Waits on the GPU for the parent's event, then copies what it ordered.
int waits(const gpu::Driver& driver, const std::string& memory_hex, const std::string& event_hex) {
  CUipcMemHandle memory{};
  CUipcEventHandle event_handle{};
  from_hex(memory_hex, &memory, sizeof memory);
  from_hex(event_hex, &event_handle, sizeof event_handle);
  const gpu::Mapping mapping(driver, memory);
  const gpu::Event event(driver, event_handle);
  const gpu::Stream stream(driver);
  gpu::Marker marker(driver);
  event.make_wait(stream);
  const auto value = marker.post(stream);
  std::puts(marker.reached(value) ? "passed" : "held");
  finish(stream);
  std::printf("%d\n", std::to_integer<int>(read(driver, mapping.data(), 1)[0]));
  return 0;
}

int exports(const gpu::Driver& driver) {
  gpu::Buffer buffer(driver, 1 << 20);
  const auto handle = buffer.export_handle();
  std::puts(to_hex(&handle, sizeof handle).c_str());
  for (std::string word = input(); !word.empty(); word = input()) {
    if (word == "free") buffer = gpu::Buffer();
    if (word == "again") buffer = gpu::Buffer(driver, 1 << 20);
    std::puts("ok");
  }
  return 0;
}

template <class Kind>
class ProcessesTest : public MachineTest<Kind> {};
TYPED_TEST_SUITE(ProcessesTest, Machines, MachineNames);

TYPED_TEST(ProcessesTest, MemoryIsShared) {
  for (const std::size_t bytes : {std::size_t{5000}, std::size_t{3} << 20}) {
    const gpu::Buffer filler(this->driver(), 100'000), buffer(this->driver(), bytes);
    auto data = pattern(bytes, 31);
    write(this->driver(), buffer.data(), data);
    const auto handle = buffer.export_handle();
    Child other({TypeParam::name, "doubles", to_hex(&handle, sizeof handle), std::to_string(bytes)}, {});
    EXPECT_EQ(other.line(), "done");
    EXPECT_EQ(other.wait(), 0);
    for (std::byte& one : data) one = static_cast<std::byte>(2 * std::to_integer<unsigned>(one));
    EXPECT_EQ(read(this->driver(), buffer.data(), bytes), data);
  }
}

TYPED_TEST(ProcessesTest, EventsOrderAcrossProcesses) {
  const gpu::Buffer buffer(this->driver(), 4096);
  write(this->driver(), buffer.data(), std::vector<std::byte>(4096, std::byte{1}));
  const gpu::PinnedBuffer gate(this->driver(), 8);
  auto* const word = new (gate.data()) std::atomic<std::uint32_t>(0);
  gpu::Event event(this->driver(), gpu::Event::Use::across_processes);
  const gpu::Stream stream(this->driver());
  ASSERT_CUDA(
      this->driver().stream_wait_value_32(stream.view().handle(), gate.device_address(), 1, CU_STREAM_WAIT_VALUE_EQ));
  gpu::fill_async(buffer.data(), 2, 4096, stream);
  event.record(stream);
  const auto memory = buffer.export_handle();
  const auto handle = event.export_handle();
  Child other({TypeParam::name, "waits", to_hex(&memory, sizeof memory), to_hex(&handle, sizeof handle)}, {});
  EXPECT_EQ(other.line(), "held");
  word->store(1, std::memory_order_release);
  EXPECT_EQ(other.line(), "2");
  EXPECT_EQ(other.wait(), 0);
  finish(stream);
}

TYPED_TEST(ProcessesTest, OwnHandlesDoNotOpen) {
  const gpu::Buffer buffer(this->driver(), 4096);
  const auto handle = buffer.export_handle();
  CUdeviceptr pointer = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT,
              this->driver().ipc_open_mem_handle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

// What a real driver does with handles of freed memory is undefined; the emulated one refuses them.
TEST(EmulatedProcessesTest, HandlesOfFreedMemoryAreRefused) {
  std::string reason;
  const gpu::Driver& driver = *load(Emulated(), reason);
  const gpu::PrimaryContext context(driver, 0);
  const gpu::ContextScope scope(driver, context.context());
  Child other({"emulated", "exports"}, {});
  CUipcMemHandle handle{};
  from_hex(other.line(), &handle, sizeof handle);
  { const gpu::Mapping mapping(driver, handle); }
  other.say("free");
  EXPECT_EQ(other.line(), "ok");
  EXPECT_THROW(gpu::Mapping(driver, handle), base::Error);
  other.say("again");  // the same address, but another allocation
  EXPECT_EQ(other.line(), "ok");
  EXPECT_THROW(gpu::Mapping(driver, handle), base::Error);
}

TEST(EmulatedProcessesTest, AKilledProcessLeavesNothing) {
  std::string reason;
  const gpu::Driver& driver = *load(Emulated(), reason);
  const gpu::PrimaryContext context(driver, 0);
  const gpu::ContextScope scope(driver, context.context());
  const auto before = shared_memory_files();
  Child other({"emulated", "exports"}, {});
  CUipcMemHandle handle{};
  from_hex(other.line(), &handle, sizeof handle);
  {
    const gpu::Mapping mapping(driver, handle);
    other.kill();
    EXPECT_EQ(other.wait(), 128 + SIGKILL);
    EXPECT_EQ(read(driver, mapping.data(), 4096).size(), 4096U) << "what is mapped stays readable";
  }
  EXPECT_THROW(gpu::Mapping(driver, handle), base::Error) << "but it opens no more";
  for (const std::string& name : shared_memory_files()) {
    EXPECT_TRUE(before.contains(name) || name.find("crosslane-emulated") == std::string::npos) << name;
  }
}

}  // namespace

int child(const std::vector<std::string>& arguments) {
  std::string reason;
  const gpu::Driver* driver = nullptr;
  if (arguments.at(0) == Real::name) {
    driver = load(Real(), reason);
  } else {
    driver = load(Emulated(), reason);
  }
  if (driver == nullptr) return 99;
  const gpu::PrimaryContext context(*driver, 0);
  const gpu::ContextScope scope(*driver, context.context());
  if (arguments.at(1) == "doubles") return doubles(*driver, arguments.at(2), std::stoul(arguments.at(3)));
  if (arguments.at(1) == "waits") return waits(*driver, arguments.at(2), arguments.at(3));
  if (arguments.at(1) == "exports") return exports(*driver);
  return child_of_emulated_test(arguments, *driver);
}

}  // namespace crosslane::test
