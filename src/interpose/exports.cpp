// Calls that have no route, and what the library exports besides wrappers: the queries by which applications ask whether
// they may pass GPU memory. Open MPI and MPICH both know the first, MPICH the second.
#include "interpose/exports.h"

#include "base/error.h"
#include "gpu/managed.h"
#include "interpose/process.h"
#include "interpose/teams.h"

#define CROSSLANE_WITHOUT_MPI_H
#include <crosslane/crosslane.h>

#include <cstdint>
#include <string_view>

namespace crosslane::interpose {

int missing(Process& process, const Target& target, const char* call) {
  // Process::next has said that there is no MPI of this family at all.
  if (process.library().found() == nullptr) return mpi::error_class(base::ErrorClass::other);
  return raise(process, target, call,
               base::Error(base::ErrorClass::unsupported,
                           "{}: the MPI that this program runs on does not have this procedure; "
                           "a newer version of it may",
                           call));
}

bool beyond_cpu(const Site& site, const void* pointer) noexcept {
  return site.on_gpu(pointer) && !gpu::shared_with_cpu(site.process().gpu(), pointer);
}

}  // namespace crosslane::interpose

using crosslane::interpose::Process;

namespace {

// Not by its exported name, which may be another library's: a second one of ours asks this one what the MPI below says.
bool takes_gpu_memory() noexcept {
  auto& process = Process::get();
  return (process.active() && process.gpu().enabled()) || process.library().cuda_capable();
}

// Null outside of MPI_Init and MPI_Finalize; peers() where the node's ranks share nothing, too.
crosslane::message::Transfers* transfers() noexcept {
  auto& process = Process::get();
  return process.looks() ? &process.transfers() : nullptr;
}
crosslane::message::PeerMemory* peers() noexcept {
  auto* const found = transfers();
  return found == nullptr ? nullptr : found->peers();
}

}  // namespace

extern "C" CROSSLANE_EXPORT int MPIX_Query_cuda_support();
extern "C" CROSSLANE_EXPORT int MPIX_GPU_query_support(int gpu_type, int* is_supported);

extern "C" std::uint64_t crosslane_direct_calls(const char* collective, const char* algorithm) {
  auto* const teams = Process::get().teams();
  if (teams == nullptr || collective == nullptr) return 0;
  return teams->calls(collective, algorithm == nullptr ? std::string_view{} : std::string_view{algorithm});
}

extern "C" std::uint64_t crosslane_rung_calls() {
  auto* const teams = Process::get().teams();
  return teams == nullptr ? 0 : teams->blocking().rung();
}

extern "C" std::uint64_t crosslane_carried_messages() {
  auto* const found = peers();
  return found == nullptr ? 0 : found->courier().carried();
}

extern "C" std::uint64_t crosslane_written_messages() {
  auto* const found = peers();
  return found == nullptr ? 0 : found->writer().written();
}

extern "C" std::uint64_t crosslane_held_messages() {
  auto* const found = transfers();
  return found == nullptr ? 0 : found->receiver().held();
}

extern "C" std::uint64_t crosslane_taken_back_messages() {
  auto* const found = transfers();
  return found == nullptr ? 0 : found->receiver().taken_back();
}

extern "C" int MPIX_Query_cuda_support() { return takes_gpu_memory() ? 1 : 0; }

extern "C" int MPIX_GPU_query_support(int gpu_type, int* is_supported) {
  constexpr int cuda = 0;  // MPIX_GPU_SUPPORT_CUDA in MPICH's mpi_proto.h; other kinds of GPU are not ours
  *is_supported = gpu_type == cuda && takes_gpu_memory() ? 1 : 0;
  return crosslane::mpi::success;
}
