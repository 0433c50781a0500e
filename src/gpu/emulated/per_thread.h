// The _ptsz spellings that cuda.h gives to programs compiled for per-thread default streams: the plain entry, with
// stream 0 standing for the thread's own.
#pragma once

#include <cuda.h>

#include <type_traits>

namespace crosslane::gpu::emulated {

inline CUstream stream_0_is_per_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }
template <class Other>
Other stream_0_is_per_thread(Other other) {
  return other;
}

/// Calls the plain entry with a null stream among the arguments replaced.
template <class... Arguments>
CUresult on_per_thread(CUresult (*plain_entry)(Arguments...), std::type_identity_t<Arguments>... arguments) {
  return plain_entry(stream_0_is_per_thread(arguments)...);
}

}  // namespace crosslane::gpu::emulated
