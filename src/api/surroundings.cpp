// See surroundings.h.
#include "api/surroundings.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace crosslane::api {
namespace {

using Json = nlohmann::json;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool exists(const char* path) { return access(path, F_OK) == 0; }

std::string container() {
  if (exists("/.dockerenv")) return "Docker";
  if (exists("/run/.containerenv")) return "Podman";
  for (const char* name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"})
    if (const std::string image = variable(name); !image.empty()) return fmt::format("Apptainer ({})", image);
  if (!variable("KUBERNETES_SERVICE_HOST").empty()) return "Kubernetes";
  return {};
}

/// How many PID namespaces deep this process is, as far as it can see from inside.
int pid_namespaces() {
  std::ifstream status("/proc/self/status");
  std::string text;
  while (std::getline(status, text)) {
    if (!text.starts_with("NSpid:")) continue;
    std::istringstream words(text.substr(text.find(':') + 1));
    int count = 0;
    for (std::string word; words >> word;) ++count;
    return count;
  }
  return 1;
}

/// The kernel's name for a namespace, equal for processes that share it.
std::string namespace_name(const char* kind) {
  std::array<char, 64> text{};
  const auto length = readlink(fmt::format("/proc/self/ns/{}", kind).c_str(), text.data(), text.size() - 1);
  return length < 0 ? std::string{} : std::string{text.data(), static_cast<std::size_t>(length)};
}

Json problem(std::string_view severity, std::string text, std::string remedy) {
  return {{"severity", severity}, {"text", std::move(text)}, {"remedy", std::move(remedy)}};
}

}  // namespace

Json mps_state() {
  std::string folder = variable("CUDA_MPS_PIPE_DIRECTORY");
  if (folder.empty()) folder = "/tmp/nvidia-mps";
  bool active = false;
  std::ifstream file(folder + "/nvidia-cuda-mps-control.pid");
  if (long daemon = 0; file >> daemon && daemon > 0)
    active = kill(static_cast<pid_t>(daemon), 0) == 0 || errno == EPERM;
  // From inside a container the daemon's number means nothing; its pipe does.
  if (!active) active = exists((folder + "/control").c_str()) && exists((folder + "/control_lock").c_str());
  return {{"active", active}, {"pipe_directory", folder}};
}

Json process_limits() {
  struct statvfs shm{};
  const bool has_shm = statvfs("/dev/shm", &shm) == 0;
  const auto blocks = static_cast<std::uint64_t>(shm.f_frsize);
  struct rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  Json limits = {{"shm_bytes", has_shm ? blocks * shm.f_blocks : 0},
                 {"shm_free_bytes", has_shm ? blocks * shm.f_bavail : 0},
                 {"memlock_bytes", nullptr},
                 {"container", container()},
                 {"pid_namespaces", pid_namespaces()},
                 {"namespaces",
                  {{"pid", namespace_name("pid")}, {"ipc", namespace_name("ipc")}, {"user", namespace_name("user")}}},
                 {"visible_devices", variable("CUDA_VISIBLE_DEVICES")}};
  if (locked.rlim_cur != RLIM_INFINITY) limits["memlock_bytes"] = static_cast<std::uint64_t>(locked.rlim_cur);
  return limits;
}

Json surroundings_problems(const Json& report) {
  Json problems = Json::array();
  constexpr std::uint64_t container_default = std::uint64_t{64} << 20;
  const auto shm = report.at("process").at("shm_bytes").get<std::uint64_t>();
  if (shm <= container_default)
    problems.push_back(problem(
        "warning", fmt::format("/dev/shm holds {} MiB: MPI's own shared memory may not fit with more ranks", shm >> 20),
        "give the container more, e.g. docker run --shm-size=1g or --ipc=host"));
  const Json& gpus = report.at("gpus");
  const bool mps = report.at("mps").at("active").get<bool>();
  bool emulated = report.at("driver").at("emulated").get<bool>();
  if (!gpus.empty() && !mps && !emulated)
    problems.push_back(problem("note",
                               "MPS is not active: several ranks on one GPU take turns instead of running at once",
                               "with more ranks than GPUs start it: nvidia-cuda-mps-control -d"));
  for (const Json& gpu : gpus) {
    if (gpu.at("compute_mode") == "prohibited")
      problems.push_back(problem("warning", fmt::format("GPU {} forbids compute work", gpu.at("ordinal").get<int>()),
                                 "leave it out with CUDA_VISIBLE_DEVICES, or nvidia-smi -c 0"));
    else if (gpu.at("compute_mode") == "one process" && !mps)
      problems.push_back(problem("warning", fmt::format("GPU {} takes one process only", gpu.at("ordinal").get<int>()),
                                 "start MPS, or nvidia-smi -c 0, to run several ranks on it"));
  }
  std::size_t apart = 0;
  const Json& access = report.at("peer_access");
  for (std::size_t one = 0; one < access.size(); ++one)
    for (std::size_t other = 0; other < one; ++other)
      apart += access[one][other].get<bool>() && access[other][one].get<bool>() ? 0 : 1;
  if (apart > 0)
    problems.push_back(problem("note", fmt::format("{} pairs of GPUs have no peer access to each other", apart),
                               "data between them goes through host memory; nvidia-smi topo -p2p r shows why"));
  return problems;
}

}  // namespace crosslane::api
