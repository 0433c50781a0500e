// The host of a kernel that stays, with the test in the kernel's place: who is rung, what is written, who is launched instead, and how long it is
// not tried again after it stayed in vain.
#include "team/lingerer.h"

#include "gpu/machine.h"
#include "kernel/wire.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace crosslane::test {
namespace {

using kernel::Bell;

constexpr int members = 3;
constexpr std::uint32_t room = kernel::told_room(members);

// What a kernel reads and writes.
class Kernel {
 public:
  explicit Kernel(const kernel::Stay& stay) : bell_(stay.bell), ring_(stay.rung + 1) {}

  // The ring that it waits for, if it has come; then the next.
  std::optional<std::vector<std::uint64_t>> hear() {
    std::vector<std::uint64_t> words;
    const std::uint64_t flag = Bell::flag_of(ring_);
    for (std::uint32_t k = 0; k < room; ++k) {
      const std::uint64_t low = std::atomic_ref(bell_->request[k].low).load(std::memory_order_acquire);
      const std::uint64_t high = std::atomic_ref(bell_->request[k].high).load(std::memory_order_acquire);
      if (low >> 32 != flag || high >> 32 != flag) return std::nullopt;
      words.push_back((low & 0xffffffffU) | high << 32);
    }
    ++ring_;
    return words;
  }
  void say_leaving() { say(Bell::leaving(ring_)); }
  void say_left() { say(Bell::left(ring_)); }
  void say_heard() { say(Bell::heard(ring_)); }

 private:
  void say(std::uint64_t state) { std::atomic_ref(bell_->state).store(state, std::memory_order_seq_cst); }

  Bell* bell_;
  std::uint64_t ring_;
};

std::vector<std::uint64_t> padded(std::vector<std::uint64_t> words) {
  words.resize(room);
  return words;
}

template <class Kind>
class LingererTest : public MachineTest<Kind> {
 protected:
  // Long enough for any machine to begin the next call meanwhile.
  static constexpr base::Duration for_long = std::chrono::hours{1};
  static constexpr team::Lingerer::Kernel one{"one", 1}, more_blocks{"one", 2};
  // Written where no multiple of 2^32 is, nor 0 in either half.
  const std::vector<std::uint64_t> call{0x1'0000'0007, 0xfedc'ba98'7654'3210, 3};

  team::Lingerer make(base::Duration stay) {
    return team::Lingerer(this->driver(), engine_, {.call = "a kernel that stays"}, room, stay);
  }
  static void a_call_ends(team::Lingerer& lingerer) {
    lingerer.begin();
    lingerer.end();
  }
  static Kernel launch(team::Lingerer& lingerer) {
    const Kernel kernel(lingerer.next());
    lingerer.launched(one);
    return kernel;
  }
  // How many calls go by until it is worth it.
  static unsigned skipped(team::Lingerer& lingerer) {
    for (unsigned calls = 0; calls < 10'000; ++calls) {
      lingerer.begin();
      const bool worth = lingerer.worth();
      lingerer.end();
      if (worth) return calls;
    }
    return ~0U;
  }

 private:
  const mpi::Functions no_mpi_{};
  engine::Engine engine_{no_mpi_, 0};
};
TYPED_TEST_SUITE(LingererTest, Machines, MachineNames);

TYPED_TEST(LingererTest, StaysWhereCallsFollowEachOtherSoon) {
  auto lingerer = this->make(this->for_long);
  EXPECT_FALSE(lingerer.used());
  lingerer.begin();
  EXPECT_FALSE(lingerer.worth()) << "nothing was before";
  lingerer.end();
  lingerer.begin();
  EXPECT_TRUE(lingerer.worth());
  auto never = this->make(base::Duration(0));
  this->a_call_ends(never);
  never.begin();
  EXPECT_FALSE(never.worth());
  EXPECT_FALSE(never.ring(this->one, this->call));
}

TYPED_TEST(LingererTest, RingsWhoStays) {
  auto lingerer = this->make(this->for_long);
  this->a_call_ends(lingerer);
  lingerer.begin();
  EXPECT_FALSE(lingerer.ring(this->one, this->call)) << "none stays";
  Kernel kernel = this->launch(lingerer);
  EXPECT_TRUE(lingerer.used());
  EXPECT_EQ(kernel.hear(), std::nullopt);
  EXPECT_FALSE(lingerer.ring(this->more_blocks, this->call)) << "another kernel";
  EXPECT_EQ(kernel.hear(), std::nullopt);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(lingerer.ring(this->one, this->call));
    EXPECT_EQ(kernel.hear(), padded(this->call));
  }
  lingerer.dismiss();
  EXPECT_EQ(kernel.hear(), padded({})) << "sent away";
  lingerer.dismiss();
  EXPECT_EQ(kernel.hear(), std::nullopt) << "once";
  EXPECT_FALSE(lingerer.ring(this->one, this->call));
}

TYPED_TEST(LingererTest, ALaunchSendsAwayWhoStays) {
  auto lingerer = this->make(this->for_long);
  this->a_call_ends(lingerer);
  lingerer.begin();
  Kernel first = this->launch(lingerer);
  Kernel second = this->launch(lingerer);
  EXPECT_EQ(first.hear(), padded({}));
  EXPECT_TRUE(lingerer.ring(this->one, this->call));
  EXPECT_EQ(second.hear(), padded(this->call));
  // One that fails leaves nobody.
  static_cast<void>(lingerer.next());
  EXPECT_EQ(second.hear(), padded({}));
  EXPECT_FALSE(lingerer.ring(this->one, this->call));
  Kernel third = this->launch(lingerer);
  EXPECT_TRUE(lingerer.ring(this->one, this->call));
  EXPECT_EQ(third.hear(), padded(this->call));
}

TYPED_TEST(LingererTest, WhoHasLeftIsNotRung) {
  auto lingerer = this->make(this->for_long);
  this->a_call_ends(lingerer);
  lingerer.begin();
  Kernel kernel = this->launch(lingerer);
  kernel.say_left();
  EXPECT_FALSE(lingerer.ring(this->one, this->call));
  EXPECT_EQ(kernel.hear(), std::nullopt) << "nothing is written for nobody";
}

// About to leave: what it says next decides, however late that comes.
TYPED_TEST(LingererTest, WhoIsAboutToLeaveIsWaitedFor) {
  for (const bool hears : {true, false}) {
    auto lingerer = this->make(this->for_long);
    this->a_call_ends(lingerer);
    lingerer.begin();
    Kernel kernel = this->launch(lingerer);
    kernel.say_leaving();
    std::thread gpu([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      if (hears)
        kernel.say_heard();
      else
        kernel.say_left();
    });
    EXPECT_EQ(lingerer.ring(this->one, this->call), hears);
    gpu.join();
  }
}

TYPED_TEST(LingererTest, ItIsLaunchedAnewNowAndThen) {
  auto lingerer = this->make(std::chrono::microseconds{1});
  lingerer.begin();
  Kernel kernel = this->launch(lingerer);
  EXPECT_TRUE(lingerer.ring(this->one, this->call));
  lingerer.end();
  std::this_thread::sleep_for(std::chrono::milliseconds{5});
  lingerer.begin();
  ASSERT_TRUE(kernel.hear());
  EXPECT_FALSE(lingerer.ring(this->one, this->call));
  EXPECT_EQ(kernel.hear(), std::nullopt);
}

// Twice as many calls each time, up to a number; being rung once ends that.
TYPED_TEST(LingererTest, AfterStaysInVainCallsGoBy) {
  auto lingerer = this->make(this->for_long);
  this->a_call_ends(lingerer);
  for (const unsigned calls : {16U, 32U, 64U, 128U, 256U, 256U}) {
    lingerer.begin();
    Kernel kernel = this->launch(lingerer);
    kernel.say_left();
    lingerer.dismiss();
    EXPECT_FALSE(lingerer.worth());
    lingerer.end();
    EXPECT_EQ(this->skipped(lingerer), calls - 1) << "the one that ends it counts";
  }
  lingerer.begin();
  Kernel kernel = this->launch(lingerer);
  ASSERT_TRUE(lingerer.ring(this->one, this->call));
  ASSERT_TRUE(kernel.hear());
  kernel.say_left();
  EXPECT_FALSE(lingerer.ring(this->one, this->call));
  EXPECT_TRUE(lingerer.worth()) << "it was not in vain";
  Kernel next = this->launch(lingerer);
  lingerer.dismiss();
  EXPECT_EQ(next.hear(), padded({}));
  lingerer.end();
  EXPECT_EQ(this->skipped(lingerer), 15U) << "as if never before";
}

}  // namespace
}  // namespace crosslane::test
