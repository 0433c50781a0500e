// Memory and copies, on emulated and real GPUs alike.
#include "gpu/spares.h"
#include "machine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>

namespace crosslane::test {
namespace {

using gpu::PointerInfo;

template <class Kind>
class MemoryTest : public MachineTest<Kind> {};
TYPED_TEST_SUITE(MemoryTest, Machines, MachineNames);

TYPED_TEST(MemoryTest, DevicesAreDescribed) {
  int count = 0;
  ASSERT_CUDA(this->driver().device_get_count(&count));
  std::set<std::string> uuids, buses;
  for (int device = 0; device < count; ++device) {
    CUuuid uuid{};
    char bus[32] = {}, name[64] = {};
    std::size_t total = 0;
    EXPECT_CUDA(CUDA_SUCCESS, this->driver().device_get_uuid(&uuid, device));
    EXPECT_CUDA(CUDA_SUCCESS, this->driver().device_get_pci_bus_id(bus, sizeof bus, device));
    EXPECT_CUDA(CUDA_SUCCESS, this->driver().device_get_name(name, sizeof name, device));
    EXPECT_CUDA(CUDA_SUCCESS, this->driver().device_total_mem(&total, device));
    EXPECT_GT(total, 0U);
    EXPECT_NE(name[0], '\0');
    uuids.insert(to_hex(uuid.bytes, sizeof uuid.bytes));
    buses.insert(bus);
    EXPECT_GT(gpu::device_attribute(this->driver(), CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), 0);
  }
  EXPECT_EQ(uuids.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(buses.size(), static_cast<std::size_t>(count));
  CUdevice none = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, this->driver().device_get(&none, count));
}

TYPED_TEST(MemoryTest, CopiesThereAndBack) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{100'001}, std::size_t{9} << 20}) {
    const gpu::Buffer first(this->driver(), bytes), second(this->driver(), bytes);
    const auto data = pattern(bytes, bytes);
    write(this->driver(), first.data(), data);
    const gpu::Stream stream(this->driver());
    gpu::copy_async(second.data(), first.data(), bytes, stream);
    finish(stream);
    EXPECT_EQ(read(this->driver(), second.data(), bytes), data) << bytes;
  }
}

TYPED_TEST(MemoryTest, PointersAreDescribed) {
  constexpr std::size_t bytes = 3 << 20;
  const gpu::Buffer buffer(this->driver(), bytes);
  const gpu::PinnedBuffer pinned(this->driver(), bytes);
  EXPECT_EQ(this->kind_of(buffer.data() + bytes - 1), PointerInfo::Kind::device);
  EXPECT_EQ(this->kind_of(pinned.data() + 17), PointerInfo::Kind::pinned);
  const std::vector<std::byte> host(bytes);
  EXPECT_EQ(this->kind_of(host.data()), PointerInfo::Kind::host);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  ASSERT_CUDA(this->driver().mem_get_address_range(&base, &size, buffer.address() + 12345));
  EXPECT_EQ(base, buffer.address());
  EXPECT_EQ(size, bytes);
  EXPECT_FALSE(gpu::Gpu::readable_by_cpu(buffer.data()));
  EXPECT_TRUE(gpu::Gpu::readable_by_cpu(pinned.data()));
  EXPECT_TRUE(gpu::Gpu::readable_by_cpu(host.data()));
}

TYPED_TEST(MemoryTest, BufferIdsAreNeverReused) {
  std::set<unsigned long long> ids;
  std::set<CUdeviceptr> addresses;
  for (int round = 0; round < 50; ++round) {
    const gpu::Buffer buffer(this->driver(), 4 << 20);
    unsigned long long id = 0;
    ASSERT_CUDA(this->driver().pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, buffer.address()));
    EXPECT_TRUE(ids.insert(id).second);
    addresses.insert(buffer.address());
  }
  EXPECT_LT(addresses.size(), ids.size()) << "addresses do come back, or this test shows nothing";
}

TYPED_TEST(MemoryTest, FreedMemoryIsUnknown) {
  CUdeviceptr pointer = 0;
  ASSERT_CUDA(this->driver().mem_alloc(&pointer, 4 << 20));
  ASSERT_CUDA(this->driver().mem_free(pointer));
  EXPECT_EQ(this->kind_of(reinterpret_cast<void*>(pointer)), PointerInfo::Kind::host);
  EXPECT_FALSE(gpu::Gpu::readable_by_cpu(reinterpret_cast<void*>(pointer)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, this->driver().mem_free(pointer));
}

TYPED_TEST(MemoryTest, TheCpuDiesOnDeviceMemory) {
  const gpu::Buffer buffer(this->driver(), 4096);
  EXPECT_DEATH(*static_cast<volatile char*>(static_cast<void*>(buffer.data())) = 1, "");
  EXPECT_DEATH(std::exit(*static_cast<volatile char*>(static_cast<void*>(buffer.data()))), "");
}

TYPED_TEST(MemoryTest, CopiesBeyondTheEndFail) {
  const gpu::Buffer buffer(this->driver(), 4 << 20);
  const gpu::PinnedBuffer pinned(this->driver(), 8 << 20);
  const gpu::Stream stream(this->driver());
  EXPECT_THROW(gpu::copy_async(pinned.data(), buffer.data(), (4 << 20) + 1, stream), base::Error);
  try {
    gpu::copy_async(pinned.data(), buffer.data(), (4 << 20) + 1, stream);
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_INVALID_VALUE"), std::string::npos) << error.what();
    EXPECT_EQ(error.error_class(), base::ErrorClass::argument);
  }
}

// Small ones lie side by side on a real GPU.
TYPED_TEST(MemoryTest, CopiesOverTwoAllocationsFail) {
  const gpu::Stream stream(this->driver());
  const gpu::PinnedBuffer pinned(this->driver(), 4096);
  for (const bool ordered : {false, true}) {
    std::array<CUdeviceptr, 16> addresses{};
    for (auto& address : addresses) {
      ASSERT_CUDA(ordered ? this->driver().mem_alloc_async(&address, 512, stream.view().handle())
                          : this->driver().mem_alloc(&address, 512));
    }
    auto sorted = addresses;
    std::ranges::sort(sorted);
    for (std::size_t at = 1; at < sorted.size(); ++at) {
      auto* const low = reinterpret_cast<std::byte*>(sorted[at - 1]);
      const auto distance = static_cast<std::size_t>(sorted[at] - sorted[at - 1]);
      const gpu::Rows rows{.row_bytes = 100, .count = 2, .destination_pitch = 100, .source_pitch = distance};
      EXPECT_THROW(gpu::copy_2d_async(pinned.data(), low, rows, stream), base::Error) << at << ' ' << ordered;
      EXPECT_THROW(gpu::copy_async(pinned.data(), low, 513, stream), base::Error) << at << ' ' << ordered;
    }
    for (const auto address : addresses)
      ASSERT_CUDA(ordered ? this->driver().mem_free_async(address, stream.view().handle())
                          : this->driver().mem_free(address));
  }
  finish(stream);
}

TYPED_TEST(MemoryTest, MemoryEnds) {
  std::size_t free_bytes = 0, total = 0;
  ASSERT_CUDA(this->driver().mem_get_info(&free_bytes, &total));
  try {
    const gpu::Buffer buffer(this->driver(), total + (std::size_t{1} << 30));
    ADD_FAILURE() << "more than all was given";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.error_class(), base::ErrorClass::no_memory);
  }
  const gpu::Buffer small(this->driver(), 4096);  // the failure did no harm
}

TYPED_TEST(MemoryTest, PageableSourcesMayChangeAtOnce) {
  const gpu::Buffer buffer(this->driver(), 1 << 20);
  const gpu::Stream stream(this->driver());
  const auto data = pattern(1 << 20, 5);
  auto source = data;
  gpu::copy_async(buffer.data(), source.data(), source.size(), stream);
  std::fill(source.begin(), source.end(), std::byte{0xff});
  finish(stream);
  EXPECT_EQ(read(this->driver(), buffer.data(), data.size()), data);
}

TYPED_TEST(MemoryTest, RowsAreCopiedAsTheModelDoes) {
  const std::uint64_t seed_value = seed();
  std::mt19937_64 random(seed_value);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  for (int round = 0; round < 60; ++round) {
    gpu::Rows rows{.row_bytes = 1 + below(300), .count = 1 + below(40)};
    rows.source_pitch = rows.row_bytes + below(3) * below(50);
    rows.destination_pitch = rows.row_bytes + below(3) * below(50);
    const std::size_t source_bytes = rows.count * rows.source_pitch,
                      destination_bytes = rows.count * rows.destination_pitch;
    const gpu::Buffer source(this->driver(), source_bytes), destination(this->driver(), destination_bytes);
    const gpu::PinnedBuffer pinned(this->driver(), destination_bytes);
    const auto data = pattern(source_bytes, random()), before = pattern(destination_bytes, random());
    write(this->driver(), source.data(), data);
    write(this->driver(), destination.data(), before);
    std::copy(before.begin(), before.end(), pinned.data());
    auto expected = before;
    for (std::size_t row = 0; row < rows.count; ++row) {
      std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(row * rows.source_pitch), rows.row_bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(row * rows.destination_pitch));
    }
    const gpu::Stream stream(this->driver());
    gpu::copy_2d_async(destination.data(), source.data(), rows, stream);
    gpu::copy_2d_async(pinned.data(), source.data(), rows, stream);
    finish(stream);
    ASSERT_EQ(read(this->driver(), destination.data(), destination_bytes), expected)
        << "seed " << seed_value << " round " << round;
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), pinned.data()))
        << "seed " << seed_value << " round " << round;
  }
}

TYPED_TEST(MemoryTest, ManagedMemoryIsForBoth) {
  CUdeviceptr pointer = 0;
  ASSERT_CUDA(this->driver().mem_alloc_managed(&pointer, 8192, CU_MEM_ATTACH_GLOBAL));
  auto* const bytes = reinterpret_cast<unsigned char*>(pointer);
  std::memset(bytes, 7, 8192);
  const gpu::Stream stream(this->driver());
  gpu::fill_async(bytes, 9, 100, stream);
  finish(stream);
  EXPECT_EQ(bytes[99], 9);
  EXPECT_EQ(bytes[100], 7);
  unsigned managed = 0;
  ASSERT_CUDA(this->driver().pointer_get_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
  EXPECT_EQ(managed, 1U);
  ASSERT_CUDA(this->driver().mem_free(pointer));
}

TYPED_TEST(MemoryTest, HostMemoryIsPinnedInPlace) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(this->kind_of(memory), PointerInfo::Kind::host);
  {
    const gpu::PinnedRange range(this->driver(), memory, 4 * page);
    EXPECT_EQ(this->kind_of(memory), PointerInfo::Kind::pinned);
    EXPECT_CUDA(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, this->driver().mem_host_register(memory, page, 0));
  }
  EXPECT_EQ(this->kind_of(memory), PointerInfo::Kind::host);
  munmap(memory, 4 * page);
}

TYPED_TEST(MemoryTest, StreamOrderedMemory) {
  const gpu::Stream stream(this->driver());
  CUdeviceptr pointer = 0;
  ASSERT_CUDA(this->driver().mem_alloc_async(&pointer, 1 << 20, stream.view().handle()));
  const auto data = pattern(1 << 20, 11);
  gpu::copy_async(reinterpret_cast<void*>(pointer), data.data(), data.size(), stream);
  const gpu::PinnedBuffer back(this->driver(), data.size());
  gpu::copy_async(back.data(), reinterpret_cast<void*>(pointer), data.size(), stream);
  CUipcMemHandle handle{};
  EXPECT_NE(this->driver().ipc_get_mem_handle(&handle, pointer), CUDA_SUCCESS);
  ASSERT_CUDA(this->driver().mem_free_async(pointer, stream.view().handle()));
  finish(stream);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), back.data()));
}

TYPED_TEST(MemoryTest, PhysicalMemoryIsMappedInPieces) {
  const gpu::Driver& driver = this->driver();
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t piece = 0;
  ASSERT_CUDA(driver.mem_get_allocation_granularity(&piece, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr base = 0;
  ASSERT_CUDA(driver.mem_address_reserve(&base, 4 * piece, 0, 0, 0));
  CUmemGenericAllocationHandle first = 0, second = 0;
  ASSERT_CUDA(driver.mem_create(&first, piece, &property, 0));
  ASSERT_CUDA(driver.mem_create(&second, 2 * piece, &property, 0));
  ASSERT_CUDA(driver.mem_map(base, piece, 0, first, 0));
  ASSERT_CUDA(driver.mem_map(base + piece, 2 * piece, 0, second, 0));
  const CUmemAccessDesc access{.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_CUDA(driver.mem_set_access(base, 3 * piece, &access, 1));
  const auto data = pattern(3 * piece, 3);
  write(driver, reinterpret_cast<void*>(base), data);  // across the border
  EXPECT_EQ(read(driver, reinterpret_cast<void*>(base), data.size()), data);
  const gpu::PinnedBuffer rows(driver, 200);
  const gpu::Stream stream(driver);
  auto* const before = reinterpret_cast<std::byte*>(base) + piece - 1000;
  gpu::copy_2d_async(rows.data(), before,
                     {.row_bytes = 100, .count = 2, .destination_pitch = 100, .source_pitch = 1500}, stream);
  finish(stream);
  EXPECT_TRUE(
      std::equal(rows.data() + 100, rows.data() + 200, data.begin() + static_cast<std::ptrdiff_t>(piece + 500)));

  // The second piece again, elsewhere, through its descriptor.
  int descriptor = -1;
  ASSERT_CUDA(driver.mem_export_to_shareable_handle(&descriptor, second, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_CUDA(driver.mem_import_from_shareable_handle(&imported,
                                                      reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  CUdeviceptr other = 0;
  ASSERT_CUDA(driver.mem_address_reserve(&other, 2 * piece, 0, 0, 0));
  ASSERT_CUDA(driver.mem_map(other, 2 * piece, 0, imported, 0));
  ASSERT_CUDA(driver.mem_set_access(other, 2 * piece, &access, 1));
  EXPECT_EQ(read(driver, reinterpret_cast<void*>(other), 2 * piece),
            std::vector<std::byte>(data.begin() + static_cast<std::ptrdiff_t>(piece), data.end()));

  ASSERT_CUDA(driver.mem_unmap(other, 2 * piece));
  ASSERT_CUDA(driver.mem_unmap(base, 3 * piece));
  for (const auto handle : {first, second, imported}) ASSERT_CUDA(driver.mem_release(handle));
  ASSERT_CUDA(driver.mem_address_free(other, 2 * piece));
  ASSERT_CUDA(driver.mem_address_free(base, 4 * piece));
}

TYPED_TEST(MemoryTest, PeersReachEachOther) {
  int count = 0;
  ASSERT_CUDA(this->driver().device_get_count(&count));
  if (count < 2) GTEST_SKIP() << "one GPU here, two are needed";
  const gpu::PrimaryContext peer(this->driver(), 1);
  const auto data = pattern(1 << 20, 21);
  const gpu::Buffer mine(this->driver(), data.size());
  write(this->driver(), mine.data(), data);
  const gpu::ContextScope scope(this->driver(), peer.context());
  EXPECT_EQ(gpu::current_device(this->driver()), 1);
  const gpu::Buffer theirs(this->driver(), data.size());
  const gpu::Stream stream(this->driver());
  gpu::copy_async(theirs.data(), mine.data(), data.size(), stream);
  finish(stream);
  EXPECT_EQ(read(this->driver(), theirs.data(), data.size()), data);
}

// Copies find their way between any two GPUs; a fill is a kernel of its stream's.
TYPED_TEST(MemoryTest, AFillNeedsPeerAccess) {
  auto& driver = this->driver();
  int count = 0, can = 0;
  ASSERT_CUDA(driver.device_get_count(&count));
  if (count >= 2) {
    ASSERT_CUDA(driver.device_can_access_peer(&can, 1, 0));
  }
  if (can == 0) GTEST_SKIP() << "no two GPUs here of which one reaches the other's memory";
  const gpu::Buffer mine(driver, 100);
  CUcontext own = nullptr;
  ASSERT_CUDA(driver.ctx_get_current(&own));
  const gpu::PrimaryContext peer(driver, 1);
  const gpu::ContextScope scope(driver, peer.context());
  const gpu::Stream stream(driver);
  const auto fill = [&](unsigned char value) {
    return driver.memset_d8_async(reinterpret_cast<CUdeviceptr>(mine.data()), value, 100, stream.view().handle());
  };
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, fill(1));
  ASSERT_CUDA(driver.ctx_enable_peer_access(own, 0));
  ASSERT_CUDA(fill(2));
  finish(stream);
  EXPECT_EQ(read(driver, mine.data(), 100), std::vector(100, std::byte{2}));
}

// Whatever was lent before: a call that repeats gets its memory again, and what it has is its alone.
TYPED_TEST(MemoryTest, SparesAreLentAgain) {
  CUcontext context = nullptr;
  ASSERT_CUDA(this->driver().ctx_get_current(&context));
  gpu::Spares spares(this->driver(), context);
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  constexpr std::size_t mebi = std::size_t{1} << 20;
  for (std::size_t bytes = 1; bytes <= 8 * mebi; bytes *= 2) spares.take_back(spares.lend(bytes));
  for (int round = 0; round < 20; ++round) {
    const std::size_t large = 16 * mebi + random() % mebi, small = random() % mebi;
    CUdeviceptr first = 0, second = 0, third = 0;
    for (int call = 0; call < 3; ++call) {
      gpu::Buffer a = spares.lend(large), b = spares.lend(large), c = spares.lend(small);
      EXPECT_GE(a.size(), large);
      EXPECT_GE(b.size(), large);
      EXPECT_GE(c.size(), small);
      EXPECT_LT(a.size(), large + large / 4);
      EXPECT_TRUE(a.address() + a.size() <= b.address() || b.address() + b.size() <= a.address());
      // The first call may have made what the next ones choose from.
      if (call == 2) {
        EXPECT_EQ(a.address(), first);
        EXPECT_EQ(b.address(), second);
        EXPECT_EQ(c.address(), third);
      }
      first = a.address();
      second = b.address();
      third = c.address();
      const bool swapped = random() % 2 == 0;
      spares.take_back(std::move(swapped ? b : a));
      spares.take_back(std::move(c));
      spares.take_back(std::move(swapped ? a : b));
    }
  }
}

// No more than that is kept: what was used longest ago goes first, and what alone is more goes at once and
// drives nothing else out.
TYPED_TEST(MemoryTest, SparesAreFreedAtTheirLimit) {
  CUcontext context = nullptr;
  ASSERT_CUDA(this->driver().ctx_get_current(&context));
  gpu::Spares spares(this->driver(), context);
  const auto lives = [&](CUdeviceptr address, std::uint64_t id) {
    std::uint64_t found = 0;
    return this->driver().pointer_get_attribute(&found, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) == CUDA_SUCCESS &&
           found == id;
  };
  std::array<std::pair<CUdeviceptr, std::uint64_t>, 3> known{};
  std::vector<gpu::Buffer> lent;
  for (auto& [address, id] : known) {
    address = lent.emplace_back(spares.lend(gpu::Spares::most_kept / 2)).address();
    ASSERT_CUDA(this->driver().pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
  }
  for (const std::size_t which : {1U, 0U, 2U}) spares.take_back(std::move(lent[which]));
  EXPECT_FALSE(lives(known[1].first, known[1].second));
  EXPECT_TRUE(lives(known[0].first, known[0].second));
  EXPECT_TRUE(lives(known[2].first, known[2].second));
  gpu::Buffer large = spares.lend(gpu::Spares::most_kept + 1);
  std::pair<CUdeviceptr, std::uint64_t> alone{large.address(), 0};
  ASSERT_CUDA(this->driver().pointer_get_attribute(&alone.second, CU_POINTER_ATTRIBUTE_BUFFER_ID, alone.first));
  spares.take_back(std::move(large));
  EXPECT_FALSE(lives(alone.first, alone.second));
  EXPECT_TRUE(lives(known[0].first, known[0].second));
  EXPECT_TRUE(lives(known[2].first, known[2].second));
}

// What is kept is in nobody's way: a GPU without memory for a new buffer gets it all back first.
TEST(SparesTest, GiveWayWhereTheGpuIsFull) {
  std::string reason;
  const gpu::Driver* const driver = load(Emulated(), reason);
  if (driver == nullptr) GTEST_SKIP() << reason;
  const gpu::PrimaryContext context(*driver, 0);
  const gpu::ContextScope scope(*driver, context.context());
  gpu::Spares spares(*driver, context.context());
  constexpr std::size_t mib = std::size_t{1} << 20;
  std::size_t left = 0, total = 0;
  ASSERT_CUDA(driver->mem_get_info(&left, &total));
  ASSERT_GT(left, 96 * mib);
  const gpu::Buffer others(*driver, left - 96 * mib);
  for (const std::size_t kept : {40 * mib, 32 * mib}) spares.take_back(spares.lend(kept));
  spares.take_back(spares.lend(80 * mib));
  ASSERT_CUDA(driver->mem_get_info(&left, &total));
  EXPECT_EQ(left, 16 * mib);
  try {
    const gpu::Buffer too_large = spares.lend(100 * mib);
    FAIL() << "lent " << too_large.size() << " bytes of 96 MiB";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.error_class(), base::ErrorClass::no_memory) << error.what();
  }
  EXPECT_GE(spares.lend(96 * mib).size(), 96 * mib);
}

}  // namespace
}  // namespace crosslane::test
