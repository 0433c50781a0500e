// Segment: memory that processes of one machine share: made by one, opened by the others through a token that travels by
// MPI, and with no name left as soon as all have it. It must not know what lies in it, nor MPI.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace crosslane::share {

/// The ways to share memory, in the order in which they are tried.
enum class Method : std::uint32_t {
  none,       ///< Nothing works: a token that says so.
  anonymous,  ///< memfd_create, opened through /proc/<pid>/fd: never has a name. Needs one PID namespace.
  posix,      ///< shm_open: a name in /dev/shm until forget(). Needs one IPC mount, and room there.
  file,       ///< A file in $TMPDIR, else /tmp, until forget(). Needs one file system.
};
inline constexpr std::array<Method, 3> all_methods{Method::anonymous, Method::posix, Method::file};
[[nodiscard]] std::string_view name_of(Method method) noexcept;

/// What another process needs to open a segment; trivially copied, sent as bytes.
struct Token {
  Method method = Method::none;
  std::int32_t descriptor = -1;
  std::int64_t process = 0;
  std::uint64_t bytes = 0;
  std::array<std::uint64_t, 2> secret{};  ///< Stands at the segment's start: tells that the right thing was opened.
  std::array<char, 216> name{};
};

/// Memory mapped read-write, owner only (mode 0600). Starts with a header of `header_bytes`, of which the first 16 are the
/// secret; the rest is zero and the user's.
class Segment {
 public:
  static constexpr std::size_t header_bytes = 128;

  Segment() = default;
  /// Makes one with `bytes` for the user, all of which the system has promised. Throws Error (no_memory or other) with
  /// the reason where this method does not work here.
  static Segment create(Method method, std::size_t bytes, std::array<std::uint64_t, 2> secret);
  /// Memory of this process alone, laid out alike: for a rank that can share with nobody.
  static Segment unshared(std::size_t bytes);
  /// Opens what another process made. Throws Error (other) if that is not reachable from here.
  static Segment open(const Token& token);
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;

  /// For others to open(), while this process keeps the segment and has not called forget().
  [[nodiscard]] const Token& token() const noexcept { return token_; }

  /// Its maker: removes the name, if it has one. From then on nothing of it outlives its processes, however they end.
  void forget() noexcept;

  /// The user's memory, aligned to 128 bytes.
  [[nodiscard]] std::span<std::byte> memory() const noexcept {
    return mapped_.empty() ? mapped_ : mapped_.subspan(header_bytes);
  }

  /// Takes mark `index` for this process, one of a segment, and for what it forks that neither executes something else nor calls leave_marks(), until
  /// the last of these ends, however it ends, or the segment is destroyed. False where the system has no such locks. Where the memory's file cannot be
  /// opened anew, children hold the mark as long as they have the memory.
  bool hold_mark(int index) noexcept;
  /// In a child of fork(): its parent's marks are the parent's alone. Opens nothing anew; the memory stays. Async-signal-safe.
  void leave_marks() noexcept;
  /// True unless it is certain that no process holds the mark: then its holder is gone. Not to be asked by the holder.
  [[nodiscard]] bool mark_held(int index) const noexcept;

 private:
  struct File {
    dev_t device = 0;
    ino_t number = 0;
    [[nodiscard]] bool operator==(const File&) const = default;
  };
  static File file_of(int descriptor) noexcept;
  void map(std::size_t bytes);
  [[nodiscard]] bool has_descriptor() const noexcept;
  void close_descriptor() noexcept;
  void close() noexcept;

  Token token_;
  std::span<std::byte> mapped_;
  int descriptor_ = -1;
  File file_;  // which that is: a program may close what it has not opened, and have another file by its number
  bool named_ = false;  // has a name that this process must remove
};

}  // namespace crosslane::share
