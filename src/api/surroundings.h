// What surrounds a process that Crosslane runs in: MPS, container, namespaces, limits. Part of doctor.
// It must not know GPUs or MPI: it reads files and the environment.
#pragma once

#include <nlohmann/json.hpp>

namespace crosslane::api {

/// {"active": bool, "pipe_directory": text}: is an MPS daemon listening where CUDA would look for it?
[[nodiscard]] nlohmann::json mps_state();

/// Sizes of /dev/shm and of lockable memory (null: unlimited), container, namespaces, CUDA_VISIBLE_DEVICES.
[[nodiscard]] nlohmann::json process_limits();

/// The problems that follow from a doctor's report with `mps`, `process`, `gpus` and `peer_access`; a list.
[[nodiscard]] nlohmann::json surroundings_problems(const nlohmann::json& report);

}  // namespace crosslane::api
