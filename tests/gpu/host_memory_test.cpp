// What HostMemory claims to be the CPU's, and what it must leave to the driver. It needs no driver.
#include "gpu/host_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <thread>

namespace {

using namespace crosslane;

std::array<char, 64> data{1};

char* map(void* where, int protection) {
  const int fixed = where != nullptr ? MAP_FIXED : 0;
  void* const memory = mmap(where, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), protection,
                            MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

// As MPI is asked: the buffer is in a caller's frame, or further up.
__attribute__((noinline)) bool certain_below(const gpu::HostMemory& host, const void* address) {
  return host.certain(address);
}

// Calls `use` with memory on this thread's stack. AddressSanitizer may move locals to a stack of its own making; not here.
template <typename Use>
__attribute__((noinline, no_sanitize_address)) void on_the_stack(Use use) {
  volatile char local[64] = {};  // NOLINT(modernize-avoid-c-arrays): an array's members would be sanitized
  use(const_cast<char*>(&local[0]));
}

TEST(HostMemory, StackAndDataAreCertain) {
  const gpu::HostMemory host;
  EXPECT_TRUE(host.certain(data.data()));
  on_the_stack([&](const char* mine) {
    EXPECT_TRUE(certain_below(host, mine));
    std::thread([&] {
      on_the_stack([&](const char* own) { EXPECT_TRUE(certain_below(host, own)); });
      EXPECT_FALSE(certain_below(host, mine)) << "another thread's stack is not this one's";
    }).join();
  });
}

// What is asked on a stack other than the thread's own, as libraries of user-level threads make them.
struct Elsewhere {
  const gpu::HostMemory& host;
  const void* address;
  ucontext_t here{}, there{};
  bool certain = false, local = false;
};
Elsewhere* elsewhere = nullptr;

void ask_elsewhere() {
  elsewhere->certain = certain_below(elsewhere->host, elsewhere->address);
  on_the_stack([](const char* mine) { elsewhere->local = certain_below(elsewhere->host, mine); });
}

TEST(HostMemory, OnAStackOfTheProgramsMakingNothingAboveIsCertain) {
  const gpu::HostMemory host;
  char* const memory = map(nullptr, PROT_NONE);  // as a GPU's
  constexpr std::size_t bytes = std::size_t{1} << 18;
  void* const low = reinterpret_cast<void*>(std::uintptr_t{1} << 32);
  void* const stack =
      mmap(low, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  ASSERT_NE(stack, MAP_FAILED);
  if (memory == nullptr || memory < stack) GTEST_SKIP() << "no low addresses are free";
  Elsewhere asked{host, memory};
  elsewhere = &asked;
  ASSERT_EQ(getcontext(&asked.there), 0);
  asked.there.uc_stack.ss_sp = stack;
  asked.there.uc_stack.ss_size = bytes;
  asked.there.uc_link = &asked.here;
  makecontext(&asked.there, ask_elsewhere, 0);
  ASSERT_EQ(swapcontext(&asked.here, &asked.there), 0);
  EXPECT_FALSE(asked.certain) << "it lies between that stack and the thread's";
  EXPECT_FALSE(asked.local) << "the driver is asked about that stack itself";
  munmap(stack, bytes);
}

TEST(HostMemory, TheHeapBelowItsBreakIsCertain) {
  // The break, not malloc: a sanitizer's malloc has no heap of this kind.
  void* const begin = sbrk(4096);
  if (begin == reinterpret_cast<void*>(-1)) GTEST_SKIP() << "the break cannot be moved here";
  const gpu::HostMemory host;
  EXPECT_TRUE(host.certain(begin));
  EXPECT_FALSE(host.certain(static_cast<char*>(sbrk(0)) + (1 << 20)));
}

TEST(HostMemory, MappedMemoryIsNeverCertain) {
  const gpu::HostMemory host;
  char* const memory = map(nullptr, PROT_READ | PROT_WRITE);
  ASSERT_NE(memory, nullptr);
  EXPECT_FALSE(host.certain(memory));
  EXPECT_FALSE(host.certain(nullptr));
  EXPECT_FALSE(host.certain(reinterpret_cast<void*>(-1)));
}

TEST(HostMemory, WhatTheCpuCannotReadIsNeverTheHosts) {
  gpu::HostMemory host;
  char* const memory = map(nullptr, PROT_READ | PROT_WRITE);
  ASSERT_NE(memory, nullptr);
  EXPECT_FALSE(host.knows(memory));
  host.remember(memory + 8);
  EXPECT_TRUE(host.knows(memory + 100));
  // As when it was unmapped, and the driver reserved its addresses for a GPU.
  ASSERT_EQ(map(memory, PROT_NONE), memory);
  EXPECT_FALSE(host.knows(memory + 100));
  ASSERT_EQ(map(memory, PROT_READ), memory);
  EXPECT_TRUE(host.knows(memory + 100));
}

}  // namespace
