// See nccl.h. Multicast (NVLS) stays off: it can put the GPUs of a shared host out of service.
#include "nccl.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace crosslane::bench {
namespace {

constexpr int nccl_float = 7;
constexpr int nccl_sum = 0;

const void* source(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }
void* into(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

/// True where `mine` is on every rank.
bool everywhere(bool mine) {
  int all = mine ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}

template <class Function>
void find(void* library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

}  // namespace

std::string Nccl::load(const std::string& path) {
  setenv("NCCL_NVLS_ENABLE", "0", 0);  // unless the caller says otherwise: Crosslane uses no multicast either
  void* const library = dlopen(path.empty() ? "libnccl.so.2" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "libnccl.so.2 is not installed";
  std::string missing;
  find(library, "ncclGetVersion", functions_.get_version, missing);
  find(library, "ncclGetErrorString", functions_.get_error_string, missing);
  find(library, "ncclGetUniqueId", functions_.get_unique_id, missing);
  find(library, "ncclCommInitRank", functions_.comm_init_rank, missing);
  find(library, "ncclCommDestroy", functions_.comm_destroy, missing);
  find(library, "ncclAllReduce", functions_.all_reduce, missing);
  find(library, "ncclReduce", functions_.reduce, missing);
  find(library, "ncclBroadcast", functions_.broadcast, missing);
  find(library, "ncclAllGather", functions_.all_gather, missing);
  find(library, "ncclReduceScatter", functions_.reduce_scatter, missing);
  find(library, "ncclSend", functions_.send, missing);
  find(library, "ncclRecv", functions_.receive, missing);
  find(library, "ncclGroupStart", functions_.group_start, missing);
  find(library, "ncclGroupEnd", functions_.group_end, missing);
  if (!missing.empty()) return fmt::format("the installed NCCL has no {}", missing);
  std::string newer;
  find(library, "ncclMemAlloc", functions_.memory_allocate, newer);
  find(library, "ncclMemFree", functions_.memory_free, newer);
  find(library, "ncclCommWindowRegister", functions_.window_register, newer);
  find(library, "ncclCommWindowDeregister", functions_.window_deregister, newer);
  functions_.get_version(&version_);
  return {};
}

std::unique_ptr<Nccl> Nccl::open(const std::string& path, bool gpu_of_its_own, bool emulated, std::string& reason) {
  std::unique_ptr<Nccl> nccl(new Nccl);
  if (!everywhere(!emulated)) {
    reason = "the GPUs are emulated";
    return nullptr;
  }
  if (!everywhere(gpu_of_its_own)) {
    reason = "several ranks share a GPU";
    return nullptr;
  }
  const std::string mine = nccl->load(path);
  if (!everywhere(mine.empty())) {
    reason = mine.empty() ? "another rank has no libnccl.so.2" : mine;
    return nullptr;
  }
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Id id{};
  if (rank == 0) nccl->check(nccl->functions_.get_unique_id(&id), "ncclGetUniqueId");
  MPI_Bcast(id.bytes.data(), static_cast<int>(id.bytes.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  const int result = nccl->functions_.comm_init_rank(&nccl->comm_, size, id, rank);
  if (!everywhere(result == 0)) {
    reason = result == 0 ? "another rank's ncclCommInitRank failed"
                         : fmt::format("ncclCommInitRank: {}", nccl->functions_.get_error_string(result));
    return nullptr;
  }
  return nccl;
}

Nccl::~Nccl() {
  if (comm_ != nullptr) functions_.comm_destroy(comm_);
}

void Nccl::check(int result, const char* call) const {
  if (result != 0) throw std::runtime_error(fmt::format("{}: {}", call, functions_.get_error_string(result)));
}

void Nccl::all_reduce(CUdeviceptr send, CUdeviceptr receive, std::size_t count, CUstream stream) const {
  check(functions_.all_reduce(source(send), into(receive), count, nccl_float, nccl_sum, comm_, stream),
        "ncclAllReduce");
}

void Nccl::reduce(CUdeviceptr send, CUdeviceptr receive, std::size_t count, int root, CUstream stream) const {
  check(functions_.reduce(source(send), into(receive), count, nccl_float, nccl_sum, root, comm_, stream), "ncclReduce");
}

void Nccl::broadcast(CUdeviceptr send, CUdeviceptr receive, std::size_t count, int root, CUstream stream) const {
  check(functions_.broadcast(source(send), into(receive), count, nccl_float, root, comm_, stream), "ncclBroadcast");
}

void Nccl::all_gather(CUdeviceptr send, CUdeviceptr receive, std::size_t count, CUstream stream) const {
  check(functions_.all_gather(source(send), into(receive), count, nccl_float, comm_, stream), "ncclAllGather");
}

void Nccl::reduce_scatter(CUdeviceptr send, CUdeviceptr receive, std::size_t count, CUstream stream) const {
  check(functions_.reduce_scatter(source(send), into(receive), count, nccl_float, nccl_sum, comm_, stream),
        "ncclReduceScatter");
}

void Nccl::send(CUdeviceptr from, std::size_t count, int peer, CUstream stream) const {
  check(functions_.send(source(from), count, nccl_float, peer, comm_, stream), "ncclSend");
}

void Nccl::receive(CUdeviceptr to, std::size_t count, int peer, CUstream stream) const {
  check(functions_.receive(into(to), count, nccl_float, peer, comm_, stream), "ncclRecv");
}

void Nccl::group_start() const { check(functions_.group_start(), "ncclGroupStart"); }
void Nccl::group_end() const { check(functions_.group_end(), "ncclGroupEnd"); }

std::unique_ptr<NcclMemory> NcclMemory::open(const Nccl& nccl, std::size_t bytes) {
  const auto& functions = nccl.functions_;
  const bool knows = functions.memory_allocate != nullptr && functions.memory_free != nullptr &&
                     functions.window_register != nullptr && functions.window_deregister != nullptr;
  if (!everywhere(knows)) return nullptr;
  std::unique_ptr<NcclMemory> made(new NcclMemory(nccl));
  constexpr std::size_t page = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT
  const std::size_t pages = (bytes + page - 1) / page * page;
  if (!everywhere(functions.memory_allocate(&made->memory_, pages) == 0)) return nullptr;
  constexpr int symmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
  const int result = functions.window_register(nccl.comm_, made->memory_, pages, &made->window_, symmetric);
  // Without support for it NCCL says that all is well, and gives no window.
  return everywhere(result == 0 && made->window_ != nullptr) ? std::move(made) : nullptr;
}

NcclMemory::~NcclMemory() {
  if (window_ != nullptr) nccl_.functions_.window_deregister(nccl_.comm_, window_);
  if (memory_ != nullptr) nccl_.functions_.memory_free(memory_);
}

}  // namespace crosslane::bench
