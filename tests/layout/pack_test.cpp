// MPI_Pack and MPI_Unpack of thousands of random datatypes with GPU memory on either side or on both, against the MPI on host
// copies, byte by byte, positions too. Arguments: [seed [types]]. A failure prints the type's description and the seed.
#include "base/error.h"
#include "layout/decode.h"
#include "layout/random_type.h"
#include "mpi/abi.h"
#include "mpi/library.h"
#include "support/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace crosslane;

namespace {

int failures = 0;
std::string what;

void expect(bool condition, const char* text, int line) {
  if (condition) return;
  if (++failures <= 20) std::fprintf(stderr, "%s:%d: failed: %s\n  for %s\n", __FILE__, line, text, what.c_str());
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

using Bytes = std::vector<std::byte>;

Bytes noise(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Bytes result(bytes);
  for (auto& byte : result) byte = static_cast<std::byte>(engine());
  return result;
}

// Memory that holds `bytes`, on the GPU or not, with guards, and its contents again.
struct Held {
  Held(bool device, const Bytes& bytes)
      : memory(device ? tests::MemoryKind::device : tests::MemoryKind::host, bytes.size()) {
    memory.write(bytes);
  }
  [[nodiscard]] Bytes bytes() const {
    EXPECT(memory.guards_intact());
    return memory.read();
  }
  tests::Memory memory;
};

void* address_in(const Held& held, std::int64_t origin) {
  return reinterpret_cast<void*>(reinterpret_cast<std::intptr_t>(held.memory.data()) + origin);
}

void compare(const mpi::Library& library, tests::RandomType& random, MPI_Datatype type, int count) {
  const auto& mpi = library.below();
  const MPI_Comm comm = library.handles().comm_self;
  const layout::Layout layout = layout::decode(mpi, library.handles(), type).layout;
  const auto span = layout.span(count);
  // The buffer's address is in its memory.
  const std::int64_t low = std::min<std::int64_t>(span.begin, 0), high = std::max<std::int64_t>(span.end, 1);
  const auto room = static_cast<std::size_t>(high - low);
  const auto bytes = static_cast<std::int64_t>(layout.packed_size(count));
  const std::int64_t origin = -low;
  std::vector<std::uint8_t> seen(room);
  bool overlaps = false;
  layout.for_each_run(count, 0, static_cast<std::size_t>(bytes), [&](std::int64_t offset, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i)
      overlaps = std::exchange(seen[static_cast<std::size_t>(offset + origin) + i], std::uint8_t{1}) != 0 || overlaps;
  });

  const auto before = random.between(0, 20), after = random.between(0, 20);
  const auto size = static_cast<int>(before + bytes + after);
  const Bytes elements = noise(room, 1), stream = noise(static_cast<std::size_t>(size), 2);
  // The MPI alone.
  const Held plain_elements(false, elements), plain_stream(false, stream);
  int position = static_cast<int>(before);
  EXPECT(mpi.Pack(address_in(plain_elements, origin), count, type, plain_stream.memory.data(), size, &position, comm) ==
         mpi::success);
  const int packed_to = position;
  const Bytes packed = plain_stream.bytes();
  const Held plain_target(false, noise(room, 3));
  position = static_cast<int>(before);
  if (!overlaps) {
    EXPECT(mpi.Unpack(packed.data(), size, &position, address_in(plain_target, origin), count, type, comm) ==
           mpi::success);
  }
  const int unpacked_to = position;
  const Bytes target = plain_target.bytes();

  for (const auto& [elements_there, stream_there] : {std::pair(true, true), {true, false}, {false, true}}) {
    const Held mine(elements_there, elements), out(stream_there, stream), back(elements_there, noise(room, 3));
    position = static_cast<int>(before);
    EXPECT(mpi.Pack(address_in(mine, origin), count, type, out.memory.data(), size, &position, comm) == mpi::success);
    EXPECT(position == packed_to);
    EXPECT(out.bytes() == packed);
    EXPECT(mine.bytes() == elements);
    if (overlaps) continue;  // may not be received into
    position = static_cast<int>(before);
    EXPECT(mpi.Unpack(out.memory.data(), size, &position, address_in(back, origin), count, type, comm) == mpi::success);
    EXPECT(position == unpacked_to);
    EXPECT(back.bytes() == target);
  }

  // A packed buffer that is too small is refused, and nothing is written. Not compared with the MPI alone: MPICH 4.0.2
  // writes anywhere then.
  if (bytes == 0) return;
  const auto refused = [&](int code) {
    int error_class = 0;
    mpi.Error_class(code, &error_class);
    return error_class == mpi::error_class(base::ErrorClass::truncate);
  };
  const int room_left = static_cast<int>(before + bytes - 1);
  for (const bool there : {true, false}) {
    const Held small(there, stream), mine(true, elements);
    position = static_cast<int>(before);
    EXPECT(refused(mpi.Pack(address_in(mine, origin), count, type, small.memory.data(), room_left, &position, comm)));
    EXPECT(refused(mpi.Unpack(small.memory.data(), room_left, &position, address_in(mine, origin), count, type, comm)));
    EXPECT(position == static_cast<int>(before));
    EXPECT(small.bytes() == stream);
    EXPECT(mine.bytes() == elements);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : std::random_device{}();
  const int types = argc > 2 ? std::atoi(argv[2]) : 2000;
  std::printf("seed %llu, %d types\n", static_cast<unsigned long long>(seed), types);
  std::fflush(stdout);

  // Crosslane stands between this program and the MPI: these are its wrappers.
  const mpi::Library library;
  const mpi::Functions& mpi = library.below();
  mpi.Init(&argc, &argv);
  for (const MPI_Comm comm : {library.handles().comm_world, library.handles().comm_self})
    mpi.Comm_set_errhandler(comm, library.handles().errors_return);
  {
    const tests::Device device(0);
    tests::RandomType random(mpi, library.handles(), seed);
    int compared = 0;
    for (int i = 0; i < types; ++i) {
      auto made = random.make(static_cast<int>(random.between(0, 5)));
      const int count = static_cast<int>(random.between(1, 4));
      what = std::to_string(count) + " of " + made.text;
      // Types of which parts have no bytes are packed wrongly by the MPIs.
      if (!made.hollow) {
        compare(library, random, made.type, count);
        ++compared;
      }
      if (!made.predefined) mpi.Type_free(&made.type);
    }
    std::printf("%d types compared\n", compared);
    what = "the generator";
    EXPECT(compared > types / 2);
  }
  mpi.Finalize();
  if (failures != 0)
    std::fprintf(stderr, "%d failures with seed %llu\n", failures, static_cast<unsigned long long>(seed));
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
