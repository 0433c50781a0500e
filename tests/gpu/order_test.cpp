// What is ordered after what: streams, events, words, host functions, on emulated and real GPUs alike.
#include "gpu/copy_list.h"
#include "machine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace crosslane::test {
namespace {

template <class Kind>
class OrderTest : public MachineTest<Kind> {};
TYPED_TEST_SUITE(OrderTest, Machines, MachineNames);

// Holds a stream until open() is called: a word that the stream waits for.
class Gate {
 public:
  explicit Gate(const gpu::Driver& driver)
      : driver_(driver), memory_(driver, 64), word_(new(memory_.data()) std::atomic<std::uint64_t>(0)) {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void hold(gpu::StreamView stream) {
    gpu::check(driver_,
               driver_.stream_wait_value_64(stream.handle(), memory_.device_address(), 1, CU_STREAM_WAIT_VALUE_GEQ),
               "cuStreamWaitValue64");
  }
  void open() { word_->store(1, std::memory_order_release); }

 private:
  const gpu::Driver& driver_;
  gpu::PinnedBuffer memory_;
  std::atomic<std::uint64_t>* word_;
};

TYPED_TEST(OrderTest, StreamsRunLaterAndInOrder) {
  const gpu::Stream stream(this->driver());
  gpu::Marker marker(this->driver());
  Gate gate(this->driver());
  gate.hold(stream);
  const gpu::PinnedBuffer target(this->driver(), 4);
  std::uint64_t last = 0;
  for (unsigned char value = 1; value < 100; ++value) {
    gpu::fill_async(target.data(), value, 4, stream);
    last = marker.post(stream);
  }
  EXPECT_EQ(last, 99U);
  EXPECT_FALSE(marker.reached(1)) << "the stream is held, the calls must not be";
  EXPECT_FALSE(stream.view().idle());
  gate.open();
  finish(stream);
  EXPECT_TRUE(marker.idle());
  EXPECT_TRUE(stream.view().idle());
  EXPECT_EQ(target.data()[3], std::byte{99});
}

TYPED_TEST(OrderTest, ShortStoresComeInOrder) {
  const gpu::Stream stream(this->driver());
  const gpu::Buffer device(this->driver(), 64);
  const gpu::PinnedBuffer host(this->driver(), 64);
  gpu::Marker marker(this->driver());
  std::vector<std::array<std::byte, 24>> sources(300);  // each stays until its stores are past
  std::array<std::byte, 64> expected{};
  gpu::fill_async(device.data(), 0x77, 64, stream);
  expected.fill(std::byte{0x77});
  const std::uint64_t seed_value = seed();
  std::mt19937_64 random(seed_value);
  Gate gate(this->driver());
  gpu::Stores stores;
  int added = 0;
  for (int round = 0; round < 300; ++round) {
    auto& source = sources[static_cast<std::size_t>(round)];
    for (std::byte& byte : source) byte = static_cast<std::byte>(random());
    const std::size_t bytes = random() % 21, at = random() % 40;
    const bool whole = bytes != 0 && bytes % 4 == 0 && at % 4 == 0;
    const bool few_words = bytes <= 8 || (bytes == 12) || (bytes == 16 && at % 8 == 0);
    const bool fits = stores.add(device.data() + at, source.data(), bytes);
    EXPECT_EQ(fits, whole && few_words && bytes <= gpu::Stores::most_bytes)
        << bytes << " bytes at " << at << ", seed " << seed_value;
    if (fits) std::copy_n(source.begin(), bytes, expected.begin() + static_cast<std::ptrdiff_t>(at));
    if (fits && ++added % 9 == 0) {
      if (added % 2 == 0) {
        stores.enqueue(stream);
      } else {
        const std::uint64_t value = marker.post(stream, stores);
        while (!marker.reached(value)) std::this_thread::yield();
      }
      EXPECT_TRUE(stores.empty());
    }
  }
  gate.hold(stream);
  std::array<std::byte, 8> last{};
  last.fill(std::byte{0x12});
  ASSERT_TRUE(stores.add(device.data() + 8, last.data(), 8));
  std::fill_n(expected.begin() + 8, 8, std::byte{0x12});
  const std::uint64_t value = marker.post(stream, stores);
  gpu::copy_async(host.data(), device.data(), 64, stream);
  EXPECT_FALSE(marker.reached(value));
  gate.open();
  finish(stream);
  EXPECT_TRUE(marker.reached(value));
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), host.data())) << "seed " << seed_value;
  // As many as go together, and no more.
  int together = 0;
  while (stores.add(device.data(), last.data(), 8)) ASSERT_LT(++together, 1000);
  EXPECT_GT(together, 8);
  stores.enqueue(stream);
  EXPECT_TRUE(stores.add(device.data(), last.data(), 8));
  stores.enqueue(stream);
  finish(stream);
}

// Random copies between memories of every kind, gathered and enqueued at once, with words behind them.
TYPED_TEST(OrderTest, CopiesAndWordsGoTogether) {
  const std::uint64_t seed_value = seed();
  std::mt19937_64 random(seed_value);
  constexpr std::size_t room = 1 << 16, slots = 100;
  const gpu::Stream stream(this->driver());
  const gpu::Buffer device(this->driver(), room), other(this->driver(), room);
  const gpu::PinnedBuffer pinned(this->driver(), room), words(this->driver(), slots * sizeof(std::uint64_t));
  std::vector<std::byte*> memories{device.data(), other.data(), pinned.data()};
  for (std::size_t i = 0; i < slots; ++i) new (words.data() + i * 8) std::atomic<std::uint64_t>(0);
  const auto word = [&](std::size_t i) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(words.data() + i * sizeof(std::uint64_t));
  };
  std::vector<std::byte> expected(3 * room), actual(room);
  gpu::CopyList list;
  for (std::uint64_t round = 1; round <= 20; ++round) {
    for (std::size_t m = 0; m < 3; ++m) {
      for (std::size_t i = 0; i < room; ++i) actual[i] = expected[m * room + i] = static_cast<std::byte>(random());
      gpu::copy_async(memories[m], actual.data(), room, stream);
      finish(stream);
    }
    Gate gate(this->driver());
    gate.hold(stream);
    const std::size_t copies = random() % 40, half = room / 2;
    std::size_t to = half;  // of what is read, nothing is written
    for (std::size_t i = 0; i < copies; ++i) {
      // Not from host to host memory: such a copy, where it is the only one, waits for the stream, which is held (CUDA driver API, "API
      // synchronization behavior").
      const std::size_t bytes = random() % 700, into = random() % 3, out = random() % (into == 2 ? 2 : 3),
                        from = random() % (half - 700);
      list.add(memories[into] + to, memories[out] + from, bytes);
      std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(out * room + from), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(into * room + to));
      to += bytes;
    }
    list.enqueue(stream);
    list.clear();
    std::vector<gpu::WordWrite> writes;
    const std::size_t written = random() % (slots + 1);
    for (std::size_t i = 0; i < written; ++i)  // some by host functions, as where a GPU cannot write them
      writes.push_back({word(i), random() % 8 == 0 ? 0 : words.device_address() + i * sizeof(std::uint64_t), round});
    gpu::write_words(stream, writes);
    for (std::size_t i = 0; i < written; ++i) EXPECT_LT(word(i)->load(), round) << "behind the gate";
    gate.open();
    for (std::size_t i = 0; i < written; ++i)
      while (word(i)->load(std::memory_order_acquire) < round) std::this_thread::yield();
    finish(stream);
    for (std::size_t m = 0; m < 3; ++m) {
      gpu::copy_async(actual.data(), memories[m], room, stream);
      finish(stream);
      ASSERT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin() + static_cast<std::ptrdiff_t>(m * room)))
          << "memory " << m << ", seed " << seed_value;
    }
  }
}

TYPED_TEST(OrderTest, EventsOrderStreams) {
  const gpu::Stream first(this->driver()), second(this->driver());
  const gpu::PinnedBuffer from(this->driver(), 8), to(this->driver(), 8);
  const gpu::Buffer middle(this->driver(), 8);
  gpu::EventPool pool(this->driver());
  Gate gate(this->driver());
  gate.hold(first);
  from.data()[0] = std::byte{42};
  to.data()[0] = std::byte{0};
  gpu::copy_async(middle.data(), from.data(), 8, first);
  gpu::order_after(pool, first, second);
  gpu::copy_async(to.data(), middle.data(), 8, second);
  EXPECT_FALSE(second.view().idle());
  gate.open();
  finish(second);
  EXPECT_EQ(to.data()[0], std::byte{42});
}

TYPED_TEST(OrderTest, AWaitIsForTheRecordBeforeIt) {
  const gpu::Stream held(this->driver()), free_stream(this->driver());
  gpu::Event event(this->driver());
  EXPECT_TRUE(event.done()) << "never recorded";
  event.make_wait(free_stream);  // nothing to wait for
  finish(free_stream);
  event.record(free_stream);
  finish(free_stream);
  EXPECT_TRUE(event.done());
  Gate gate(this->driver());
  event.make_wait(free_stream);
  gate.hold(held);
  event.record(held);  // a newer record does not hold the wait before it
  EXPECT_FALSE(event.done());
  finish(free_stream);
  gate.open();
  finish(held);
  EXPECT_TRUE(event.done());
}

TYPED_TEST(OrderTest, TimeIsMeasured) {
  const gpu::Stream stream(this->driver());
  gpu::Event start(this->driver(), gpu::Event::Use::timing), end(this->driver(), gpu::Event::Use::timing);
  start.record(stream);
  const gpu::Buffer buffer(this->driver(), 1 << 20);
  gpu::fill_async(buffer.data(), 1, 1 << 20, stream);
  end.record(stream);
  finish(stream);
  EXPECT_GE(gpu::milliseconds_between(this->driver(), start, end), 0.0F);
  const gpu::Event untimed(this->driver());
  EXPECT_THROW(static_cast<void>(gpu::milliseconds_between(this->driver(), untimed, end)), base::Error);
}

TYPED_TEST(OrderTest, TheLegacyStreamWaitsForBlockingStreams) {
  CUstream blocking = nullptr;
  ASSERT_CUDA(this->driver().stream_create_with_priority(&blocking, CU_STREAM_DEFAULT, 0));
  const auto view = gpu::StreamView::of(this->driver(), blocking);
  const auto legacy = gpu::StreamView::legacy(this->driver());
  const gpu::PinnedBuffer word(this->driver(), 4);
  {
    Gate gate(this->driver());
    gate.hold(view);
    gpu::fill_async(word.data(), 1, 4, view);
    EXPECT_FALSE(legacy.idle());
    gpu::fill_async(word.data(), 2, 4, legacy);
    gpu::fill_async(word.data(), 3, 4, view);
    const gpu::Stream apart(this->driver());  // non-blocking: not held
    finish(apart);
    EXPECT_FALSE(legacy.idle());
  }
  finish(view);
  EXPECT_EQ(word.data()[0], std::byte{3});
  EXPECT_TRUE(legacy.idle());
  ASSERT_CUDA(this->driver().stream_destroy(blocking));
  EXPECT_THROW(static_cast<void>(gpu::StreamView::of(this->driver(), nullptr)), base::Error);
}

TYPED_TEST(OrderTest, EachThreadHasItsDefaultStream) {
  const auto mine = gpu::StreamView::per_thread(this->driver());
  Gate gate(this->driver());
  gate.hold(mine);
  std::thread([&] {
    const gpu::ContextScope scope(this->driver(), this->context());
    const auto other = gpu::StreamView::per_thread(this->driver());
    const gpu::PinnedBuffer word(this->driver(), 4);
    gpu::fill_async(word.data(), 5, 4, other);
    finish(other);
    EXPECT_EQ(word.data()[0], std::byte{5});
    // The held thread's stream is still held: the memory goes after it. (Freeing waits for the device.)
    gate.open();
  }).join();
  finish(mine);
}

TYPED_TEST(OrderTest, WordsAreComparedInFourWays) {
  struct Case {
    unsigned flags;
    std::uint32_t before, after, wanted;
  };
  for (const Case& one : {Case{CU_STREAM_WAIT_VALUE_GEQ, 4, 6, 5}, Case{CU_STREAM_WAIT_VALUE_GEQ, 0xfffffff0, 3, 1},
                          Case{CU_STREAM_WAIT_VALUE_EQ, 8, 7, 7}, Case{CU_STREAM_WAIT_VALUE_AND, 0xe, 0x11, 0x1},
                          Case{CU_STREAM_WAIT_VALUE_NOR, 0x0fffffff, 0x0ffffffe, 0xf0000000}}) {
    if (one.flags == CU_STREAM_WAIT_VALUE_NOR &&
        gpu::device_attribute(this->driver(), CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 0) == 0)
      continue;
    const gpu::PinnedBuffer memory(this->driver(), 64);
    auto* const word = new (memory.data()) std::atomic<std::uint32_t>(one.before);
    const gpu::Stream waits(this->driver()), writes(this->driver());
    ASSERT_CUDA(
        this->driver().stream_wait_value_32(waits.view().handle(), memory.device_address(), one.wanted, one.flags));
    gpu::Event passed(this->driver());
    passed.record(waits);
    EXPECT_FALSE(passed.done()) << one.flags;
    ASSERT_CUDA(this->driver().stream_write_value_32(writes.view().handle(), memory.device_address(), one.after, 0));
    finish(waits);
    EXPECT_EQ(word->load(), one.after);
  }
}

TYPED_TEST(OrderTest, HostFunctionsRunInOrder) {
  const gpu::Stream stream(this->driver());
  std::vector<int> seen;
  struct Call {
    std::vector<int>* seen;
    int number;
  };
  std::vector<Call> calls;
  for (int number = 0; number < 50; ++number) calls.push_back({&seen, number});
  for (Call& call : calls) {
    ASSERT_CUDA(this->driver().launch_host_func(
        stream.view().handle(),
        [](void* data) { static_cast<Call*>(data)->seen->push_back(static_cast<Call*>(data)->number); }, &call));
  }
  finish(stream);
  ASSERT_EQ(seen.size(), 50U);
  for (int number = 0; number < 50; ++number) EXPECT_EQ(seen[static_cast<std::size_t>(number)], number);
}

TYPED_TEST(OrderTest, FreeingWaitsForTheDevice) {
  const gpu::Stream stream(this->driver());
  gpu::Marker marker(this->driver());
  auto buffer = std::make_unique<gpu::Buffer>(this->driver(), 4 << 20);
  std::atomic<bool> freeing{false};
  std::uint64_t value = 0;
  auto gate = std::make_unique<Gate>(this->driver());
  gate->hold(stream);
  gpu::fill_async(buffer->data(), 1, 4 << 20, stream);
  value = marker.post(stream);
  std::thread frees([&] {
    const gpu::ContextScope scope(this->driver(), this->context());
    freeing.store(true);
    buffer.reset();
    EXPECT_TRUE(marker.reached(value)) << "freed while the stream still used it";
  });
  while (!freeing.load()) std::this_thread::yield();
  gate->open();
  frees.join();
}

TYPED_TEST(OrderTest, ARecordOfAContextIsOfAllItsStreams) {
  const gpu::Stream stream(this->driver());  // a non-blocking one
  gpu::Event all(this->driver()), none(this->driver());
  {
    Gate gate(this->driver());
    if (!all.record_context()) GTEST_SKIP() << "the driver is older than CUDA 12.5";
    EXPECT_TRUE(all.done()) << "nothing is under way";
    gate.hold(stream);
    EXPECT_TRUE(all.done()) << "what was enqueued behind it does not count";
    ASSERT_TRUE(all.record_context());
    EXPECT_TRUE(gpu::StreamView::legacy(this->driver()).idle());
    EXPECT_FALSE(all.done());
    none.record(gpu::StreamView::legacy(this->driver()));
    gpu::Stream another(this->driver());
    all.make_wait(another);
    gate.open();
    finish(another);
  }
  EXPECT_TRUE(all.done());
  EXPECT_TRUE(none.done());
  all.record(stream);
  finish(stream);
  EXPECT_TRUE(all.done()) << "a stream's record takes its place";
}

TYPED_TEST(OrderTest, DestroyedStreamsStillRun) {
  gpu::Marker marker(this->driver());
  Gate gate(this->driver());
  std::uint64_t value = 0;
  {
    const gpu::Stream stream(this->driver());
    gate.hold(stream);
    value = marker.post(stream);
  }
  EXPECT_FALSE(marker.reached(value));
  gate.open();
  while (!marker.reached(value)) std::this_thread::yield();
}

}  // namespace
}  // namespace crosslane::test
