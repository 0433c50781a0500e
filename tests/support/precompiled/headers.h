// What most MPI programs of tests and benchmarks include, for builds with precompiled headers (CrosslaneMpi.cmake): not mpi.h, in whose place
// some have Crosslane's own handles. Nothing relies on it.
#pragma once

#include <cuda.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
