// Faults on demand: CROSSLANE_EMULATED_FAULTS="cuMemAlloc_v2:3,cuIpcOpenMemHandle:*=CUDA_ERROR_INVALID_VALUE" makes the
// third (or every) call of a function fail, with out of memory where no error is named; "cuMemAlloc:3-5" three of them;
// "cuMemAlloc:+3" the third after the program has called crosslane_emulated_arm().
#pragma once

#include <cuda.h>

namespace crosslane::gpu::emulated {

/// The error that this call of `name` is to fail with, or success. A name in the list matches with or without its
/// version suffix (_v2, _v3); calls of _ptsz and _ptds spellings count as the plain one's.
CUresult fault(const char* name) noexcept;

/// From here on calls count for entries with a "+", too.
void arm_faults() noexcept;

/// Reads the list; throws Failure after saying what is malformed.
void read_faults();

/// "CUDA_ERROR_..." to its number; false if there is none of that name.
bool error_by_name(const char* name, CUresult& result) noexcept;

}  // namespace crosslane::gpu::emulated
