// Members of a team as streams of one process: windows with a Control at their start, an area that is double-buffered,
// and LL areas; on all emulated GPUs, or on one of the machine's own.
#pragma once

#include "kernel_machine.h"

#include "gpu/event.h"

#include <functional>
#include <memory>

namespace crosslane::test {

class Members {
 public:
  static constexpr std::size_t slot_bytes = 32 << 10;  // of an LL area or one for lines: 16 KiB of data, or 30
  static constexpr std::size_t area_bytes = 1 << 20;   // of a window, for each parity

  /// `gpus`: 0 for as many as there are. Members are dealt to them in turn.
  Members(const gpu::Driver& driver, std::uint32_t members, int gpus) : driver_(driver), count_(members) {
    int there = 0;
    gpu::check(driver, driver.device_get_count(&there), "cuDeviceGetCount");
    if (gpus == 0 || gpus > there) gpus = there;
    for (int g = 0; g < gpus; ++g) {
      contexts_.push_back(std::make_unique<gpu::PrimaryContext>(driver, g));
      const gpu::ContextScope scope(driver, contexts_.back()->context());
      kernels_.push_back(std::make_unique<kernel::Kernels>(driver));
    }
    for (std::uint32_t m = 0; m < members; ++m) {
      const auto scope = enter(m);
      streams_.push_back(std::make_unique<gpu::Stream>(driver));
      windows_.emplace_back(driver, window_bytes());
      write(driver, windows_.back().data(), Bytes(window_bytes()));
      words_.emplace_back(driver, 4096);
      std::fill_n(words_.back().data(), 4096, std::byte{0});
    }
  }

  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] const kernel::Kernels& kernels(std::uint32_t m) const { return *kernels_[m % kernels_.size()]; }
  [[nodiscard]] gpu::StreamView stream(std::uint32_t m) const { return streams_[m]->view(); }
  [[nodiscard]] std::unique_ptr<gpu::ContextScope> enter(std::uint32_t m) const {
    return std::make_unique<gpu::ContextScope>(driver_, contexts_[m % contexts_.size()]->context());
  }

  [[nodiscard]] kernel::Control* control(std::uint32_t m) const {
    return reinterpret_cast<kernel::Control*>(windows_[m].data());
  }
  /// Where the double-buffered area of launches with an even number begins; the other follows `parity()` bytes later.
  [[nodiscard]] std::uint64_t area(std::uint32_t m) const { return windows_[m].address() + control_bytes; }
  [[nodiscard]] static std::uint64_t parity() { return area_bytes; }
  [[nodiscard]] std::uint64_t low_latency(std::uint32_t m) const { return area(m) + 2 * area_bytes; }
  [[nodiscard]] std::uint64_t lines(std::uint32_t m) const { return low_latency(m) + 2 * count_ * slot_bytes; }

  /// Of member m's next launch. Its limit is long: a test that fails is not to hang.
  [[nodiscard]] kernel::Frame frame(std::uint32_t m) {
    kernel::Frame frame{};
    frame.me = m;
    frame.members = count_;
    for (std::uint32_t p = 0; p < count_; ++p) frame.control[p] = control(p);
    frame.limit = {limit_nanoseconds, word<std::uint32_t>(m, 2)};
    if (tells_host) frame.done = word<std::uint64_t>(m, 0);
    frame.done_value = tells_host ? ++done_value_ : done(m);
    frame.failed = word<std::uint64_t>(m, 1);
    return frame;
  }
  [[nodiscard]] std::uint64_t done(std::uint32_t m) const { return at(m, 0).load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t failed(std::uint32_t m) const { return at(m, 1).load(std::memory_order_acquire); }
  void abort(std::uint32_t m) const { at(m, 2).store(1); }

  /// What the Control of a member holds when nothing runs.
  [[nodiscard]] kernel::Control read_control(std::uint32_t m) const {
    const auto scope = enter(m);
    const Bytes bytes = read(driver_, windows_[m].data(), sizeof(kernel::Control));
    kernel::Control control;
    std::memcpy(&control, bytes.data(), sizeof control);
    return control;
  }
  /// What both areas of a member hold then.
  [[nodiscard]] Bytes read_areas(std::uint32_t m) const {
    const auto scope = enter(m);
    return read(driver_, windows_[m].data() + control_bytes, 2 * area_bytes);
  }
  void write_control(std::uint32_t m, const kernel::Control& control) const {
    const auto scope = enter(m);
    Bytes bytes(sizeof control);
    std::memcpy(bytes.data(), &control, sizeof control);
    write(driver_, windows_[m].data(), bytes);
  }

  /// f(member) enqueues each member's part, in the order given; then waits for all.
  void run(const std::vector<std::uint32_t>& order, const std::function<void(std::uint32_t)>& f) const {
    for (const auto m : order) {
      const auto scope = enter(m);
      f(m);
    }
    wait();
  }
  void wait() const {
    for (std::uint32_t m = 0; m < count_; ++m) {
      const auto scope = enter(m);
      finish(stream(m));
    }
  }

  std::uint64_t limit_nanoseconds = 60'000'000'000;
  bool tells_host = true;  ///< Launches have a word that says when they are done; enqueued calls have none.

 private:
  static constexpr std::size_t control_bytes = (sizeof(kernel::Control) + 255) / 256 * 256;
  [[nodiscard]] std::size_t window_bytes() const { return control_bytes + 2 * area_bytes + 4 * count_ * slot_bytes; }
  template <class T>
  [[nodiscard]] T* word(std::uint32_t m, std::size_t index) const {
    return reinterpret_cast<T*>(words_[m].device_address() + 64 * index);
  }
  [[nodiscard]] std::atomic_ref<std::uint64_t> at(std::uint32_t m, std::size_t index) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(words_[m].data() + 64 * index));
  }

  const gpu::Driver& driver_;
  std::uint32_t count_;
  std::uint64_t done_value_ = 0;
  std::vector<std::unique_ptr<gpu::PrimaryContext>> contexts_;
  std::vector<std::unique_ptr<kernel::Kernels>> kernels_;
  std::vector<std::unique_ptr<gpu::Stream>> streams_;
  std::vector<gpu::Buffer> windows_;
  std::vector<gpu::PinnedBuffer> words_;
};

}  // namespace crosslane::test
