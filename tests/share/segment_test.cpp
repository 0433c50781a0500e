// Segments: every method across processes, the mode, the names that go, what is refused, and marks of killed processes.
#include "share/segment.h"
#include "base/error.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>

namespace {
// The most that is reserved before the next signal.
off_t uninterrupted = std::numeric_limits<off_t>::max();
}  // namespace

// In place of glibc's: newer kernels let no signal interrupt it that does not kill.
extern "C" int posix_fallocate(int file, off_t offset, off_t length) {
  if (length > uninterrupted) return EINTR;
  static const auto real = reinterpret_cast<decltype(&posix_fallocate)>(dlsym(RTLD_NEXT, "posix_fallocate"));
  return real(file, offset, length);
}

namespace {

using namespace crosslane::share;
using crosslane::base::Error;
using crosslane::base::ErrorClass;

std::array<std::uint64_t, 2> secret() {
  std::random_device random;
  return {random() | (std::uint64_t{random()} << 32), random()};
}

/// Where a segment's name can be seen, if it has one.
std::optional<std::filesystem::path> path_of(const Token& token) {
  switch (token.method) {
    case Method::posix:
      return "/dev/shm" + std::string{token.name.data()};
    case Method::file:
      return std::string{token.name.data()};
    default:
      return std::nullopt;
  }
}

/// Runs `body` in a child; its exit status, or -1 if it was killed.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    int status = 1;
    try {
      status = body() ? 0 : 2;
    } catch (...) {}
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class SegmentTest : public testing::TestWithParam<Method> {};
INSTANTIATE_TEST_SUITE_P(Methods, SegmentTest, testing::ValuesIn(all_methods),
                         [](const auto& tested) { return std::string{name_of(tested.param)}; });

TEST_P(SegmentTest, OtherProcessesOpenItAndSeeWrites) {
  Segment segment = Segment::create(GetParam(), 5000, secret());
  EXPECT_EQ(segment.memory().size(), 5000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.memory().data()) % 128, 0U);
  for (const std::byte byte : segment.memory()) ASSERT_EQ(byte, std::byte{0});
  segment.memory()[4999] = std::byte{7};
  EXPECT_EQ(in_child([&] {
              const Segment mine = Segment::open(segment.token());
              if (mine.memory()[4999] != std::byte{7}) return false;
              mine.memory()[0] = std::byte{9};
              return true;
            }),
            0);
  EXPECT_EQ(segment.memory()[0], std::byte{9});
}

TEST_P(SegmentTest, OnlyTheOwnerMayAndNoNameIsLeft) {
  std::optional<std::filesystem::path> path;
  {
    Segment segment = Segment::create(GetParam(), 100, secret());
    path = path_of(segment.token());
    struct stat facts{};
    ASSERT_EQ(fstat(segment.token().descriptor, &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777U, 0600U);
    if (path) {
      EXPECT_TRUE(std::filesystem::exists(*path)) << *path;
      segment.forget();
      EXPECT_FALSE(std::filesystem::exists(*path)) << *path;
      EXPECT_THROW(Segment::open(segment.token()), Error);
    }
    segment.memory()[99] = std::byte{1};
  }
  // Without forget(), its end removes the name, and not the end of a child's copy.
  {
    Segment segment = Segment::create(GetParam(), 100, secret());
    path = path_of(segment.token());
    EXPECT_EQ(in_child([&] {
                segment = Segment{};
                return true;
              }),
              0);
    if (path) {
      EXPECT_TRUE(std::filesystem::exists(*path));
    }
    const Segment moved = std::move(segment);
    if (path) {
      EXPECT_TRUE(std::filesystem::exists(*path));
    }
  }
  if (path) {
    EXPECT_FALSE(std::filesystem::exists(*path));
  }
}

TEST_P(SegmentTest, RefusesWhatIsNotTheRightOne) {
  Segment segment = Segment::create(GetParam(), 100, secret());
  Token token = segment.token();
  token.secret[1] ^= 1;
  EXPECT_THROW(Segment::open(token), Error);
  token = segment.token();
  token.bytes += 1;
  EXPECT_THROW(Segment::open(token), Error);
  token = segment.token();
  token.descriptor = 1'000'000;
  token.name[1] = 'X';
  EXPECT_THROW(Segment::open(token), Error);
  EXPECT_THROW(Segment::open(Token{}), Error);
}

/// Asks for more than can be had, and that this is said now, not at the first touch.
void expect_no_memory(Method method, std::size_t bytes) {
  const std::array<std::uint64_t, 2> key = secret();
  try {
    Segment::create(method, bytes, key);
    FAIL() << bytes;
  } catch (const Error& problem) {
    EXPECT_EQ(problem.error_class(), ErrorClass::no_memory) << problem.what();
    EXPECT_NE(std::string_view{problem.what()}.find(name_of(method)), std::string_view::npos) << problem.what();
  }
  // The failure left no name: it can be made again under the same one.
  Segment::create(method, 100, key);
}

TEST_P(SegmentTest, MoreThanTheMachineHasIsAnError) { expect_no_memory(GetParam(), std::size_t{1} << 50); }

TEST(Segment, MoreThanDevShmHasIsAnError) {
  struct statvfs facts{};
  ASSERT_EQ(statvfs("/dev/shm", &facts), 0);
  const std::size_t bytes = facts.f_blocks * facts.f_frsize + (std::size_t{1} << 20);
  const auto machine =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (facts.f_blocks == 0 || bytes >= machine) GTEST_SKIP() << "/dev/shm is not smaller than the machine's memory";
  expect_no_memory(Method::posix, bytes);
}

TEST_P(SegmentTest, SignalsDoNotKeepItFromBeingMade) {
  EXPECT_EQ(in_child([&] {
              struct sigaction action{};
              action.sa_handler = [](int) {};
              action.sa_flags = SA_RESTART;
              constexpr itimerval often{{0, 50}, {0, 50}}, never{};
              if (sigaction(SIGALRM, &action, nullptr) != 0 || setitimer(ITIMER_REAL, &often, nullptr) != 0)
                return false;
              uninterrupted = 100'000;
              constexpr std::size_t bytes = std::size_t{16} << 20;
              const Segment segment = Segment::create(GetParam(), bytes, secret());
              setitimer(ITIMER_REAL, &never, nullptr);
              const std::span<std::byte> memory = segment.memory();
              return memory.size() == bytes && memory.back() == std::byte{0};
            }),
            0);
}

TEST_P(SegmentTest, MarksTellWhoIsGone) {
  Segment segment = Segment::create(GetParam(), 100, secret());
  EXPECT_FALSE(segment.mark_held(1));
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    try {
      Segment mine = Segment::open(segment.token());
      const char held = mine.hold_mark(1) ? 1 : 0;
      if (write(ready[1], &held, 1) != 1) _exit(1);
      for (;;) pause();
    } catch (...) {
      _exit(1);
    }
  }
  char held = 0;
  ASSERT_EQ(read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 1);
  EXPECT_TRUE(segment.mark_held(1));
  EXPECT_FALSE(segment.mark_held(0));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(segment.mark_held(1));
  close(ready[0]);
  close(ready[1]);
}

// A program may close what it has not opened, and open other files, which then have its numbers.
TEST_P(SegmentTest, WhatHasItsNumberSinceIsTheProgramsOwn) {
  Segment segment = Segment::create(GetParam(), 100, secret());
  Segment other = Segment::open(segment.token());
  ASSERT_TRUE(other.hold_mark(1));
  const int number = segment.token().descriptor;
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup3(file, number, O_CLOEXEC), number);
  EXPECT_TRUE(segment.mark_held(1)) << "that file has no marks";
  const auto is_open = [&] { return fcntl(number, F_GETFD) >= 0; };
  EXPECT_EQ(in_child([&] {
              segment.leave_marks();
              return is_open();
            }),
            0);
  segment = Segment{};
  EXPECT_TRUE(is_open());
  close(number);
  close(file);
}

TEST(Segment, UnsharedMemoryIsLaidOutAlike) {
  const Segment segment = Segment::unshared(1000);
  EXPECT_EQ(segment.memory().size(), 1000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.memory().data()) % 128, 0U);
  EXPECT_EQ(segment.token().method, Method::none);
  EXPECT_TRUE(segment.mark_held(0)) << "nobody is known to be gone";
}

}  // namespace
