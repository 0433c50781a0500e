// Kernels that stay: calls that members ring for, and calls that others launch meanwhile, in one order, against the host; and how kernels leave.
#include "team_fixture.h"

#include "kernel/ringing.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <new>
#include <span>
#include <thread>
#include <vector>

namespace crosslane::test {
namespace {

using kernel::Bell;

// A member's host, as far as ringing goes.
class Ringer {
 public:
  // `rung`: so often it has been before, for a window remembers.
  Ringer(const gpu::Driver& driver, std::uint64_t nanoseconds, std::uint64_t rung)
      : memory_(driver, sizeof(Bell)), bell_(new(memory_.data()) Bell{}), nanoseconds_(nanoseconds), rung_(rung) {}

  // What the next launch is given; it stays.
  kernel::Stay launch(bool idle = false) {
    stays = true;
    return {reinterpret_cast<Bell*>(memory_.device_address()), ++rung_, nanoseconds_, idle ? std::uint64_t{1} : 0};
  }
  template <class Parameters>
  void ring(const Parameters& p) {
    write(kernel::ToldCall(p, p.frame.done_value, p.frame.members).words());
  }
  void send_away() {
    if (stays) write({});
    stays = false;
  }
  [[nodiscard]] std::uint64_t state() const { return std::atomic_ref(bell_->state).load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t rung() const { return rung_; }

  bool stays = false;

 private:
  void write(std::span<const std::uint64_t> call) {
    kernel::write_ring(*bell_, ++rung_, call, kernel::told_room(kernel::most_members), 0);
  }

  gpu::PinnedBuffer memory_;
  Bell* bell_;
  std::uint64_t nanoseconds_, rung_;
};

template <class Kind>
class TeamLingeringTest : public TeamTest<Kind> {
 protected:
  static constexpr std::uint64_t for_long = 20'000'000'000;  // a test that fails is not to hang

  std::deque<Ringer> ringers(Members& team, std::uint64_t nanoseconds) {
    std::deque<Ringer> made;
    for (std::uint32_t m = 0; m < team.count(); ++m) {
      const auto scope = team.enter(m);
      made.emplace_back(this->driver(), nanoseconds, before_ += 1000);
    }
    return made;
  }

  // Each member carries out a call with such parameters in its own way, then all wait for its end.
  template <class Parameters, class Fill, class Launch>
  void call(Members& team, std::deque<Ringer>& ringers,
            kernel::LingeringKernel<Parameters> (*lingering)(const kernel::Kernels&), unsigned blocks, Fill fill,
            Launch launch) {
    std::vector<std::uint64_t> values(team.count());
    for (const std::uint32_t m : this->order(team.count())) {
      const auto scope = team.enter(m);
      Parameters p{};
      p.frame = team.frame(m);
      values[m] = p.frame.done_value;
      fill(p, m);
      Ringer& ringer = ringers[m];
      if (ringer.stays && this->between(0, 3) != 0) {
        ringer.ring(p);
        ++rung_;
        continue;
      }
      ringer.send_away();
      if (this->between(0, 3) != 0) {
        lingering(team.kernels(m)).launch(team.stream(m), p, blocks, ringer.launch());
      } else {
        launch(team.kernels(m), team.stream(m), p);
      }
    }
    for (std::uint32_t m = 0; m < team.count(); ++m) {
      const auto begin = std::chrono::steady_clock::now();
      while (team.done(m) < values[m]) {
        ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{60})
            << "member " << m << " has not ended";
        std::this_thread::yield();
      }
      ASSERT_EQ(team.failed(m), 0U);
    }
  }
  static void send_away(Members& team, std::deque<Ringer>& ringers) {
    for (Ringer& ringer : ringers) ringer.send_away();
    team.wait();
  }

  std::size_t rung_ = 0;

 private:
  std::uint64_t before_ = 0;
};
TYPED_TEST_SUITE(TeamLingeringTest, Machines, MachineNames);

TYPED_TEST(TeamLingeringTest, ReductionsByRingAndByLaunch) {
  using Parameters = kernel::LowLatencyCombineParameters;
  constexpr int sequences = 30 / CROSSLANE_TESTS_FEWER + 1;
  for (int i = 0; i < sequences; ++i) {
    Members& team = this->members(this->some_members());
    const std::uint32_t n = team.count(), all = (1U << n) - 1;
    const unsigned blocks = static_cast<unsigned>(this->between(1, 3));
    const auto rounds = static_cast<std::size_t>(this->between(1, 8));
    // All buffers at first: where memory is freed the driver waits for kernels that stay.
    std::vector<std::size_t> counts;
    std::vector<std::vector<Bytes>> data;
    std::vector<std::vector<typename TestFixture::OnGpu>> from, to;
    for (std::size_t r = 0; r < rounds; ++r) {
      counts.push_back(this->some_count(3000));
      data.push_back(this->elements(n, Element::f32, counts[r]));
      from.push_back(this->buffers(team, data[r], this->shifts(n, 4, false)));
      to.push_back(this->buffers(team, std::vector<Bytes>(n, Bytes(counts[r] * 4)), this->shifts(n, 4, false)));
    }
    auto ringers = this->ringers(team, TestFixture::for_long);
    for (std::size_t r = 0; r < rounds; ++r) {
      this->template call<Parameters>(
          team, ringers,
          [](const kernel::Kernels& kernels) { return kernels.lingering<Parameters>(Op::sum, Element::f32); }, blocks,
          [&](Parameters& p, std::uint32_t m) {
            p.slot_bytes = Members::slot_bytes;
            for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = team.low_latency(k);
            p.from = this->address(from[r][m]);
            p.to = this->address(to[r][m]);
            p.send_to = p.receive_from = all;
            p.count = counts[r];
          },
          [&](const kernel::Kernels& kernels, gpu::StreamView stream, const Parameters& p) {
            kernels.low_latency_combine(stream, Op::sum, Element::f32, p, blocks);
          });
      if (this->HasFatalFailure()) break;
    }
    this->send_away(team, ringers);
    ASSERT_FALSE(this->HasFatalFailure());
    for (std::size_t r = 0; r < rounds; ++r) {
      const Bytes expected = significant(Element::f32, this->fold(Op::sum, Element::f32, data[r], 0, n));
      for (std::uint32_t m = 0; m < n; ++m)
        ASSERT_EQ(significant(Element::f32, to[r][m].bytes()), expected)
            << "round " << r << " of " << counts[r] << " at member " << m << " of " << n;
    }
  }
  EXPECT_NE(this->rung_, 0U);
}

// Barriers of blocks of one number, peers' memory, and parameters by member.
TYPED_TEST(TeamLingeringTest, PushesByRingAndByLaunch) {
  using Parameters = kernel::ExchangeMoveParameters;
  constexpr int sequences = 20 / CROSSLANE_TESTS_FEWER + 1;
  for (int i = 0; i < sequences; ++i) {
    Members& team = this->members(this->some_members());
    const std::uint32_t n = team.count();
    const unsigned blocks = static_cast<unsigned>(this->between(1, 3));
    const auto rounds = static_cast<std::size_t>(this->between(1, 6));
    std::vector<std::size_t> bytes;
    std::vector<Bytes> expected;
    std::vector<std::vector<typename TestFixture::OnGpu>> from, to;
    for (std::size_t r = 0; r < rounds; ++r) {
      bytes.push_back(this->some_count(20'000));
      std::vector<Bytes> data;
      expected.emplace_back();
      for (std::uint32_t m = 0; m < n; ++m) {
        data.push_back(pattern(bytes[r], this->random_()));
        expected[r].insert(expected[r].end(), data[m].begin(), data[m].end());
      }
      from.push_back(this->buffers(team, data, this->shifts(n, 4, false)));
      to.push_back(this->buffers(team, std::vector<Bytes>(n, Bytes(n * bytes[r])), this->shifts(n, 4, false)));
    }
    auto ringers = this->ringers(team, TestFixture::for_long);
    for (std::size_t r = 0; r < rounds; ++r) {
      this->template call<Parameters>(
          team, ringers, [](const kernel::Kernels& kernels) { return kernels.lingering_move(); }, blocks,
          [&](Parameters& p, std::uint32_t m) {
            p.moves = n;
            p.end_barrier = true;
            for (std::uint32_t k = 0; k < n; ++k)
              p.move[k] = {this->address(from[r][m]), this->address(to[r][k]) + m * bytes[r], bytes[r]};
          },
          [&](const kernel::Kernels& kernels, gpu::StreamView stream, const Parameters& p) {
            kernels.exchange_move(stream, p, blocks);
          });
      if (this->HasFatalFailure()) break;
    }
    this->send_away(team, ringers);
    ASSERT_FALSE(this->HasFatalFailure());
    for (std::size_t r = 0; r < rounds; ++r)
      for (std::uint32_t m = 0; m < n; ++m)
        ASSERT_EQ(to[r][m].bytes(), expected[r]) << "round " << r << " at member " << m << " of " << n;
  }
  EXPECT_NE(this->rung_, 0U);
}

// One member alone, whose calls each tell of their end in a word of their own for each of what they carry; and launches with nothing to do,
// before they are rung.
TYPED_TEST(TeamLingeringTest, CarriesOneOrSeveral) {
  using Parameters = kernel::CarryParameters;
  constexpr int sequences = 30 / CROSSLANE_TESTS_FEWER + 1;
  for (int i = 0; i < sequences; ++i) {
    Members& team = this->members(1);
    const unsigned blocks = static_cast<unsigned>(this->between(1, 4));
    const auto rounds = static_cast<std::size_t>(this->between(1, 10));
    // Of each round, and of each payload of it.
    std::vector<std::vector<Bytes>> data(rounds);
    std::vector<std::vector<std::vector<typename TestFixture::OnGpu>>> from(rounds), to(rounds);
    for (std::size_t r = 0; r < rounds; ++r) {
      const auto payloads = this->between(0, 2) == 0 ? 1 : this->between(1, Parameters::most);
      for (std::int64_t k = 0; k < payloads; ++k) {
        const Bytes& made = data[r].emplace_back(pattern(this->some_count(70'000), this->random_()));
        from[r].push_back(this->buffers(team, {made}, this->shifts(1, 1, false)));
        to[r].push_back(this->buffers(team, {Bytes(made.size())}, this->shifts(1, 1, false)));
      }
    }
    auto ringers = this->ringers(team, TestFixture::for_long);
    const auto scope = team.enter(0);
    gpu::PinnedBuffer words(this->driver(), rounds * (Parameters::most + 1) * sizeof(std::uint64_t));
    auto* const word = new (words.data()) std::uint64_t[rounds * (Parameters::most + 1)]{};
    // The next one, and what it becomes.
    std::vector<kernel::Ending> endings;
    const auto next_ending = [&] {
      return endings.emplace_back(kernel::Ending{
          .word = reinterpret_cast<std::uint64_t*>(words.device_address()) + endings.size(),
          .value = 1 + static_cast<std::uint64_t>(this->between(0, 1'000'000)),
      });
    };
    const auto end_by = [](Parameters& p, const kernel::Ending& ending) {
      p.frame.done = ending.word;
      p.frame.done_value = ending.value;
    };
    const auto wait = [&] {
      const auto begin = std::chrono::steady_clock::now();
      for (std::size_t w = 0; w < endings.size(); ++w) {
        while (std::atomic_ref(word[w]).load(std::memory_order_acquire) != endings[w].value) {
          ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{60}) << "a call has not ended";
          std::this_thread::yield();
        }
      }
    };
    Ringer& ringer = ringers[0];
    const auto launch = [&](const Parameters& p, bool idle) {
      ringer.send_away();
      team.kernels(0).lingering_carry().launch(team.stream(0), p, blocks, ringer.launch(idle));
    };
    for (std::size_t r = 0; r < rounds; ++r) {
      Parameters p{};
      p.frame = team.frame(0);
      if (this->between(0, 3) == 0) {
        end_by(p, next_ending());
        launch(p, true);
        wait();
      }
      end_by(p, next_ending());
      p.from = this->address(from[r][0][0]);
      p.to = this->address(to[r][0][0]);
      p.bytes = data[r][0].size();
      for (std::size_t k = 1; k < data[r].size(); ++k)
        p.other[p.others++] = {this->address(from[r][k][0]), this->address(to[r][k][0]), data[r][k].size(),
                               next_ending()};
      if (ringer.stays && this->between(0, 4) != 0)
        ringer.ring(p);
      else
        launch(p, false);
      wait();
      if (this->HasFatalFailure()) return;
    }
    this->send_away(team, ringers);
    for (std::size_t r = 0; r < rounds; ++r)
      for (std::size_t k = 0; k < data[r].size(); ++k)
        ASSERT_EQ(to[r][k][0].bytes(), data[r][k]) << "payload " << k << " of " << data[r].size() << " of call " << r
                                                   << ", " << data[r][k].size() << " bytes by " << blocks;
  }
}

// Without being rung a kernel leaves by itself, and says so; the next one does not take an older ring for its own.
TYPED_TEST(TeamLingeringTest, LeavesByItself) {
  using Parameters = kernel::LowLatencyCombineParameters;
  constexpr std::uint32_t n = 2;
  Members& team = this->members(n);
  const std::vector<Bytes> data(n, Bytes(64));
  const auto from = this->buffers(team, data, {0, 0}), to = this->buffers(team, data, {0, 0});
  auto ringers = this->ringers(team, 1000);
  for (const unsigned blocks : {1U, 2U, 1U, 3U}) {
    for (std::uint32_t m = 0; m < n; ++m) {
      const auto scope = team.enter(m);
      Parameters p{};
      p.frame = team.frame(m);
      p.slot_bytes = Members::slot_bytes;
      for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = team.low_latency(k);
      p.from = this->address(from[m]);
      p.to = this->address(to[m]);
      p.send_to = p.receive_from = 3;
      p.count = 16;
      team.kernels(m)
          .template lingering<Parameters>(Op::sum, Element::f32)
          .launch(team.stream(m), p, blocks, ringers[m].launch());
    }
    team.wait();
    for (std::uint32_t m = 0; m < n; ++m) {
      ASSERT_EQ(ringers[m].state(), Bell::left(ringers[m].rung() + 1));
      if (blocks == 2) ringers[m].send_away();  // too late
    }
  }
}

}  // namespace
}  // namespace crosslane::test
