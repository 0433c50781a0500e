// The datatype engine: random layouts packed, unpacked and copied into one another, whole and in ranges, with lists that
// are kept, made anew and given up, against loops on the host; captured, from several threads, and at the extremes.
#include "gpu/graph.h"
#include "mover_fixture.h"

#include <memory>
#include <thread>

namespace crosslane::test {
namespace {

TYPED_TEST_SUITE(MoverTest, Machines, MachineNames);

TYPED_TEST(MoverTest, RandomLayoutsPackedUnpackedAndIntoEachOther) {
  Maker maker(this->seed_);
  for (int i = 0; i < 400; ++i) {
    if (i % 100 == 50) this->make_mover(i % 200 == 50 ? 256 : 40'000, i % 200 == 50 ? 3 : 0);  // no room, little room
    if (i % 100 == 75) this->make_mover(std::size_t{16} << 20, 0);
    const std::int64_t units_of[] = {1, 2, 3, 4, 8, 12, 16, 64};
    const std::int64_t unit = units_of[maker.between(0, 7)];
    const std::int64_t units = maker.between(1, i % 10 == 0 ? 4000 : 400);
    const Elements from = elements_of(maker, units, unit, static_cast<int>(maker.between(0, 4)));
    const Elements to = i % 5 == 0 ? from : elements_of(maker, units, unit, static_cast<int>(maker.between(0, 4)));
    const auto all = static_cast<std::int64_t>(units * unit);
    ASSERT_EQ(static_cast<std::int64_t>(from.layout.packed_size(from.count)), all);
    const auto from_at = offsets_of(from.layout, from.count), to_at = offsets_of(to.layout, to.count);
    const auto shift = [&] { return static_cast<std::size_t>(i % 3 == 0 ? maker.between(0, 15) : 0); };
    const Bytes source = pattern(from.room, this->seed_ + static_cast<std::uint64_t>(i));
    typename TestFixture::OnGpu source_memory(this->driver(), source, shift());
    // Twice, since the second time finds lists.
    for (int round = 0; round < 2; ++round) {
      const std::int64_t last = maker.between(0, 2) == 0 ? maker.between(0, all) : all;
      const std::int64_t first = maker.between(0, 2) == 0 ? maker.between(0, last) : 0;
      const auto begin = static_cast<std::size_t>(first), end = static_cast<std::size_t>(last);
      Bytes packed(end - begin), unpacked(to.room);
      for (std::size_t k = begin; k < end; ++k) {
        packed[k - begin] = source[static_cast<std::size_t>(from_at[k])];
        unpacked[static_cast<std::size_t>(to_at[k])] = packed[k - begin];
      }
      const auto text = "case " + std::to_string(i) + ", bytes " + std::to_string(begin) + " to " +
                        std::to_string(end) + " of " + std::to_string(all) + ", unit " + std::to_string(unit);
      typename TestFixture::OnGpu packed_memory(this->driver(), Bytes(packed.size()), shift());
      this->copy(Side::packed(packed_memory.data()), Side::of(source_memory.data(), from.layout, from.count), begin,
                 end);
      finish(this->stream());
      ASSERT_EQ(packed_memory.bytes(), packed) << "packed, " << text;

      typename TestFixture::OnGpu target(this->driver(), Bytes(to.room), shift());
      this->copy(Side::of(target.data(), to.layout, to.count), Side::packed(packed_memory.data()), begin, end);
      finish(this->stream());
      ASSERT_EQ(target.bytes(), unpacked) << "unpacked, " << text;

      typename TestFixture::OnGpu direct(this->driver(), Bytes(to.room), shift());
      const auto shape = from.layout.as_strided(from.count);
      this->copy(
          Side::of(direct.data(), to.layout, to.count),
          shape ? Side::of(source_memory.data(), *shape) : Side::of(source_memory.data(), from.layout, from.count),
          begin, end);
      finish(this->stream());
      ASSERT_EQ(direct.bytes(), unpacked) << "from one into the other, " << text;

      // The ways without kernels, and to host memory that the GPU reaches.
      typename TestFixture::OnGpu by_copies(this->driver(), Bytes(to.room), 0);
      this->copy(Side::of(by_copies.data(), to.layout, to.count),
                 Side::of(source_memory.data(), from.layout, from.count), begin, end, Memory::host);
      gpu::PinnedBuffer host(this->driver(), packed.size() + 1);
      if (host.data() != nullptr && begin < end)
        this->copy(Side::packed(host.data()), Side::of(source_memory.data(), from.layout, from.count), begin, end,
                   Memory::mapped);
      finish(this->stream());
      ASSERT_EQ(by_copies.bytes(), unpacked) << "by copies, " << text;
      ASSERT_TRUE(std::equal(packed.begin(), packed.end(), host.data())) << "to the host, " << text;
    }
    ASSERT_EQ(source_memory.bytes(), source);
  }
}

TYPED_TEST(MoverTest, Transpositions) {
  Maker maker(this->seed_);
  for (int i = 0; i < 60; ++i) {
    const std::int64_t word = std::int64_t{1} << maker.between(0, 4), rows = maker.between(1, 90),
                       columns = maker.between(1, 90), planes = maker.between(1, 3);
    const std::int64_t pitch = (columns + maker.between(0, 3)) * word,
                       plane = pitch * rows + word * maker.between(0, 2);
    // Columns of a matrix, one after another.
    const auto column =
        layout::repeat(layout::block(0, static_cast<std::size_t>(word)), static_cast<std::uint64_t>(rows), pitch);
    const auto matrix = layout::repeat(layout::repeat(column, static_cast<std::uint64_t>(columns), word),
                                       static_cast<std::uint64_t>(planes), plane);
    const Layout turned(matrix, 0, plane * planes);
    const auto at = offsets_of(turned, 1);
    const auto room = static_cast<std::size_t>(plane * planes);
    const auto all = static_cast<std::int64_t>(at.size());
    const auto end = static_cast<std::size_t>(i % 2 == 0 ? all : maker.between(0, all)),
               begin = static_cast<std::size_t>(i % 2 == 0 ? 0 : maker.between(0, static_cast<std::int64_t>(end)));
    const Bytes source = pattern(room, this->seed_ + static_cast<std::uint64_t>(i));
    Bytes packed(end - begin), back(room);
    for (std::size_t k = begin; k < end; ++k) {
      packed[k - begin] = source[static_cast<std::size_t>(at[k])];
      back[static_cast<std::size_t>(at[k])] = packed[k - begin];
    }
    const auto shift = static_cast<std::size_t>(i % 4 == 0 ? maker.between(0, 15) : 0);
    typename TestFixture::OnGpu from(this->driver(), source, shift), stream(this->driver(), Bytes(packed.size()), 0),
        to(this->driver(), Bytes(room), shift);
    this->copy(Side::packed(stream.data()), Side::of(from.data(), turned, 1), begin, end);
    this->copy(Side::of(to.data(), turned, 1), Side::packed(stream.data()), begin, end);
    finish(this->stream());
    ASSERT_EQ(stream.bytes(), packed) << "case " << i;
    ASSERT_EQ(to.bytes(), back) << "case " << i;
  }
}

// The kernel that turns tiles is chosen where it should be.
TEST(Tiling, IsForSidesThatCross) {
  kernel::Strided columns;
  columns.width = 8;
  columns.dimensions = 2;
  columns.dimension[0] = {64, 512};
  columns.dimension[1] = {64, 8};
  kernel::Strided rows = columns;
  rows.dimension[0] = {64, 8};
  rows.dimension[1] = {64, 1024};
  const auto laid = [](std::uintptr_t base, const kernel::Strided& shape) {
    return kernel::Laid{reinterpret_cast<void*>(base), shape, {}};
  };
  const auto packed = kernel::Laid::packed(reinterpret_cast<void*>(std::uintptr_t{4096}), 0);
  const std::size_t all = std::size_t{64} * 64 * 8;
  EXPECT_TRUE(kernel::tiling(packed, laid(65536, columns), 0, all));
  EXPECT_TRUE(kernel::tiling(laid(65536, columns), packed, 0, all));
  EXPECT_TRUE(kernel::tiling(laid(65536, columns), laid(1 << 20, rows), 0, all));
  EXPECT_FALSE(kernel::tiling(packed, laid(65536, rows), 0, all));
  EXPECT_FALSE(kernel::tiling(laid(1 << 20, columns), laid(65536, columns), 0, all));
  EXPECT_FALSE(kernel::tiling(packed, laid(65540, columns), 0, all)) << "not aligned to its words";
  const auto part = kernel::tiling(packed, laid(65536, columns), 100, all - 100);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->begin, 512U);
  EXPECT_EQ(part->end, all - 512);
  EXPECT_FALSE(kernel::tiling(packed, laid(65536, columns), 0, 512 * 7)) << "too narrow";
}

TEST(Word, IsTheWidestThatDividesEverything) {
  kernel::Strided shape;
  shape.width = 48;
  shape.dimensions = 1;
  shape.dimension[0] = {10, 64};
  const auto word = [&](std::uintptr_t packed, std::uintptr_t base, std::size_t begin, std::size_t end) {
    return kernel::word_for(kernel::Laid::packed(reinterpret_cast<void*>(packed), begin),
                            kernel::Laid{reinterpret_cast<void*>(base), shape, {}}, begin, end);
  };
  EXPECT_EQ(word(256, 512, 0, 480), 16U);
  EXPECT_EQ(word(264, 512, 0, 480), 8U);
  EXPECT_EQ(word(256, 516, 0, 480), 4U);
  EXPECT_EQ(word(256, 512, 2, 480), 2U);
  EXPECT_EQ(word(256, 512, 0, 479), 1U);
  shape.dimension[0].stride = -56;
  EXPECT_EQ(word(256, 512, 0, 480), 8U);
  shape.offset = 4;
  EXPECT_EQ(word(256, 512, 0, 480), 4U);
}

TYPED_TEST(MoverTest, AMillionBlocksOfOneByteInAnyOrder) {
  constexpr std::size_t blocks = 1'000'000;
  std::vector<std::int64_t> places(blocks);
  for (std::size_t i = 0; i < blocks; ++i) places[i] = static_cast<std::int64_t>(2 * i);
  Maker maker(this->seed_);
  std::shuffle(places.begin(), places.end(), maker.engine());
  std::vector<layout::Placed> placed;
  for (const auto place : places) placed.push_back({place, layout::block(0, 1)});
  const Layout scattered(layout::join(placed), 0, 2 * blocks);
  const Bytes source = pattern(2 * blocks, this->seed_);
  Bytes packed(blocks);
  for (std::size_t i = 0; i < blocks; ++i) packed[i] = source[static_cast<std::size_t>(places[i])];
  typename TestFixture::OnGpu from(this->driver(), source, 0);
  // With a list that is kept, at first use and after it; and without room for one.
  for (int round = 0; round < 3; ++round) {
    if (round == 2) this->make_mover(4096, 0);
    typename TestFixture::OnGpu to(this->driver(), Bytes(blocks), 0);
    this->copy(Side::packed(to.data()), Side::of(from.data(), scattered, 1), 0, blocks);
    finish(this->stream());
    ASSERT_EQ(to.bytes(), packed) << round;
  }
}

// Lists that are made and launched in several parts: of unequal runs as tables and as units, in a list and in a sequence of
// lists and loops, in numbers of both widths; whole at first use and a range, and whole again.
TYPED_TEST(MoverTest, ListsOfManyParts) {
  constexpr std::size_t room = std::size_t{6} << 20;
  const Bytes source = pattern(room, this->seed_);
  typename TestFixture::OnGpu from(this->driver(), source, 0);
  Maker maker(this->seed_);
  for (int i = 0; i < 12; ++i) {
    const bool sequence = i % 3 == 0, wide = i % 4 == 1, units = i % 2 == 0;
    const std::int64_t unit = std::int64_t{1} << maker.between(0, 3);
    std::int64_t at = 0;
    const auto list = [&](std::int64_t runs) {
      std::vector<layout::Piece> pieces;
      for (std::int64_t k = 0; k < runs && at < std::int64_t{room} - 12000; ++k) {
        const std::int64_t length = k % 1000 == 999 ? 9001 : unit * maker.between(1, units ? 12 : 4);
        pieces.push_back({at, static_cast<std::size_t>(units || k % 1000 != 999 ? length : unit)});
        at += length + unit * maker.between(1, 3);
        at = (at + unit - 1) / unit * unit;
      }
      if (units) std::shuffle(pieces.begin(), pieces.end(), maker.engine());
      return layout::join(pieces);
    };
    std::vector<layout::Placed> placed;
    placed.push_back({0, list(maker.between(20'000, 60'000))});
    if (sequence) {
      placed.push_back({at, layout::repeat(layout::block(0, static_cast<std::size_t>(unit)), 9000, 2 * unit)});
      at += 9000 * 2 * unit;
      placed.push_back({0, list(30'000)});
    }
    const auto near = layout::join(placed);
    placed = {{0, near}};
    if (wide) placed.push_back({std::int64_t{1} << 50, layout::block(0, 1)});
    const Layout layout(layout::join(placed), 0, wide ? std::int64_t{1} << 51 : at);
    const auto text =
        "case " + std::to_string(i) + ", unit " + std::to_string(unit) + ", seed " + std::to_string(this->seed_);
    const auto all = near->size;
    ASSERT_LE(at, std::int64_t{room}) << text;
    this->make_mover(std::size_t{16} << 20, 0);
    for (int round = 0; round < 3; ++round) {
      const bool part = round == 1 - i % 2;
      const auto begin = part ? static_cast<std::size_t>(maker.between(0, static_cast<std::int64_t>(all))) : 0;
      const auto end = part ? begin + (all - begin) / 2 : all;
      Bytes packed(end - begin), unpacked(room);
      layout.pack(packed.data(), source.data(), 1, begin, end);
      layout.unpack(unpacked.data(), packed.data(), 1, begin, end);
      typename TestFixture::OnGpu stream(this->driver(), Bytes(packed.size()), 0), to(this->driver(), Bytes(room), 0);
      this->copy(Side::packed(stream.data()), Side::of(from.data(), layout, 1), begin, end);
      this->copy(Side::of(to.data(), layout, 1), Side::packed(stream.data()), begin, end);
      finish(this->stream());
      ASSERT_EQ(stream.bytes(), packed) << text << ", round " << round;
      ASSERT_EQ(to.bytes(), unpacked) << text << ", round " << round;
    }
  }
}

// Displacements that 32 bits do not hold in bytes, though the memory is small.
TYPED_TEST(MoverTest, ExtentsAndDistancesOfAnySize) {
  constexpr std::int64_t far = std::int64_t{1} << 40;
  const Bytes source = pattern(4096, this->seed_);
  typename TestFixture::OnGpu from(this->driver(), source, 0), to(this->driver(), Bytes(64), 0);
  // One element of a huge extent; its own runs are near.
  const layout::Placed near[] = {{0, layout::block(0, 3)}, {100, layout::block(0, 5)}, {40, layout::block(0, 7)}};
  const Layout wide(layout::join(near), -far, 2 * far);
  this->copy(Side::packed(to.data()), Side::of(from.data(), wide, 1), 0, 15);
  // Runs that lie 2^40 bytes apart, of which only the first is asked for.
  const layout::Placed apart[] = {{0, layout::block(0, 3)}, {far, layout::block(0, 5)}, {40, layout::block(0, 7)}};
  const Layout farther(layout::join(apart), 0, 2 * far);
  this->copy(Side::packed(to.data() + 16), Side::of(from.data(), farther, 1), 0, 3);
  this->copy(Side::packed(to.data() + 24), Side::of(from.data(), farther, 1), 8, 15);
  // Nothing at all.
  const Layout nothing(layout::empty(), 0, far);
  this->copy(Side::packed(to.data()), Side::of(from.data(), nothing, 5), 0, 0);
  finish(this->stream());
  Bytes expected(64);
  std::copy_n(source.begin(), 3, expected.begin());
  std::copy_n(source.begin() + 100, 5, expected.begin() + 3);
  std::copy_n(source.begin() + 40, 7, expected.begin() + 8);
  std::copy_n(source.begin(), 3, expected.begin() + 16);
  std::copy_n(source.begin() + 40, 7, expected.begin() + 24);
  EXPECT_EQ(to.bytes(), expected);
}

// A type that is made anew for every message finds the list of its equals; so do many at once, within the bound.
TYPED_TEST(MoverTest, ListsAreFoundByContentAndGivenUp) {
  this->make_mover(64'000, 0);
  Maker maker(this->seed_);
  const Bytes source = pattern(200'000, this->seed_);
  typename TestFixture::OnGpu from(this->driver(), source, 0);
  for (int i = 0; i < 700; ++i) {
    Maker again(static_cast<std::uint64_t>(i % 30 == 0 ? 0 : i % 60));
    std::vector<layout::Placed> placed;
    std::int64_t at = 0;
    for (int k = 0; k < 400; ++k) {
      placed.push_back({at, layout::block(0, static_cast<std::size_t>(again.between(1, 40)))});
      at += 40 + again.between(1, 9);
    }
    const Layout layout(layout::join(placed), 0, at);
    Bytes packed(layout.size());
    layout.pack(packed.data(), source.data(), 1, 0, layout.size());
    typename TestFixture::OnGpu to(this->driver(), Bytes(layout.size()), 0);
    this->copy(Side::packed(to.data()), Side::of(from.data(), layout, 1), 0, layout.size());
    finish(this->stream());
    ASSERT_EQ(to.bytes(), packed) << "case " << i;
  }
}

// Types that are gone leave no more of their trees behind than so many bytes.
TYPED_TEST(MoverTest, TreesOfListsAreGivenUp) {
  this->make_mover(64'000, 0);
  constexpr std::int64_t runs = 200'000;
  constexpr std::size_t tree = runs * sizeof(layout::Run), bound = std::size_t{64} << 20;
  const Bytes source = pattern(3 * runs + 100, this->seed_);
  typename TestFixture::OnGpu from(this->driver(), source, 0), to(this->driver(), Bytes(64), 0);
  std::vector<std::weak_ptr<const layout::Node>> nodes;
  for (std::size_t i = 0; i < 2 * bound / tree; ++i) {
    std::vector<layout::Piece> pieces;
    for (std::int64_t k = 0; k < runs; ++k) pieces.push_back({3 * k + (k == static_cast<std::int64_t>(i) ? 1 : 0), 1});
    const auto node = layout::join(pieces);
    nodes.emplace_back(node);
    const Layout layout(node, 0, 3 * runs);
    this->copy(Side::packed(to.data()), Side::of(from.data(), layout, 1), 0, 64);
  }
  finish(this->stream());
  const auto kept = std::ranges::count_if(nodes, [](const auto& node) { return !node.expired(); });
  EXPECT_GT(kept, 0);
  EXPECT_LE(static_cast<std::size_t>(kept) * tree, bound);
}

TYPED_TEST(MoverTest, SeveralThreads) {
  this->make_mover(100'000, 0);
  std::vector<std::thread> threads;
  const Bytes source = pattern(100'000, this->seed_);
  typename TestFixture::OnGpu from(this->driver(), source, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const gpu::ContextScope scope(this->driver(), this->context());
      const gpu::Stream stream(this->driver());
      for (int i = 0; i < 60; ++i) {
        Maker maker(static_cast<std::uint64_t>(i % 2 == 0 ? i : 1000 * t + i));
        const Made made = maker.make(1500, 4, 3);
        if (made.reach > 100'000) continue;
        const Layout layout(made.node, 0, made.reach);
        Bytes packed(layout.size());
        layout.pack(packed.data(), source.data(), 1, 0, layout.size());
        typename TestFixture::OnGpu to(this->driver(), Bytes(layout.size()), 0);
        this->mover().copy(this->context(), stream, Side::packed(to.data()), Side::of(from.data(), layout, 1), 0,
                           layout.size());
        finish(stream);
        EXPECT_EQ(to.bytes(), packed) << "thread " << t << ", case " << i;
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// What a graph reads stays, however many lists come after it; a list that is not there yet is no reason to fail.
TYPED_TEST(MoverTest, CapturedCopies) {
  this->make_mover(20'000, 0);
  const Bytes source = pattern(100'000, this->seed_);
  typename TestFixture::OnGpu from(this->driver(), source, 0);
  const auto listed = [&](std::uint64_t which) {
    Maker maker(which);
    std::vector<layout::Placed> placed;
    std::int64_t at = 0;
    for (int k = 0; k < 300; ++k) {
      placed.push_back({at, layout::block(0, static_cast<std::size_t>(4 * maker.between(1, 10)))});
      at += 40 + 4 * maker.between(1, 9);
    }
    return Layout(layout::join(placed), 0, at);
  };
  for (const bool known : {true, false}) {
    const Layout layout = listed(known ? 1 : 2);
    Bytes packed(layout.size());
    layout.pack(packed.data(), source.data(), 1, 0, layout.size());
    typename TestFixture::OnGpu to(this->driver(), Bytes(layout.size()), 0);
    if (known) {
      this->copy(Side::packed(to.data()), Side::of(from.data(), layout, 1), 0, layout.size());
      finish(this->stream());
    }
    gpu::Capture capture(this->stream());
    this->copy(Side::packed(to.data()), Side::of(from.data(), layout, 1), 0, layout.size());
    const gpu::GraphExec graph = capture.end();
    for (std::uint64_t i = 10; i < 30; ++i) {
      const Layout other = listed(i);
      typename TestFixture::OnGpu elsewhere(this->driver(), Bytes(other.size()), 0);
      this->copy(Side::packed(elsewhere.data()), Side::of(from.data(), other, 1), 0, other.size());
      finish(this->stream());
    }
    write(this->driver(), to.data(), Bytes(layout.size()));
    graph.launch(this->stream());
    finish(this->stream());
    EXPECT_EQ(to.bytes(), packed);
  }
}

}  // namespace
}  // namespace crosslane::test
