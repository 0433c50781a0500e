// The ring of spans and its exporters.
#include "trace/tracer.h"

#include "base/error.h"
#include "base/log.h"

#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace crosslane::trace {

// Relaxed atomics: two threads meet in one slot only when one is a whole ring behind, and then a mixed span is no harm.
struct Tracer::Slot {
  std::atomic<const char*> name{nullptr};
  std::atomic<std::int64_t> begin{0};
  std::atomic<std::int64_t> end{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<int> thread{0};
};

namespace {

std::int64_t nanoseconds(base::Time time) noexcept {
  return std::chrono::duration_cast<base::Duration>(time.time_since_epoch()).count();
}

int thread_number() noexcept {
  thread_local const int number = static_cast<int>(syscall(SYS_gettid));
  return number;
}

}  // namespace

Tracer::Tracer(std::string file, bool stats, std::size_t capacity) : file_(std::move(file)), stats_(stats) {
  if (file_.empty()) return;
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(capacity, 1));
  mask_ = slots - 1;
  ring_ = std::make_unique<Slot[]>(slots);
}

Tracer::~Tracer() = default;

void Tracer::record(const char* name, base::Time begin, base::Time end, std::uint64_t bytes) noexcept {
  if (ring_ == nullptr) return;
  Slot& slot = ring_[recorded_.fetch_add(1, std::memory_order_relaxed) & mask_];
  slot.name.store(name, std::memory_order_relaxed);
  slot.begin.store(nanoseconds(begin), std::memory_order_relaxed);
  slot.end.store(nanoseconds(end), std::memory_order_relaxed);
  slot.bytes.store(bytes, std::memory_order_relaxed);
  slot.thread.store(thread_number(), std::memory_order_relaxed);
}

std::string Tracer::file_of(const std::string& file, int rank) {
  const auto slash = file.find_last_of('/');
  const auto dot = file.find_last_of('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash))
    return fmt::format("{}.{}.json", file, rank);
  return fmt::format("{}.{}{}", file.substr(0, dot), rank, file.substr(dot));
}

void Tracer::write(int rank) const {
  if (stats_) {
    for (std::size_t i = 0; i < counters; ++i) {
      // Statistics are what the user asked for: printed whatever CROSSLANE_LOG says.
      if (const auto value = counts_[i].load(std::memory_order_relaxed); value != 0)
        base::log_detail::write(base::Topic::info, fmt::format("{}: {}", counter_names[i], value));
    }
  }
  if (ring_ == nullptr) return;
  const std::string name = file_of(file_, rank);
  const std::uint64_t recorded = recorded_.load(std::memory_order_relaxed);
  const std::uint64_t kept = std::min<std::uint64_t>(recorded, mask_ + 1);
  if (kept < recorded)
    base::log(base::Topic::warning, "{}: the oldest {} of {} spans were replaced by later ones", name, recorded - kept,
              recorded);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out{std::fopen(name.c_str(), "w"), std::fclose};
  if (!out)
    throw base::Error(base::ErrorClass::other, "CROSSLANE_TRACE: cannot write {}: {}", name, std::strerror(errno));
  fmt::print(out.get(), "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  fmt::print(out.get(), "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"rank {}\"}}}}", rank,
             rank);
  for (std::uint64_t number = recorded - kept; number < recorded; ++number) {
    const Slot& slot = ring_[number & mask_];
    const auto begin = slot.begin.load(std::memory_order_relaxed);
    const auto length = slot.end.load(std::memory_order_relaxed) - begin;
    fmt::print(out.get(),
               ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"dur\":{}.{:03},"
               "\"args\":{{\"bytes\":{}}}}}",
               slot.name.load(std::memory_order_relaxed), rank, slot.thread.load(std::memory_order_relaxed),
               begin / 1000, begin % 1000, length / 1000, length % 1000, slot.bytes.load(std::memory_order_relaxed));
  }
  fmt::print(out.get(), "\n]}}\n");
  if (std::fflush(out.get()) != 0)
    throw base::Error(base::ErrorClass::other, "CROSSLANE_TRACE: cannot write {}: {}", name, std::strerror(errno));
}

}  // namespace crosslane::trace
