// Copies from elements of which the copier knows a list in the owner's GPU memory alone (lane::Listed): random layouts, whole and in ranges,
// to the packed stream, to the same layout and to others, to the host, against loops on the host; and lists that are held for others.
#include "mover_fixture.h"

namespace crosslane::test {
namespace {

template <class Kind>
class FollowTest : public MoverTest<Kind> {
 protected:
  /// Makes the list, as a first copy does, which may read it where it was made; the second copy comes after its upload.
  std::optional<lane::Listed> list(const Elements& element, const typename MoverTest<Kind>::OnGpu& memory) {
    const std::size_t bytes = element.layout.packed_size(element.count);
    typename MoverTest<Kind>::OnGpu packed(this->driver(), Bytes(bytes), 0);
    for (int i = 0; i < 2; ++i) {
      this->copy(Side::packed(packed.data()), Side::of(memory.data(), element.layout, element.count), 0, bytes);
      finish(this->stream());
    }
    return this->mover().listed(this->context(), element.layout, element.count);
  }
  /// Another rank's engine.
  Mover& reader() {
    if (!reader_) {
      reader_settings_.list_limit = std::size_t{16} << 20;
      reader_.emplace([this]() -> const gpu::Driver& { return this->driver(); }, *this->pool_, reader_settings_);
    }
    return *reader_;
  }

 private:
  base::Settings reader_settings_;
  std::optional<Mover> reader_;
};
TYPED_TEST_SUITE(FollowTest, Machines, MachineNames);

TYPED_TEST(FollowTest, RandomLayouts) {
  Maker maker(this->seed_);
  int packed_along_units = 0, packed_by_table = 0, mirrored = 0, by_tables = 0, by_windows = 0;
  for (int i = 0; i < 500; ++i) {
    const std::int64_t units_of[] = {1, 2, 4, 8, 12, 16, 64};
    const std::int64_t unit = units_of[maker.between(0, 6)];
    const std::int64_t units = maker.between(2, i % 10 == 0 ? 4000 : 300);
    const Elements from = elements_of(maker, units, unit, static_cast<int>(maker.between(1, 4)));
    const Bytes source = pattern(from.room, this->seed_ + static_cast<std::uint64_t>(i));
    typename TestFixture::OnGpu memory(this->driver(), source, static_cast<std::size_t>(maker.between(0, 15)));
    auto list = this->list(from, memory);
    if (!list) continue;
    ASSERT_FALSE(from.layout.as_strided(from.count)) << "a list of what needs none";
    // Sent with the address of its lowest byte.
    const auto low = static_cast<std::int64_t>(maker.between(0, 64));
    list->loops.offset -= low;
    const std::byte* const address = memory.data() + low;

    const std::size_t all = from.layout.packed_size(from.count);
    const std::size_t end =
        i % 3 == 0 ? static_cast<std::size_t>(maker.between(1, static_cast<std::int64_t>(all))) : all;
    const std::size_t begin =
        i % 3 == 0 ? static_cast<std::size_t>(maker.between(0, static_cast<std::int64_t>(end) - 1)) : 0;
    const auto from_at = offsets_of(from.layout, from.count);
    const auto follow = [&](const Side& to, Memory memory_kind = Memory::gpu) {
      this->reader().follow(this->context(), this->stream(), to, address, *list, begin, end, memory_kind);
      finish(this->stream());
    };
    const auto text = "case " + std::to_string(i) + ", bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                      " of " + std::to_string(all) + ", unit " + std::to_string(unit);

    Bytes packed(end - begin);
    for (std::size_t k = begin; k < end; ++k) packed[k - begin] = source[static_cast<std::size_t>(from_at[k])];
    typename TestFixture::OnGpu stream(this->driver(), Bytes(packed.size()),
                                       static_cast<std::size_t>(maker.between(0, 15)));
    follow(Side::packed(stream.data()));
    ASSERT_EQ(stream.bytes(), packed) << "packed, " << text;
    ++(list->run_bytes != 0 ? packed_by_table : packed_along_units);

    // The same layout, which the other rank made anew; more or fewer of it do not matter; or another one.
    const bool same = i % 2 == 0;
    const std::int64_t count = from.count + (i % 4 == 0 ? maker.between(0, 2) : 0);
    const Elements to = same ? Elements{Layout(from.layout.node(), 0, from.layout.extent()), count,
                                        static_cast<std::size_t>(from.layout.extent() * count)}
                             : elements_of(maker, units, unit, static_cast<int>(maker.between(0, 4)));
    const auto to_at = offsets_of(to.layout, to.count);
    Bytes expected(to.room);
    typename TestFixture::OnGpu target(this->driver(), expected, static_cast<std::size_t>(maker.between(0, 15)));
    follow(Side::of(target.data(), to.layout, to.count));
    for (std::size_t k = begin; k < end; ++k) expected[static_cast<std::size_t>(to_at[k])] = packed[k - begin];
    ASSERT_EQ(target.bytes(), expected) << (same ? "the same, " : "another, ") << text;
    ++(same ? mirrored : list->run_bytes != 0 ? by_tables : by_windows);

    // Memory of the host, mapped and not.
    gpu::PinnedBuffer pinned(this->driver(), packed.size());
    follow(Side::packed(pinned.data()), Memory::mapped);
    ASSERT_TRUE(std::equal(packed.begin(), packed.end(), pinned.data())) << "to pinned memory, " << text;
    Bytes ordinary(packed.size());
    follow(Side::packed(ordinary.data()), Memory::host);
    ASSERT_EQ(ordinary, packed) << "to the host, " << text;
    ASSERT_EQ(memory.bytes(), source);
  }
  // All ways were gone.
  EXPECT_TRUE(packed_along_units > 5 && packed_by_table > 5 && mirrored > 5 && by_tables > 5 && by_windows > 0)
      << packed_along_units << ' ' << packed_by_table << ' ' << mirrored << ' ' << by_tables << ' ' << by_windows;
}

// Layouts that differ in one run alone, far inside a long list, are not taken for the same; and more than one window holds.
TYPED_TEST(FollowTest, OneRunMakesADifference) {
  Maker maker(this->seed_);
  constexpr std::int64_t runs = 40'000;
  const auto other = maker.between(1000, runs - 1000);
  const auto make = [&](bool moved) {
    std::vector<layout::Placed> placed;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < runs; ++i) {
      const std::int64_t length = 8 + 8 * (i * 7 % 13);
      placed.push_back({at + (moved && i == other ? 8 : 0), layout::block(0, static_cast<std::size_t>(length))});
      at += length + 16;
    }
    return Elements{Layout(layout::join(placed), 0, at), 1, static_cast<std::size_t>(at)};
  };
  const Elements from = make(false), to = make(true);
  const Bytes source = pattern(from.room, this->seed_);
  typename TestFixture::OnGpu memory(this->driver(), source, 0), target(this->driver(), Bytes(to.room), 0);
  const auto list = this->list(from, memory);
  ASSERT_TRUE(list && list->run_bytes == 0);
  const std::size_t all = from.layout.packed_size(1);
  ASSERT_GT(all, lane::Lists::window_bytes);
  this->reader().follow(this->context(), this->stream(), Side::of(target.data(), to.layout, 1), memory.data(), *list, 0,
                        all);
  finish(this->stream());
  const auto from_at = offsets_of(from.layout, 1), to_at = offsets_of(to.layout, 1);
  Bytes expected(to.room);
  for (std::size_t k = 0; k < all; ++k)
    expected[static_cast<std::size_t>(to_at[k])] = source[static_cast<std::size_t>(from_at[k])];
  EXPECT_EQ(target.bytes(), expected);
}

// While somebody else may read a list, no other one takes its place.
TYPED_TEST(FollowTest, HeldListsStay) {
  this->make_mover(std::size_t{64} << 10, 0);
  Maker maker(this->seed_);
  const auto make = [&](std::int64_t gap) {
    std::vector<layout::Placed> placed;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < 3000; ++i) {
      const std::int64_t length = 8 + 8 * ((i + gap) * 7 % 13);
      placed.push_back({at, layout::block(0, static_cast<std::size_t>(length))});
      at += length + 8 * gap;
    }
    return Elements{Layout(layout::join(placed), 0, at), 1, static_cast<std::size_t>(at)};
  };
  const Elements held = make(1);
  const Bytes source = pattern(held.room, this->seed_);
  typename TestFixture::OnGpu memory(this->driver(), source, 0);
  auto list = this->list(held, memory);
  ASSERT_TRUE(list);
  const auto at = offsets_of(held.layout, 1);
  Bytes expected(at.size());
  for (std::size_t k = 0; k < at.size(); ++k) expected[k] = source[static_cast<std::size_t>(at[k])];
  const std::byte* const place = list->data;
  for (std::int64_t gap = 2; gap < 30; ++gap) {
    const Elements other = make(gap);
    typename TestFixture::OnGpu there(this->driver(), Bytes(other.room), 0);
    if (gap == 15) {
      typename TestFixture::OnGpu packed(this->driver(), Bytes(expected.size()), 0);
      this->reader().follow(this->context(), this->stream(), Side::packed(packed.data()), memory.data(), *list, 0,
                            expected.size());
      finish(this->stream());
      ASSERT_EQ(packed.bytes(), expected);
      list->held.reset();
    }
    const auto new_list = this->list(other, there);
    // There is room for two of them.
    if (new_list && new_list->data == place) {
      EXPECT_GE(gap, 15);
      return;
    }
  }
  ADD_FAILURE() << "no list took the place of one that nobody held";
}

}  // namespace
}  // namespace crosslane::test
