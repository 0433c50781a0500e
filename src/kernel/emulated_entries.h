// What the emulated_*.cpp files make entries with: rows of an image for the emulated driver.
// No block waits for another one of its own grid, unless `concurrent`, and blocks of different members wait only for those of their own
// index: so an emulated GPU may run a grid's blocks one after another.
#pragma once

#include "kernel/entries.h"

#include <cstring>

namespace crosslane::kernel::detail {

template <class Functor>
void run(const gpu::EmulatedLaunch& launch, void** parameters) {
  typename Functor::Parameters mine;
  std::memcpy(&mine, parameters[0], sizeof(mine));
  Functor{}(EmulatedBlock(launch), mine);
}

template <class Functor>
inline constexpr std::uint32_t parameter_size = sizeof(typename Functor::Parameters);

template <class Functor, bool concurrent = false>
constexpr gpu::EmulatedKernel row(const char* name) {
  return {name, &run<Functor>, concurrent, 1, &parameter_size<Functor>};
}

}  // namespace crosslane::kernel::detail

#define CROSSLANE_EMULATED_ENTRY(name, ...) detail::row<__VA_ARGS__>(#name),
