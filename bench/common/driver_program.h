// The start and end of a benchmark without MPI, which uses the library's own objects over a driver. Header only: it is a page.
// It must not know what is measured.
#pragma once

#include "gpu/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <stdexcept>

namespace crosslane::bench {

/// `run` with the initialised driver of libcuda.so.1 and the command line; what it throws is printed behind `name`.
/// The process's exit status.
template <class Run>
int driver_program(const char* name, int count, char** words, Run run) {
  try {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error("no libcuda.so.1 here");
    const auto driver = gpu::Driver::from_library(library);
    gpu::check(driver, driver.initialize(0), "cuInit");
    run(driver, count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
  return 0;
}

}  // namespace crosslane::bench
