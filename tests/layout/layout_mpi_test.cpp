// Layouts of thousands of random datatypes against the MPI's own packing, byte by byte.
// Arguments: [seed [types]]. A failure prints the type's description and the seed.
#include "base/error.h"
#include "layout/decode.h"
#include "layout/random_type.h"
#include "mpi/library.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace crosslane;

namespace {

int failures = 0;
std::string what;  // the type under test

void expect(bool condition, const char* text, int line) {
  if (condition) return;
  if (++failures <= 20) std::fprintf(stderr, "%s:%d: failed: %s\n  for %s\n", __FILE__, line, text, what.c_str());
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

using Bytes = std::vector<std::byte>;
using Runs = std::vector<std::pair<std::int64_t, std::size_t>>;

Bytes noise(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Bytes result(bytes);
  for (auto& byte : result) byte = static_cast<std::byte>(engine());
  return result;
}

Runs runs_of(const layout::Layout& layout, std::int64_t count, std::size_t begin, std::size_t end) {
  Runs runs;
  layout.for_each_run(count, begin, end,
                      [&](std::int64_t offset, std::size_t length) { runs.emplace_back(offset, length); });
  return runs;
}

// The offset of every packed byte.
std::vector<std::int64_t> offsets_of(const Runs& runs) {
  std::vector<std::int64_t> offsets;
  for (const auto& [offset, length] : runs)
    for (std::size_t i = 0; i < length; ++i) offsets.push_back(offset + static_cast<std::int64_t>(i));
  return offsets;
}

std::vector<std::int64_t> offsets_of(const layout::Strided& shape) {
  std::vector<std::int64_t> starts{shape.offset};
  for (std::size_t d = 0; d < shape.dimensions; ++d) {  // from the innermost on: later dimensions vary slower
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

class Case {
 public:
  Case(const mpi::Library& library, tests::RandomType& random)
      : mpi_(library.below()), handles_(library.handles()), random_(random) {}

  /// `hollow`: parts of the type have no bytes. There MPIs disagree about bounds, and pack wrongly or crash (Open MPI
  /// 4.1.4, MPICH 4.0.2), so only what all agree on is compared. `loose`: the MPI's true bounds
  /// may be wider than what is touched.
  void compare(MPI_Datatype type, int count, bool hollow, bool loose) {
    const layout::Layout layout = layout::decode(mpi_, handles_, type).layout;
    MPI_Count size = 0, true_lb = 0, true_extent = 0;
    MPI_Aint lb = 0, extent = 0;
    mpi_.Type_size_x(type, &size);
    mpi_.Type_get_extent(type, &lb, &extent);
    mpi_.Type_get_true_extent_x(type, &true_lb, &true_extent);
    EXPECT(layout.size() == static_cast<std::size_t>(size));
    EXPECT(layout.lb() == lb && layout.extent() == extent);
    if (layout.size() != static_cast<std::size_t>(size)) return;
    if (!loose) EXPECT(layout.true_lb() == true_lb && layout.true_extent() == true_extent);
    if (loose && size != 0) {
      EXPECT(layout.true_lb() >= true_lb && layout.true_lb() + layout.true_extent() <= true_lb + true_extent);
    }

    // The buffer reaches from the lowest byte to the highest one by the MPI's own account, with guards around it.
    const std::int64_t last = static_cast<std::int64_t>(extent) * (count - 1);
    std::int64_t low = true_lb + std::min<std::int64_t>(0, last),
                 high = true_lb + true_extent + std::max<std::int64_t>(0, last);
    if (size == 0) low = high = 0;
    constexpr std::int64_t guard = 64;
    const std::size_t room = static_cast<std::size_t>(high - low + 2 * guard);
    const std::int64_t origin = guard - low;
    const auto address = [&](Bytes& memory) {
      return reinterpret_cast<void*>(reinterpret_cast<std::intptr_t>(memory.data()) + origin);
    };
    Bytes memory = noise(room, 1);
    const std::size_t all = layout.packed_size(count);
    if (!loose) {
      const auto span = layout.span(count);
      EXPECT(span.begin == low && span.end == high);
    }

    Bytes theirs(all + 8), ours(all + 8);
    int position = 0;
    layout.pack(ours.data(), address(memory), count, 0, all);
    if (hollow) theirs = ours;
    if (!hollow)
      EXPECT(mpi_.Pack(address(memory), count, type, theirs.data(), static_cast<int>(all), &position,
                       handles_.comm_self) == mpi::success);
    if (!hollow) EXPECT(static_cast<std::size_t>(position) == all);
    EXPECT(ours == theirs);
    if (ours != theirs) return;

    const Runs runs = runs_of(layout, count, 0, all);
    const auto offsets = offsets_of(runs);
    EXPECT(offsets.size() == all);
    bool joined = true;
    for (std::size_t i = 1; i < runs.size(); ++i)
      joined = joined && runs[i].first != runs[i - 1].first + static_cast<std::int64_t>(runs[i - 1].second);
    EXPECT(joined);
    compare_shapes(layout, count, runs, offsets);
    compare_ranges(layout, count, memory, origin, theirs, offsets);

    auto sorted = offsets;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return;  // overlaps may not be received into
    if (hollow) return;
    Bytes expected = noise(room, 2), target = expected;
    const Bytes packed = noise(all, 3);
    position = 0;
    EXPECT(mpi_.Unpack(packed.data(), static_cast<int>(all), &position, address(expected), count, type,
                       handles_.comm_self) == mpi::success);
    layout.unpack(address(target), packed.data(), count, 0, all);
    EXPECT(target == expected);
    ++unpacked;
  }

  int unpacked = 0, strided = 0, flat = 0, dense = 0;

 private:
  void compare_shapes(const layout::Layout& layout, int count, const Runs& runs,
                      const std::vector<std::int64_t>& offsets) {
    if (layout.dense()) {
      ++dense;
      EXPECT(runs.size() <= 1);
    }
    const auto shape = layout.as_strided(count);
    if (shape) {
      ++strided;
      flat += shape->dimensions < 2 ? 1 : 0;
      EXPECT(shape->width > 0 && offsets_of(*shape) == offsets);
    }
    if (runs.size() == 1) EXPECT(shape || layout.run_count() > 1 || count > 1);
  }

  void compare_ranges(const layout::Layout& layout, int count, Bytes& memory, std::int64_t origin, const Bytes& packed,
                      const std::vector<std::int64_t>& offsets) {
    const auto all = static_cast<std::int64_t>(offsets.size());
    const auto address = [&](Bytes& of) {
      return reinterpret_cast<void*>(reinterpret_cast<std::intptr_t>(of.data()) + origin);
    };
    for (int i = 0; i < 4; ++i) {
      const auto begin = static_cast<std::size_t>(random_.between(0, all)),
                 end = static_cast<std::size_t>(random_.between(static_cast<std::int64_t>(begin), all));
      Bytes part(end - begin + 8, std::byte{0xa5});
      layout.pack(part.data(), address(memory), count, begin, end);
      EXPECT(std::equal(part.begin(), part.end() - 8, packed.begin() + static_cast<std::ptrdiff_t>(begin)));
      EXPECT(std::all_of(part.end() - 8, part.end(), [](std::byte byte) { return byte == std::byte{0xa5}; }));

      const Bytes source = noise(end - begin, 4);
      Bytes target = noise(memory.size(), 5), expected = target;
      for (std::size_t j = begin; j < end; ++j)
        expected[static_cast<std::size_t>(offsets[j] + origin)] = source[j - begin];
      layout.unpack(address(target), source.data(), count, begin, end);
      EXPECT(target == expected);
    }
  }

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  tests::RandomType& random_;
};

// Types that no buffer can be made for, or that would be slow if each block cost something.
void extremes(const mpi::Library& library, Case& one) {
  const auto& mpi = library.below();
  const auto& handles = library.handles();
  const auto decoded = [&](MPI_Datatype type) { return layout::decode(mpi, handles, type).layout; };
  constexpr MPI_Aint far = MPI_Aint{1} << 40;

  what = "hvector(3, 2, -2^40) of int";
  MPI_Datatype type{};
  mpi.Type_create_hvector(3, 2, -far, handles.int_, &type);
  EXPECT((runs_of(decoded(type), 1, 4, 20) == Runs{{4, 4}, {-far, 8}, {-2 * far, 4}}));
  EXPECT(decoded(type).span(1).begin == -2 * far && decoded(type).span(1).end == 8);
  mpi.Type_free(&type);

  what = "resized(-2^40, 2^41) of byte";
  mpi.Type_create_resized(handles.byte, -far, 2 * far, &type);
  EXPECT(
      (runs_of(decoded(type), 1'000'000, 999'998, 1'000'000) == Runs{{999'998 * 2 * far, 1}, {999'999 * 2 * far, 1}}));
  try {
    static_cast<void>(decoded(type).span(MPI_Count{1} << 40));
    EXPECT(!"an overflow is an error");
  } catch (const base::Error& error) {
    EXPECT(error.error_class() == base::ErrorClass::count);
  }
  mpi.Type_free(&type);

  what = "vector(1'000'000, 1, 2) of byte";
  mpi.Type_vector(1'000'000, 1, 2, handles.byte, &type);
  const auto rows = decoded(type).as_strided(1);
  EXPECT(rows && rows->dimensions == 1 && rows->dimension[0].count == 1'000'000);
  mpi.Type_commit(&type);
  one.compare(type, 1, false, false);
  mpi.Type_free(&type);

  what = "indexed_block of a million bytes in random order";
  std::vector<int> displacements(1'000'000);
  std::mt19937 engine(7);
  for (std::size_t i = 0; i < displacements.size(); ++i) displacements[i] = static_cast<int>(2 * i);
  std::shuffle(displacements.begin(), displacements.end(), engine);
  mpi.Type_create_indexed_block(1'000'000, 1, displacements.data(), handles.byte, &type);
  mpi.Type_commit(&type);
  one.compare(type, 1, false, false);
  mpi.Type_free(&type);

  what = "vector of nothing";
  mpi.Type_vector(5, 0, 3, handles.int_, &type);
  EXPECT(decoded(type).size() == 0 && decoded(type).dense() && !decoded(type).as_strided(3));
  EXPECT(runs_of(decoded(type), 9, 0, 0).empty() && decoded(type).span(9).begin == decoded(type).span(9).end);
  mpi.Type_free(&type);

  what = "MPI_DATATYPE_NULL";
  try {
    static_cast<void>(decoded(handles.datatype_null));
    EXPECT(!"MPI_DATATYPE_NULL is an error");
  } catch (const base::Error& error) {
    EXPECT(error.error_class() == base::ErrorClass::type);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : std::random_device{}();
  const int types = argc > 2 ? std::atoi(argv[2]) : 4000;
  std::printf("seed %llu, %d types\n", static_cast<unsigned long long>(seed), types);
  std::fflush(stdout);

  const mpi::Library library;
  const mpi::Functions& mpi = library.below();
  mpi.Init(&argc, &argv);
  for (const MPI_Comm comm : {library.handles().comm_world, library.handles().comm_self})
    mpi.Comm_set_errhandler(comm, library.handles().errors_return);
  tests::RandomType random(mpi, library.handles(), seed);
  Case one(library, random);
  for (int i = 0; i < types; ++i) {
    auto made = random.make(static_cast<int>(random.between(0, 5)));
    const int count = static_cast<int>(random.between(1, 4));
    what = std::to_string(count) + " of " + made.text;
    try {
      one.compare(made.type, count, made.hollow, made.loose);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      EXPECT(!"no exception");
    }
    if (!made.predefined) mpi.Type_free(&made.type);
  }
  extremes(library, one);
  for (const auto& [name, times] : random.constructors_used()) std::printf("%s %d  ", name.c_str(), times);
  std::printf("\nunpacked %d, strided %d, at most two-dimensional %d, dense %d\n", one.unpacked, one.strided, one.flat,
              one.dense);
  what = "the generator";
  if (types >= 1000) {
    EXPECT(random.constructors_used().size() + random.constructors_left_out() >=
           (mpi.Type_vector_c != nullptr ? 26U : 15U));
    EXPECT(one.unpacked > types / 4 && one.strided > types / 8 && one.flat > types / 16 && one.dense > types / 32);
  }
  mpi.Finalize();
  if (failures != 0)
    std::fprintf(stderr, "%d failures with seed %llu\n", failures, static_cast<unsigned long long>(seed));
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
