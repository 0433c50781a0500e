// See home.h.
#include "team/home.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/mapping.h"
#include "team/region.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace crosslane::team {
namespace {

kernel::Kernels kernels_in(const gpu::Driver& driver, CUcontext context) {
  const gpu::ContextScope scope(driver, context);
  return kernel::Kernels(driver);
}

// Drivers before 12.3 do not know the question: then nobody knows.
bool shared_by_mps(const gpu::Driver& driver, int device) {
  int answer = 0;
  return driver.device_get_attribute(&answer, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) == CUDA_SUCCESS && answer != 0;
}

// NVLink, as NCCL relies on it: GPUs that it joins can do atomic operations on each other's memory, and one that can multicast hangs on a
// switch.
share::Links links_of(const gpu::Driver& driver, int ordinal) {
  share::Links links{};
  int gpus = 0, answer = 0;
  CUdevice device = -1, other = -1;
  if (driver.device_get_count(&gpus) != CUDA_SUCCESS || driver.device_get(&device, ordinal) != CUDA_SUCCESS)
    return links;
  for (int peer = 0; peer < gpus && links.joined < share::Links::most_joined; ++peer) {
    if (peer != ordinal && driver.device_get(&other, peer) == CUDA_SUCCESS &&
        driver.device_get_p2p_attribute(&answer, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device, other) ==
            CUDA_SUCCESS &&
        answer != 0)
      links.to[links.joined++] = gpu::device_uuid(driver, peer);
  }
  if (driver.device_get_attribute(&answer, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device) == CUDA_SUCCESS)
    links.on_switch = answer != 0 ? 1 : 0;
  return links;
}

// As much as the driver maps at least: what others open is then nothing of the application's.
constexpr std::size_t door_bytes = std::size_t{2} << 20;

}  // namespace

Home::Home(const gpu::Driver& driver, CUcontext context, int device, share::Board& board, base::Unmap unmap)
    : driver_(driver),
      context_(context),
      life_(gpu::Life::of(driver, context)),
      device_(device),
      gpu_(gpu::device_uuid(driver, device)),
      board_(board),
      kernels_(kernels_in(driver, context)),
      window_(driver, context, gpu_, board.own_window()),
      exposure_(driver, context, board, unmap),
      peers_(driver, context, exposure_),
      spares_(driver, context),
      side_by_side_(shared_by_mps(driver, device)) {
  board.own_window().seats = board.take_seats(gpu_, kernels_.resident_team_blocks());
  board.own_window().links = links_of(driver, device);
}

bool Home::show_door() noexcept {
  if (door_settled_.load(std::memory_order_acquire)) return true;
  const std::lock_guard lock(mutex_);
  if (door_settled_.load(std::memory_order_relaxed)) return true;
  try {
    const gpu::ContextScope scope(driver_, context_);
    door_ = gpu::Buffer(driver_, door_bytes);
    const CUipcMemHandle handle = door_.export_handle();
    share::WindowRecord& record = board_.own_window();
    std::memcpy(record.door.data(), &handle, sizeof handle);
    record.door_shown.store(1, std::memory_order_release);
  } catch (const base::Error& error) {
    if (base::is_shortage(error)) {
      base::log(
          std::exchange(door_short_, true) ? base::Topic::info : base::Topic::warning,
          "messages of this rank go through the host until GPU {} has {} MiB of memory for what shows others its own: "
          "{}",
          device_, door_bytes >> 20, error.what());
      return false;
    }
    base::log(base::Topic::info, "messages of this rank are staged, since others cannot open its GPU memory: {}",
              error.what());
  }
  door_settled_.store(true, std::memory_order_release);
  return true;
}

std::optional<bool> Home::opens(int local_rank) noexcept {
  try {
    const gpu::ContextScope scope(driver_, context_);
    exposure_.try_opening(local_rank, board_.window(local_rank).door);
    return true;
  } catch (const std::exception& error) {
    base::log(base::Topic::info, "GPU memory of local rank {} cannot be opened: {}", local_rank, error.what());
    return base::is_shortage(error) || exposure_.has_open(local_rank) ? std::nullopt : std::optional(false);
  }
}

bool Home::show_large_window() {
  const std::lock_guard lock(mutex_);
  if (large_ || large_refused_) return large_.has_value();
  if (large_rests_.rests()) {
    large_rests_.pass();
    return false;
  }
  std::string why = "library memory for that is used up; free communicators that are used no more";
  bool passes = true;
  try {
    large_ = window_.take(large_window_bytes);
  } catch (const base::Error& error) {
    why = error.what();
    passes = base::is_shortage(error);
  }
  if (!large_) {
    if (passes) large_rests_.rest();
    large_refused_ = !passes;
    base::log(std::exchange(large_short_, true) ? base::Topic::info : base::Topic::warning,
              "no window of {} MiB for large reductions, slower algorithms take them{}: {}", large_window_bytes >> 20,
              passes ? " until there is one" : "", why);
    return false;
  }
  share::WindowRecord& record = board_.own_window();
  record.large = large_->region;
  record.large_shown.store(1, std::memory_order_release);
  return true;
}

std::optional<share::Window::Piece> Home::lend_large_window(std::size_t bytes) {
  constexpr std::size_t most_lent = 2 * large_window_bytes;
  const std::lock_guard lock(mutex_);
  if (large_lent_ + bytes > most_lent) return std::nullopt;
  try {
    auto piece = window_.take(bytes);
    if (piece) large_lent_ += bytes;
    return piece;
  } catch (const base::Error& error) {
    base::log(base::Topic::info, "no window for large calls: {}", error.what());
    return std::nullopt;
  }
}

void Home::take_back_large_window(const share::Window::Piece& piece) noexcept {
  window_.give_back(piece);
  const std::lock_guard lock(mutex_);
  large_lent_ -= std::min(large_lent_, piece.bytes);
}

void Home::keep(std::unique_ptr<Leftover> leftover) noexcept {
  const std::lock_guard lock(mutex_);
  leftover->next_ = std::move(leftovers_);
  leftovers_ = std::move(leftover);
}

// They ask the driver, which may wait for the GPU: outside of the lock, as they end.
void Home::let_go() noexcept {
  std::unique_ptr<Leftover> all;
  {
    const std::lock_guard lock(mutex_);
    all = std::move(leftovers_);
  }
  while (all != nullptr) {
    std::unique_ptr<Leftover> one = std::move(all);
    all = std::move(one->next_);
    if (!one->over()) keep(std::move(one));
  }
}

}  // namespace crosslane::team
