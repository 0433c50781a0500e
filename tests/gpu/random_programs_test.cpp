// Random programs of copies and fills over several streams, ordered by events, words and graphs just enough to be free
// of races, compared with doing the same one after another.
#include "gpu/graph.h"
#include "machine.h"

#include <algorithm>
#include <cstdio>
#include <random>

namespace crosslane::test {
namespace {

struct Operation {
  std::size_t stream = 0;
  bool fills = false;
  unsigned char value = 0;
  std::size_t to = 0, from = 0;  // buffers
  std::size_t to_offset = 0, from_offset = 0, bytes = 0;
};

constexpr std::size_t buffer_bytes = 5000;

// Who used a buffer since its last write, and who wrote it: what the next user must wait for.
struct Uses {
  std::vector<std::size_t> readers;  // operations
  std::vector<std::size_t> writer;   // at most one
};

template <class Kind>
class RandomProgramsTest : public MachineTest<Kind> {};
TYPED_TEST_SUITE(RandomProgramsTest, Machines, MachineNames);

class Program {
 public:
  Program(const gpu::Driver& driver, std::uint64_t seed_value) : driver_(driver), random_(seed_value) {
    const std::size_t streams = 1 + below(5), buffers = 2 + below(5);
    for (std::size_t at = 0; at < streams; ++at) streams_.emplace_back(driver);
    for (std::size_t at = 0; at < buffers; ++at) {
      model_.push_back(pattern(buffer_bytes, random_()));
      // Every third buffer is pinned host memory, the others are the GPU's.
      if (at % 3 == 2) {
        pinned_.emplace_back(driver, buffer_bytes);
        addresses_.push_back(pinned_.back().data());
      } else {
        device_.emplace_back(driver, buffer_bytes);
        addresses_.push_back(device_.back().data());
      }
      write(driver, addresses_.back(), model_.back());
    }
    const std::size_t operations = 1 + below(40);
    for (std::size_t at = 0; at < operations; ++at) {
      Operation one;
      one.stream = below(streams);
      one.fills = below(4) == 0;
      one.value = static_cast<unsigned char>(random_());
      one.to = below(buffers);
      one.from = (one.to + 1 + below(buffers - 1)) % buffers;
      one.bytes = 1 + below(below(2) == 0 ? 64 : 3000);
      one.to_offset = below(buffer_bytes - one.bytes);
      one.from_offset = below(buffer_bytes - one.bytes);
      operations_.push_back(one);
    }
  }

  void run(bool captured) {
    if (!captured) {
      enqueue(false);
      apply();
      return;
    }
    gpu::Event fork(driver_);
    gpu::Capture capture(streams_[0]);
    fork.record(streams_[0]);
    for (std::size_t at = 1; at < streams_.size(); ++at) fork.make_wait(streams_[at]);
    enqueue(true);
    std::vector<gpu::Event> joins;
    for (std::size_t at = 1; at < streams_.size(); ++at) {
      joins.emplace_back(driver_);
      joins.back().record(streams_[at]);
      joins.back().make_wait(streams_[0]);
    }
    const gpu::GraphExec graph = capture.end();
    const std::size_t launches = 1 + below(3);
    for (std::size_t at = 0; at < launches; ++at) {
      graph.launch(streams_[0]);
      apply();
    }
    finish(streams_[0]);
  }

  void check(std::uint64_t seed_value) {
    for (const gpu::Stream& stream : streams_) finish(stream);
    for (std::size_t at = 0; at < addresses_.size(); ++at) {
      ASSERT_EQ(read(driver_, addresses_[at], buffer_bytes), model_[at]) << "seed " << seed_value << " buffer " << at;
    }
  }

 private:
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }

  void enqueue(bool capturing) {
    std::vector<Uses> uses(addresses_.size());
    std::vector<gpu::Event> done;  // of each operation
    std::vector<std::uint64_t> words;
    if (!capturing) {
      markers_.clear();
      for (std::size_t at = 0; at < streams_.size(); ++at) markers_.push_back(std::make_unique<gpu::Marker>(driver_));
    }
    for (std::size_t at = 0; at < operations_.size(); ++at) {
      const Operation& one = operations_[at];
      const gpu::Stream& stream = streams_[one.stream];
      std::vector<std::size_t> before = uses[one.to].readers;
      before.insert(before.end(), uses[one.to].writer.begin(), uses[one.to].writer.end());
      if (!one.fills) before.insert(before.end(), uses[one.from].writer.begin(), uses[one.from].writer.end());
      for (const std::size_t earlier : before) {
        if (operations_[earlier].stream == one.stream) continue;
        // Words instead of events now and then; within a graph only events make an edge.
        if (!capturing && below(3) == 0) {
          gpu::check(driver_,
                     driver_.stream_wait_value_64(stream.view().handle(),
                                                  markers_[operations_[earlier].stream]->device_address(),
                                                  words[earlier], CU_STREAM_WAIT_VALUE_GEQ),
                     "cuStreamWaitValue64");
        } else {
          done[earlier].make_wait(stream);
        }
      }
      if (one.fills) {
        gpu::fill_async(addresses_[one.to] + one.to_offset, one.value, one.bytes, stream);
      } else {
        gpu::copy_async(addresses_[one.to] + one.to_offset, addresses_[one.from] + one.from_offset, one.bytes, stream);
        uses[one.from].readers.push_back(at);
      }
      uses[one.to] = {{}, {at}};
      done.emplace_back(driver_);
      done.back().record(stream);
      words.push_back(capturing ? 0 : markers_[one.stream]->post(stream));
    }
  }

  void apply() {
    for (const Operation& one : operations_) {
      const auto to = model_[one.to].begin() + static_cast<std::ptrdiff_t>(one.to_offset);
      if (one.fills) {
        std::fill_n(to, one.bytes, std::byte{one.value});
      } else {
        std::copy_n(model_[one.from].begin() + static_cast<std::ptrdiff_t>(one.from_offset), one.bytes, to);
      }
    }
  }

  const gpu::Driver& driver_;
  std::mt19937_64 random_;
  std::vector<gpu::Stream> streams_;
  std::vector<gpu::Buffer> device_;
  std::vector<gpu::PinnedBuffer> pinned_;
  std::vector<std::byte*> addresses_;
  std::vector<std::vector<std::byte>> model_;
  std::vector<std::unique_ptr<gpu::Marker>> markers_;
  std::vector<Operation> operations_;
};

TYPED_TEST(RandomProgramsTest, EqualTheSequentialModel) {
  const std::uint64_t first = seed();
  std::printf("seeds %llu to %llu (CROSSLANE_TEST_SEED repeats the first)\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + 59));
  for (std::uint64_t seed_value = first; seed_value < first + 60; ++seed_value) {
    Program program(this->driver(), seed_value);
    program.run(false);
    program.check(seed_value);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(RandomProgramsTest, EqualTheSequentialModelAsGraphs) {
  const std::uint64_t first = seed();
  std::printf("seeds %llu to %llu (CROSSLANE_TEST_SEED repeats the first)\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + 59));
  for (std::uint64_t seed_value = first; seed_value < first + 60; ++seed_value) {
    Program program(this->driver(), seed_value);
    program.run(true);
    program.check(seed_value);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace crosslane::test
