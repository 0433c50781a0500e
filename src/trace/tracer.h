// Tracer: what a rank did, as spans in a ring buffer and as counters. One a rank, owned by its Process.
// Off, a probe is one test of a bool; it must not know what the spans mean, nor MPI (the rank is told at the end).
#pragma once

#include "base/clock.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace crosslane::trace {

/// What is counted. Each has a name in counter_names: what CROSSLANE_STATS prints.
enum class Counter : std::size_t {
  calls_with_gpu_buffers,
  calls_forwarded,
  bytes_to_host,
  bytes_to_gpu,
  bytes_between_gpus,
  bytes_given_to_mpi,
  tasks_spawned,
  mappings_opened,
  count_of_counters,
};

inline constexpr std::size_t counters = static_cast<std::size_t>(Counter::count_of_counters);
inline constexpr std::array<std::string_view, counters> counter_names{"calls with GPU buffers",
                                                                      "calls forwarded",
                                                                      "bytes copied to the host",
                                                                      "bytes copied to a GPU",
                                                                      "bytes copied between GPUs",
                                                                      "bytes given to MPI",
                                                                      "tasks spawned",
                                                                      "mappings opened"};

class Tracer {
 public:
  /// `file`: where write() puts the spans; empty: none are recorded. `stats`: count.
  /// `capacity`: spans kept, rounded up to a power of two; later ones replace the oldest.
  Tracer(std::string file, bool stats, std::size_t capacity = std::size_t{1} << 16);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  [[nodiscard]] bool spans_on() const noexcept { return ring_ != nullptr; }

  /// Any thread: adds to a counter.
  void count(Counter counter, std::uint64_t amount = 1) noexcept {
    if (stats_) counts_[static_cast<std::size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t count_of(Counter counter) const noexcept {
    return counts_[static_cast<std::size_t>(counter)].load(std::memory_order_relaxed);
  }

  /// Records from its construction to its destruction, in the ring of the tracer. Costs nothing when spans are off.
  class Span {
   public:
    Span(Tracer& tracer, const char* name, std::uint64_t bytes) noexcept
        : tracer_(tracer.spans_on() ? &tracer : nullptr), name_(name), bytes_(bytes) {
      if (tracer_ != nullptr) begin_ = base::now();
    }
    ~Span() {
      if (tracer_ != nullptr) tracer_->record(name_, begin_, base::now(), bytes_);
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Tracer* tracer_;
    const char* name_;
    std::uint64_t bytes_;
    base::Time begin_{};
  };

  /// `name` must be a string that outlives the tracer (a literal).
  [[nodiscard]] Span span(const char* name, std::uint64_t bytes = 0) noexcept { return {*this, name, bytes}; }

  /// Any thread: a span whose ends were taken by the caller, e.g. one that began in another function.
  void record(const char* name, base::Time begin, base::Time end, std::uint64_t bytes) noexcept;

  /// Writes the spans as a Perfetto (Chrome trace event) file, name.<rank>.json for name.json, and logs the counters.
  /// No other thread may record. Times are those of the machine's monotonic clock: comparable within a node.
  /// Throws Error (other) where the file cannot be written.
  void write(int rank) const;

  /// The file that write() uses.
  static std::string file_of(const std::string& file, int rank);

 private:
  struct Slot;
  const std::string file_;
  const bool stats_;
  std::size_t mask_ = 0;
  std::unique_ptr<Slot[]> ring_;
  std::atomic<std::uint64_t> recorded_{0};
  std::array<std::atomic<std::uint64_t>, counters> counts_{};
};

}  // namespace crosslane::trace
