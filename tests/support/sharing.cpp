// See sharing.h.
#include "support/sharing.h"

#include "support/memory.h"
#include "support/program.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

namespace crosslane::tests {
namespace {

// The UUID of the current GPU, and whether processes' kernels take turns on it.
using Card = std::array<char, sizeof(CUuuid) + 1>;

Card card_of_current_gpu() {
  CUdevice gpu = 0;
  CUuuid uuid{};
  CROSSLANE_CUDA(cuCtxGetDevice(&gpu));
  CROSSLANE_CUDA(cuDeviceGetUuid(&uuid, gpu));
  // Drivers before 12.3 do not know the question; nobody knows then, and turns are what is safe.
  int mps = 0;
  if (cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, gpu) != CUDA_SUCCESS) mps = 0;
  Card card{};
  std::memcpy(card.data(), &uuid, sizeof uuid);
  card.back() = mps != 0 ? 0 : 1;
  return card;
}

// Those of all ranks' current GPUs.
std::vector<Card> cards(MPI_Comm communicator) {
  int size = 1;
  MPI_Comm_size(communicator, &size);
  const Card mine = card_of_current_gpu();
  std::vector<Card> all(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  const int bytes = static_cast<int>(mine.size());
  CROSSLANE_MPI(MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, communicator, &request));
  polite_wait(request);
  return all;
}

}  // namespace

// The emulated driver has this beside the driver's own functions.
bool gpus_are_emulated() { return dlsym(RTLD_DEFAULT, "crosslane_emulated_forbid") != nullptr; }

bool take_turns(MPI_Comm communicator) {
  const std::vector<Card> all = cards(communicator);
  return std::ranges::any_of(all,
                             [&](const Card& card) { return card.back() != 0 && std::ranges::count(all, card) > 1; });
}

bool share_a_gpu(MPI_Comm communicator) {
  const std::vector<Card> all = cards(communicator);
  return std::ranges::any_of(all, [&](const Card& card) { return std::ranges::count(all, card) > 1; });
}

bool lines_stay_whole(MPI_Comm communicator) {
  const std::vector<Card> all = cards(communicator);
  if (gpus_are_emulated()) return true;
  int gpus = 0, atomics = 0;
  CROSSLANE_CUDA(cuDeviceGetCount(&gpus));
  if (gpus > 1)
    CROSSLANE_CUDA(cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
  return atomics != 0 && std::ranges::all_of(all, [&](const Card& card) { return std::ranges::count(all, card) == 1; });
}

std::size_t longest_in_pieces() {
  if (gpus_are_emulated()) return std::numeric_limits<std::size_t>::max();
  const std::size_t most = std::size_t{take_turns(MPI_COMM_WORLD) ? 64U : 256U} << 10;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) fmt::print(stderr, "on this GPU messages with gaps get {} bytes long, no longer\n", most);
  return most;
}

}  // namespace crosslane::tests
