// The ring of spans and its exporters.
#include "trace/tracer.h"

#include "base/error.h"
#include "base/log.h"

#include <fmt/core.h>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace crosslane::trace {

// Relaxed atomics: two threads meet in one slot only when one is a whole ring behind, and then a mixed span is no harm.
struct Tracer::Slot {
  std::atomic<const char*> name{nullptr};
  std::atomic<std::uint32_t> length{0};  // of the name
  std::atomic<std::int64_t> begin{0};
  std::atomic<std::int64_t> end{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<int> thread{0};
  std::atomic<Kind> kind{Kind::call};
};

namespace {

constexpr std::array<std::string_view, 4> kind_names{"call", "copy", "kernel", "wait"};

std::int64_t nanoseconds(base::Time time) noexcept {
  return std::chrono::duration_cast<base::Duration>(time.time_since_epoch()).count();
}

int thread_number() noexcept {
  thread_local const int number = static_cast<int>(syscall(SYS_gettid));
  return number;
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_file(const std::string& name, const char* mode = "w") {
  return {std::fopen(name.c_str(), mode), std::fclose};
}

// The application may go elsewhere before the file is written.
std::string from_here(const std::string& file) {
  std::error_code unknown;
  const auto there = file.empty() ? std::filesystem::path() : std::filesystem::absolute(file, unknown);
  return unknown ? file : there.string();
}

void require_name(const std::string& file) {
  std::error_code unknown;
  if (file.ends_with('/') || std::filesystem::is_directory(file, unknown))
    throw base::Error(base::ErrorClass::argument, "CROSSLANE_TRACE: {} is a folder; give the name of a file in it",
                      file);
}

void require_open(const std::string& name, const char* mode) {
  if (!open_file(name, mode))
    throw base::Error(base::ErrorClass::argument, "CROSSLANE_TRACE: cannot write {}: {}", name, std::strerror(errno));
}

}  // namespace

Tracer::Tracer(const std::string& file, bool nvtx, std::size_t capacity) : file_(from_here(file)), nvtx_(nvtx) {
  if (file_.empty()) return;
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(capacity, 1));
  mask_ = slots - 1;
  ring_ = std::make_unique<Slot[]>(slots);
}

Tracer::~Tracer() = default;

void Tracer::record(Kind kind, std::string_view name, base::Time begin, base::Time end, std::uint64_t bytes) noexcept {
  if (ring_ == nullptr) return;
  Slot& slot = ring_[recorded_.fetch_add(1, std::memory_order_relaxed) & mask_];
  const char* const first = name.data();  // its length goes along
  slot.name.store(first, std::memory_order_relaxed);
  slot.length.store(static_cast<std::uint32_t>(name.size()), std::memory_order_relaxed);
  slot.begin.store(nanoseconds(begin), std::memory_order_relaxed);
  slot.end.store(nanoseconds(end), std::memory_order_relaxed);
  slot.bytes.store(bytes, std::memory_order_relaxed);
  slot.thread.store(thread_number(), std::memory_order_relaxed);
  slot.kind.store(kind, std::memory_order_relaxed);
}

// The one place that knows NVTX. Its header asks the environment for a tool at the first range, and is in the CUDA toolkit.
#if __has_include(<nvtx3/nvToolsExt.h>)
bool Tracer::nvtx_wanted() noexcept { return std::getenv("NVTX_INJECTION64_PATH") != nullptr; }

void Tracer::push(std::string_view name) noexcept {
  std::array<char, 96> text{};  // NVTX wants an end that a view does not have
  name.copy(text.data(), text.size() - 1);
  nvtxRangePushA(text.data());
}

void Tracer::pop() noexcept { nvtxRangePop(); }
#else
bool Tracer::nvtx_wanted() noexcept { return false; }
void Tracer::push(std::string_view /*name*/) noexcept {}
void Tracer::pop() noexcept {}
#endif

void Span::begin(Kind kind, std::string_view name, std::uint64_t bytes) noexcept {
  kind_ = kind;
  name_ = name;
  bytes_ = bytes;
  begin_ = base::now();
  if (tracer_->nvtx_) Tracer::push(name);
}

void Span::end() noexcept {
  if (tracer_->nvtx_) Tracer::pop();
  tracer_->record(kind_, name_, begin_, base::now(), bytes_);
}

std::string Tracer::file_of(const std::string& file, int rank) {
  const auto slash = file.find_last_of('/');
  const auto dot = file.find_last_of('.');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  if (dot == std::string::npos || dot <= name)  // one in front hides a file
    return fmt::format("{}.{}.json", file, rank);
  return fmt::format("{}.{}{}", file.substr(0, dot), rank, file.substr(dot));
}

void Tracer::open(int rank) const {
  if (ring_ == nullptr) return;
  require_name(file_);
  const std::string name = file_of(file_, rank);
  require_open(name, "w");
  unlink(name.c_str());
}

void Tracer::try_to_open(const std::string& file, int rank) {
  require_name(file);
  const std::string name = file_of(file, rank);
  const bool was_there = access(name.c_str(), F_OK) == 0;
  require_open(name, "a");  // to write at its end: its bytes stay
  if (!was_there) unlink(name.c_str());
}

void Tracer::write(int rank) const {
  if (ring_ == nullptr) return;
  const std::string name = file_of(file_, rank);
  const std::uint64_t recorded = recorded_.load(std::memory_order_relaxed);
  const std::uint64_t kept = std::min<std::uint64_t>(recorded, mask_ + 1);
  if (kept < recorded)
    base::log(base::Topic::warning, "{}: the oldest {} of {} spans were replaced by later ones", name, recorded - kept,
              recorded);
  const File out = open_file(name);
  if (!out)
    throw base::Error(base::ErrorClass::other, "CROSSLANE_TRACE: cannot write {}: {}", name, std::strerror(errno));
  fmt::print(out.get(), "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  fmt::print(out.get(), "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"rank {}\"}}}}", rank,
             rank);
  for (std::uint64_t number = recorded - kept; number < recorded; ++number) {
    const Slot& slot = ring_[number & mask_];
    const auto begin = slot.begin.load(std::memory_order_relaxed);
    const auto length = slot.end.load(std::memory_order_relaxed) - begin;
    const std::string_view what{slot.name.load(std::memory_order_relaxed), slot.length.load(std::memory_order_relaxed)};
    const auto kind = static_cast<std::size_t>(slot.kind.load(std::memory_order_relaxed));
    fmt::print(
        out.get(),
        ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"dur\":{}.{:03},"
        "\"args\":{{\"bytes\":{}}}}}",
        what, kind_names[kind], rank, slot.thread.load(std::memory_order_relaxed), begin / 1000, begin % 1000,
        length / 1000, length % 1000, slot.bytes.load(std::memory_order_relaxed));
  }
  fmt::print(out.get(), "\n]}}\n");
  if (std::fflush(out.get()) != 0)
    throw base::Error(base::ErrorClass::other, "CROSSLANE_TRACE: cannot write {}: {}", name, std::strerror(errno));
}

}  // namespace crosslane::trace
