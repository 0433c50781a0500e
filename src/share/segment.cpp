// The three ways to share memory, and the marks: open-file-description locks, which the kernel drops when a process ends.
#include "share/segment.h"

#include "base/error.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace crosslane::share {
namespace {

using base::Error;
using base::ErrorClass;

[[noreturn]] void fail(Method method, std::string_view what, int problem) {
  throw Error(problem == ENOSPC || problem == ENOMEM ? ErrorClass::no_memory : ErrorClass::other,
              "shared memory ({}): {}: {}", name_of(method), what, std::strerror(problem));
}

std::string fresh_name(std::string_view folder, std::array<std::uint64_t, 2> secret) {
  return fmt::format("{}/crosslane-{:016x}-{}", folder, secret[0] ^ secret[1], getpid());
}

// Sparse memory that the system cannot back would be a bus error at the first touch: have it promised now. /dev/shm is
// 64 MB in many containers.
void reserve(Method method, int descriptor, std::size_t bytes) {
  // A memfd has no limit of its own: asked for more than there is, the kernel would give until it kills somebody.
  const auto pages = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes / page_bytes >= pages) fail(method, fmt::format("cannot reserve {} bytes", bytes), ENOMEM);
  while (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0)
    if (errno != EINTR) fail(method, "cannot set the size", errno);
  // In older kernels a signal, such as a profiler's timer, ends the call, restarted or not, and takes back what was promised by then:
  // smaller pieces get done in between.
  std::size_t piece = bytes;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t next = std::min(piece, bytes - done);
    const int problem = posix_fallocate(descriptor, static_cast<off_t>(done), static_cast<off_t>(next));
    if (problem == 0)
      done += next;
    else if (problem == EINTR)
      piece = std::max(next / 2, page_bytes);
    else
      fail(method, fmt::format("cannot reserve {} bytes", bytes), problem);
  }
}

struct flock lock_of(int index) noexcept {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = index;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Segment::File Segment::file_of(int descriptor) noexcept {
  struct stat facts{};
  return fstat(descriptor, &facts) == 0 ? File{facts.st_dev, facts.st_ino} : File{};
}

std::string_view name_of(Method method) noexcept {
  switch (method) {
    case Method::anonymous:
      return "memfd";
    case Method::posix:
      return "shm_open";
    case Method::file:
      return "file";
    default:
      return "none";
  }
}

Segment Segment::create(Method method, std::size_t bytes, std::array<std::uint64_t, 2> secret) {
  Segment segment;
  std::string name;
  switch (method) {
    case Method::anonymous:
      segment.descriptor_ = memfd_create("crosslane", MFD_CLOEXEC);
      break;
    case Method::posix:
      name = fresh_name("", secret);
      segment.descriptor_ = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
      break;
    case Method::file: {
      const char* folder = std::getenv("TMPDIR");
      name = fresh_name(folder != nullptr && *folder == '/' ? folder : "/tmp", secret);
      segment.descriptor_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
      break;
    }
    default:
      fail(method, "no method", EINVAL);
  }
  if (segment.descriptor_ < 0) fail(method, "cannot create it", errno);
  segment.file_ = file_of(segment.descriptor_);
  segment.token_ = {.method = method,
                    .descriptor = segment.descriptor_,
                    .process = getpid(),
                    .bytes = bytes + header_bytes,
                    .secret = secret,
                    .name = {}};
  segment.named_ = !name.empty();
  if (name.size() >= segment.token_.name.size()) {
    // Only a long $TMPDIR gets here. The name cannot travel, so the file must go by the name that we still have.
    unlink(name.c_str());
    segment.named_ = false;
    fail(method, "the name is too long", ENAMETOOLONG);
  }
  name.copy(segment.token_.name.data(), name.size());
  if (method == Method::anonymous && fchmod(segment.descriptor_, S_IRUSR | S_IWUSR) != 0)
    fail(method, "cannot set the mode", errno);
  reserve(method, segment.descriptor_, segment.token_.bytes);
  segment.map(segment.token_.bytes);
  std::memcpy(segment.mapped_.data(), secret.data(), sizeof secret);
  return segment;
}

Segment Segment::open(const Token& token) {
  Segment segment;
  segment.token_ = token;
  switch (token.method) {
    case Method::anonymous:
      segment.descriptor_ =
          ::open(fmt::format("/proc/{}/fd/{}", token.process, token.descriptor).c_str(), O_RDWR | O_CLOEXEC);
      break;
    case Method::posix:
      segment.descriptor_ = shm_open(token.name.data(), O_RDWR | O_CLOEXEC, 0);
      break;
    case Method::file:
      segment.descriptor_ = ::open(token.name.data(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
      break;
    default:
      fail(token.method, "no method", EINVAL);
  }
  if (segment.descriptor_ < 0) fail(token.method, "cannot open it", errno);
  segment.file_ = file_of(segment.descriptor_);
  // In another namespace the same number or name may be something else altogether: look before mapping, compare after.
  struct stat facts{};
  if (fstat(segment.descriptor_, &facts) != 0) fail(token.method, "cannot look at it", errno);
  if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid() || static_cast<std::uint64_t>(facts.st_size) != token.bytes)
    throw Error(ErrorClass::other, "shared memory ({}): what has its name here is something else",
                name_of(token.method));
  segment.map(token.bytes);
  if (std::memcmp(segment.mapped_.data(), token.secret.data(), sizeof token.secret) != 0)
    throw Error(ErrorClass::other, "shared memory ({}): what has its name here belongs to another job",
                name_of(token.method));
  return segment;
}

Segment Segment::unshared(std::size_t bytes) {
  Segment segment;
  segment.map(bytes + header_bytes);
  return segment;
}

void Segment::map(std::size_t bytes) {
  const int kind = descriptor_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, descriptor_, 0);
  if (address == MAP_FAILED) fail(token_.method, "cannot map it", errno);
  mapped_ = {static_cast<std::byte*>(address), bytes};
}

void Segment::forget() noexcept {
  if (!std::exchange(named_, false)) return;
  if (token_.method == Method::posix) shm_unlink(token_.name.data());
  if (token_.method == Method::file) unlink(token_.name.data());
}

bool Segment::hold_mark(int index) noexcept {
  // By a description of its own: the mapping holds the one that it was made with, in each child of fork(), too.
  std::array<char, 32> path{};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/fd/{}", descriptor_);
  const int own = ::open(path.data(), O_RDWR | O_CLOEXEC);
  if (own >= 0) {
    dup3(own, descriptor_, O_CLOEXEC);
    ::close(own);
  }
  struct flock lock = lock_of(index);
  return fcntl(descriptor_, F_OFD_SETLK, &lock) == 0;
}

void Segment::leave_marks() noexcept { close_descriptor(); }

// Another file has no marks, and everybody would be taken for gone.
bool Segment::mark_held(int index) const noexcept {
  struct flock lock = lock_of(index);
  return !has_descriptor() || fcntl(descriptor_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// The memory, while it is mapped, keeps its file's number from being another's.
bool Segment::has_descriptor() const noexcept { return descriptor_ >= 0 && file_of(descriptor_) == file_; }

void Segment::close_descriptor() noexcept {
  if (has_descriptor()) ::close(descriptor_);
  descriptor_ = -1;
}

void Segment::close() noexcept {
  // A child of fork() has a copy of this object, but not the name to remove.
  if (token_.process == getpid()) forget();
  close_descriptor();
  if (!mapped_.empty()) munmap(mapped_.data(), mapped_.size());
  mapped_ = {};
}

Segment::~Segment() { close(); }

Segment::Segment(Segment&& other) noexcept
    : token_(other.token_),
      mapped_(std::exchange(other.mapped_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      file_(other.file_),
      named_(std::exchange(other.named_, false)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this != &other) {
    close();
    token_ = other.token_;
    mapped_ = std::exchange(other.mapped_, {});
    descriptor_ = std::exchange(other.descriptor_, -1);
    file_ = other.file_;
    named_ = std::exchange(other.named_, false);
  }
  return *this;
}

}  // namespace crosslane::share
