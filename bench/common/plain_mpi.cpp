// See plain_mpi.h.
#include "common/plain_mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

namespace crosslane::bench {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) throw std::runtime_error(fmt::format("no {} in this process", name));
  std::memcpy(&function, &symbol, sizeof symbol);  // a function pointer and a void* have one representation (POSIX)
}

Calls from(void* library) {
  Calls calls;
  find(library, "MPI_Comm_rank", calls.comm_rank);
  find(library, "MPI_Send", calls.send);
  find(library, "MPI_Recv", calls.recv);
  find(library, "MPI_Sendrecv", calls.sendrecv);
  find(library, "MPI_Isend", calls.isend);
  find(library, "MPI_Irecv", calls.irecv);
  find(library, "MPI_Waitall", calls.waitall);
  find(library, "MPI_Wait", calls.wait);
  find(library, "MPI_Allreduce", calls.allreduce);
  find(library, "MPI_Bcast", calls.bcast);
  find(library, "MPI_Alltoallw", calls.alltoallw);
  return calls;
}

}  // namespace

Calls Calls::bound() { return from(RTLD_DEFAULT); }

Calls Calls::plain() {
  for (const char* soname : {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}) {
    // A handle's own symbols come first in its scope, whatever was preloaded. Never closed: the process keeps it.
    if (void* const library = dlopen(soname, RTLD_NOLOAD | RTLD_NOW); library != nullptr) return from(library);
  }
  throw std::runtime_error("none of libmpi.so.40, libmpi.so.12, libmpich.so.12 is loaded");
}

std::string bound_to() {
  Dl_info info{};
  void* const symbol = dlsym(RTLD_DEFAULT, "MPI_Send");
  return symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "nothing";
}

bool preloaded() { return dlsym(RTLD_DEFAULT, "crosslane_doctor_json") != nullptr; }

}  // namespace crosslane::bench
