// Home: the GPU with which a rank takes part in its node's teams: kernels, window, and other members' windows as mapped
// there. Made when the rank first passes memory of it to a collective. It must not know communicators.
#pragma once

#include "base/backoff.h"
#include "gpu/context.h"
#include "gpu/driver.h"
#include "gpu/life.h"
#include "gpu/spares.h"
#include "kernel/launch.h"
#include "share/board.h"
#include "share/exposure.h"
#include "share/window.h"
#include "team/turns.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

namespace crosslane::team {

/// What the GPU may still use though nobody waits for it.
class Leftover {
 public:
  Leftover() = default;
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;
  virtual ~Leftover() = default;
  /// True once it is known that the GPU does not; never waits.
  [[nodiscard]] virtual bool over() noexcept = 0;

 private:
  friend class Home;
  std::unique_ptr<Leftover> next_;  // in a list that needs no memory: it is kept where there may be none
};

class Home {
 public:
  /// Loads the kernels into `context` of GPU `device`. Throws Error where the GPU cannot have them.
  Home(const gpu::Driver& driver, CUcontext context, int device, share::Board& board, base::Unmap unmap);
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

  [[nodiscard]] const gpu::Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  /// False once the application has destroyed or reset the context: nothing may be asked of it any more.
  [[nodiscard]] bool stands() const noexcept { return !life_.over(); }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] const share::Uuid& gpu() const noexcept { return gpu_; }
  [[nodiscard]] const kernel::Kernels& kernels() const noexcept { return kernels_; }
  [[nodiscard]] share::Board& board() const noexcept { return board_; }
  [[nodiscard]] share::Window& window() noexcept { return window_; }
  [[nodiscard]] share::PeerWindows& peers() noexcept { return peers_; }
  /// Where a region of another rank's window lies here, for as long as this lives. Throws what PeerWindows::reach() does.
  [[nodiscard]] std::byte* reach(int local_rank, share::Region region) {
    return peers_.reach(board_.window(local_rank), local_rank, region, share::Exposure::Closing::at_once);
  }
  [[nodiscard]] share::Exposure& exposure() noexcept { return exposure_; }
  [[nodiscard]] Turns& turns() noexcept { return turns_; }
  /// Before this rank sends: shows memory by which others find out whether they can open this rank's (WindowRecord::door). Not made
  /// with the home, which is made before all buffers of a call have been looked at: it might lie where one of them was freed.
  /// False where the GPU has no memory for it, which is said once: to be tried again.
  bool show_door() noexcept;
  /// Whether another process's memory can be opened here: tried with what it shows for that (WindowRecord::door). Some milliseconds.
  /// Nothing where memory was short, or some of that process's is held open, beside which no more may open: to be tried again.
  [[nodiscard]] std::optional<bool> opens(int local_rank) noexcept;
  /// Shows this rank's window for large reductions to all, which is made at the first call. False where the GPU has no memory for it,
  /// which is looked for again in later calls.
  bool show_large_window();
  /// Valid once it is shown.
  [[nodiscard]] std::byte* large_window() const noexcept { return large_->data; }
  /// The same for the enqueued calls of one communicator, which the GPU sees in no agreed order with others: of a window of its own, of
  /// which a process has few. Nothing where it has no more, or the GPU has no memory.
  [[nodiscard]] std::optional<share::Window::Piece> lend_large_window(std::size_t bytes);
  void take_back_large_window(const share::Window::Piece& piece) noexcept;
  /// Device memory for buffers that kernels cannot use where they are.
  [[nodiscard]] gpu::Spares& spares() noexcept { return spares_; }
  /// Keeps it until it is over(), at the latest to the end: that is asked when others may need what it has.
  void keep(std::unique_ptr<Leftover> leftover) noexcept;
  void let_go() noexcept;
  /// True if several processes' kernels run on the GPU at the same time (MPS, emulation), rather than in turns.
  [[nodiscard]] bool runs_side_by_side() const noexcept { return side_by_side_; }
  /// share::whole_lines if it holds of all these ranks, else nothing. Memory of emulated GPUs is the machine's, whoever shares them.
  [[nodiscard]] std::uint32_t whole_lines(std::span<const int> local_ranks) const noexcept {
    return driver_.emulated || board_.keep_lines_whole(local_ranks) ? share::whole_lines : 0U;
  }

 private:
  const gpu::Driver& driver_;
  CUcontext context_;
  gpu::Life life_;
  int device_;
  share::Uuid gpu_;
  share::Board& board_;
  kernel::Kernels kernels_;
  share::Window window_;
  share::Exposure exposure_;
  share::PeerWindows peers_;
  gpu::Spares spares_;
  Turns turns_;
  bool side_by_side_;
  std::mutex mutex_;
  bool large_refused_ = false, large_short_ = false;
  base::ShortageBackoff large_rests_;  // in calls
  std::optional<share::Window::Piece> large_;
  std::size_t large_lent_ = 0;  // bytes
  gpu::Buffer door_;
  std::atomic<bool> door_settled_{false};
  bool door_short_ = false;
  std::unique_ptr<Leftover> leftovers_;
};

}  // namespace crosslane::team
