// Tracer: what a rank did, as spans in a ring buffer and, while a tool such as Nsight Systems listens, as NVTX ranges. One a
// rank; there is none while nobody wants spans, so that a probe is one test of a pointer. It must not know MPI, nor what spans mean.
#pragma once

#include "base/clock.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace crosslane::trace {

/// What a span is of: its category in the file.
enum class Kind : std::uint8_t { call, copy, kernel, wait };

class Tracer {
 public:
  /// `file`: where write() puts the spans; empty: none are kept. `nvtx`: spans are NVTX ranges too.
  /// `capacity`: spans kept, rounded up to a power of two; later ones replace the oldest.
  explicit Tracer(const std::string& file, bool nvtx = false, std::size_t capacity = std::size_t{1} << 16);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// True if a tool has asked the processes that it starts for NVTX ranges, and this build has them.
  [[nodiscard]] static bool nvtx_wanted() noexcept;

  /// Any thread: a span whose ends were taken by the caller. The characters of `name` outlive the tracer (a literal).
  void record(Kind kind, std::string_view name, base::Time begin, base::Time end, std::uint64_t bytes) noexcept;

  /// Throws Error (argument) where write() could not write the file of this rank. None is there then, of no earlier run either: whoever finds one
  /// has all of it.
  void open(int rank) const;
  /// Throws the same Error where open() would, for a tracer with this file; leaves no file, and what is there as it is.
  static void try_to_open(const std::string& file, int rank);
  /// Writes the spans as a Perfetto (Chrome trace event) file, name.<rank>.json for name.json.
  /// No other thread may record. Times are those of the machine's monotonic clock: comparable within a node.
  /// Throws Error (other) where the file cannot be written.
  void write(int rank) const;

  /// The file that write() uses.
  static std::string file_of(const std::string& file, int rank);

 private:
  friend class Span;
  struct Slot;
  static void push(std::string_view name) noexcept;
  static void pop() noexcept;

  const std::string file_;
  const bool nvtx_;
  std::size_t mask_ = 0;
  std::unique_ptr<Slot[]> ring_;
  std::atomic<std::uint64_t> recorded_{0};
};

/// Records from its construction to its destruction, on one thread; spans of a thread lie within one another. Without a
/// tracer (null) it costs a test.
class Span {
 public:
  Span(Tracer* tracer, Kind kind, std::string_view name, std::uint64_t bytes = 0) noexcept : tracer_(tracer) {
    if (tracer_ != nullptr) [[unlikely]]
      begin(kind, name, bytes);
  }
  ~Span() {
    if (tracer_ != nullptr) [[unlikely]]
      end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  /// What is known only later.
  void set_bytes(std::uint64_t bytes) noexcept { bytes_ = bytes; }

 private:
  void begin(Kind kind, std::string_view name, std::uint64_t bytes) noexcept;
  void end() noexcept;

  Tracer* tracer_;
  Kind kind_ = Kind::call;
  std::string_view name_;
  std::uint64_t bytes_ = 0;
  base::Time begin_{};
};

}  // namespace crosslane::trace
