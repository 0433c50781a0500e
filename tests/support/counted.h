// How often the library under test did something, by the counters that it exports, asked for as an application would.
#pragma once

#include "support/program.h"

#include <dlfcn.h>

#include <cstdint>

namespace crosslane::tests {

/// Of what each rank has, by that operation. Collective.
inline std::int64_t over_all(std::int64_t mine, MPI_Op op) {
  std::int64_t all = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Iallreduce(&mine, &all, 1, MPI_INT64_T, op, MPI_COMM_WORLD, &request));
  polite_wait(request);
  return all;
}

/// The sum over all ranks of a counter that the library exports under that name; 0 where there is none. Collective.
inline std::int64_t counted_on_all(const char* name) {
  void* const symbol = dlsym(RTLD_DEFAULT, name);
  const auto mine = symbol == nullptr ? 0 : reinterpret_cast<std::uint64_t (*)()>(symbol)();
  return over_all(static_cast<std::int64_t>(mine), MPI_SUM);
}

}  // namespace crosslane::tests
