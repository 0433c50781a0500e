// See doctor.h. Whatever fails here is a finding, so that one broken part does not hide the others.
#include "api/doctor.h"

#include "api/json.h"
#include "api/surroundings.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "collective/choose.h"
#include "engine/engine.h"
#include "gpu/buffer.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "gpu/driver.h"
#include "gpu/mapping.h"
#include "gpu/marker.h"
#include "gpu/stream.h"
#include "kernel/copies.h"
#include "kernel/launch.h"
#include "kernel/load.h"
#include "mpi/library.h"
#include "trace/tracer.h"

#include <dlfcn.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crosslane::api {
namespace {

using Json = nlohmann::json;

constexpr unsigned written_word = 0xC0551A4E;
constexpr std::size_t exported_bytes = std::size_t{2} << 20;  // CUDA exports whole 2 MiB pages

/// Returns when all that was enqueued on the stream is done.
void finish(const gpu::Driver& driver, gpu::StreamView stream) {
  const mpi::Functions no_mpi{};  // a word is awaited, no request
  constexpr double report_after_s = 60;
  engine::Engine engine(no_mpi, report_after_s);
  gpu::Marker marker(driver);
  const auto reached = marker.post(stream);
  engine::Watch watch;
  watch.call = "crosslane doctor";
  engine.wait(engine::Completion::of(marker.word(), reached), watch);
}

void add_problem(Json& report, std::string_view severity, std::string text, std::string remedy) {
  report["problems"].push_back({{"severity", severity}, {"text", std::move(text)}, {"remedy", std::move(remedy)}});
  if (severity == "error") report["usable"] = false;
}

/// Runs `work`; where it throws, its message becomes an error of the report.
template <class Work>
void attempt(Json& report, std::string_view remedy, Work&& work) {
  try {
    work();
  } catch (const std::exception& error) {
    add_problem(report, "error", error.what(), std::string{remedy});
  }
}

/// The environment's settings but for what is refused of them.
struct Environment {
  std::vector<base::Settings::Refused> refused;
  base::Settings settings = base::Settings::from_environment(refused);

  [[nodiscard]] bool refuses(std::string_view name) const {
    return std::ranges::find(refused, name, &base::Settings::Refused::name) != refused.end();
  }
};

/// All that MPI_Init refuses about the environment, by the same parsers; the first error is in `settings.error`, too.
Environment read_settings(Json& report) {
  constexpr std::string_view correct = "correct the variable, or unset it";
  Environment environment;
  const base::Settings& settings = environment.settings;
  std::vector<std::string> errors;
  for (const auto& one : environment.refused) {
    errors.push_back(one.told);
    add_problem(report, "error", one.told, std::string{correct});
  }
  const auto read = [&](std::string_view remedy, const auto& part) {
    try {
      part();
    } catch (const base::Error& wrong) {
      errors.emplace_back(wrong.what());
      add_problem(report, "error", wrong.what(), std::string{remedy});
    }
  };
  read(correct, [&] { base::set_log_topics(settings.log); });
  for (const auto& algorithms : settings.algorithms) {
    base::Settings alone;
    alone.algorithms.insert(algorithms);
    read(correct, [&] { static_cast<void>(collective::Choice(alone)); });
  }
  if (!settings.trace.empty() && !settings.switched_off())
    read("name a file in a folder that exists and may be written, or unset it",
         [&] { trace::Tracer::try_to_open(settings.trace, 0); });
  Json rows = Json::array();
  for (const auto& row : settings.rows()) {
    rows.push_back({{"name", row.name},
                    {"value", row.value},
                    {"origin", environment.refuses(row.name) ? "default, as the environment's is refused" : row.origin},
                    {"help", row.help}});
  }
  report["settings"] = {{"error", errors.empty() ? "" : errors.front()}, {"rows", std::move(rows)}};
  return environment;
}

/// All may be in order here, and still Crosslane does nothing.
void look_whether_switched_off(Json& report, const base::Settings& settings) {
  if (!settings.switched_off()) return;
  add_problem(report, "warning",
              fmt::format("{}: every call is forwarded untouched, and GPU memory is for the MPI below alone to take",
                          settings.disable ? "CROSSLANE_DISABLE=1" : "CROSSLANE_MODE=passthrough"),
              "unset it to have Crosslane carry out calls with GPU memory");
}

/// Loads the driver library as an application that uses GPUs would have by now.
std::unique_ptr<gpu::Gpu> open_gpu(const base::Settings& settings) {
  if (settings.gpu == "auto") dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return std::make_unique<gpu::Gpu>(settings);
}

std::string uuid(const gpu::Driver& driver, CUdevice device) {
  CUuuid bytes{};
  gpu::check(driver, driver.device_get_uuid(&bytes, device), "cuDeviceGetUuid");
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(bytes.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(bytes.bytes[i]));
  }
  return text;
}

/// The visible GPUs; initializes the driver.
std::vector<CUdevice> devices(const gpu::Driver& driver) {
  const CUresult initialized = driver.initialize(0);
  if (initialized == CUDA_ERROR_NO_DEVICE) return {};  // CUDA_VISIBLE_DEVICES hides all of them, for one
  gpu::check(driver, initialized, "cuInit");
  int count = 0;
  gpu::check(driver, driver.device_get_count(&count), "cuDeviceGetCount");
  std::vector<CUdevice> result(static_cast<std::size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal)
    gpu::check(driver, driver.device_get(&result[static_cast<std::size_t>(ordinal)], ordinal), "cuDeviceGet");
  return result;
}

std::string_view compute_mode(int mode) {
  switch (mode) {
    case CU_COMPUTEMODE_DEFAULT:
      return "shared";
    case CU_COMPUTEMODE_PROHIBITED:
      return "prohibited";
    case CU_COMPUTEMODE_EXCLUSIVE_PROCESS:
      return "one process";
    default:
      return "unknown";
  }
}

Json describe(const gpu::Driver& driver, CUdevice device, int ordinal) {
  std::array<char, 256> name{};
  gpu::check(driver, driver.device_get_name(name.data(), static_cast<int>(name.size()), device), "cuDeviceGetName");
  std::array<char, 64> pci{};
  gpu::check(driver, driver.device_get_pci_bus_id(pci.data(), static_cast<int>(pci.size()), device),
             "cuDeviceGetPCIBusId");
  std::size_t total = 0;
  gpu::check(driver, driver.device_total_mem(&total, device), "cuDeviceTotalMem");
  Json gpu = {
      {"ordinal", ordinal},
      {"name", name.data()},
      {"uuid", uuid(driver, device)},
      {"pci", pci.data()},
      {"total_bytes", total},
      {"free_bytes", 0},
      {"kernels", false},
      {"capability",
       fmt::format("{}.{}", gpu::device_attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal),
                   gpu::device_attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal))},
      {"compute_mode", compute_mode(gpu::device_attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, ordinal))}};
  return gpu;
}

/// With the GPU's context current: without kernels collectives and messages go through the host, which works, but not as anybody wants it.
void look_at_kernels(Json& report, Json& gpu, const gpu::Driver& driver, const base::Settings& settings) {
  const int ordinal = gpu["ordinal"];
  try {
    const kernel::Copies copies(driver, settings.copy_blocks);
    const kernel::Kernels kernels(driver);
    gpu["kernels"] = true;
  } catch (const base::Error& error) {
    constexpr int least_capability = 8;  // CrosslaneFatBinary.cmake
    const int capability = gpu::device_attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal);
    std::string remedy = "update the NVIDIA driver: it may be older than the CUDA toolkit that built the kernels";
    if (base::is_shortage(error))
      remedy = "free memory on it; see nvidia-smi for who has it";
    else if (!kernel::available(driver))
      remedy = "build Crosslane with a CUDA compiler";
    else if (capability < least_capability)
      remedy = "use GPUs of compute capability 8.0 or newer (CUDA_VISIBLE_DEVICES)";
    add_problem(report, "warning",
                fmt::format("GPU {} (compute capability {}) takes no kernels of Crosslane, so that collectives and "
                            "messages on its memory go through the host: {}",
                            ordinal, gpu["capability"].get_ref<const std::string&>(), error.what()),
                std::move(remedy));
  }
}

void look_into_context(Json& report, Json& gpu, const gpu::Driver& driver, const base::Settings& settings) {
  const int ordinal = gpu["ordinal"];
  try {
    const gpu::PrimaryContext primary(driver, ordinal);
    const gpu::ContextScope scope(driver, primary.context());
    std::size_t free = 0;
    std::size_t total = 0;
    gpu::check(driver, driver.mem_get_info(&free, &total), "cuMemGetInfo");
    gpu["free_bytes"] = free;
    look_at_kernels(report, gpu, driver, settings);
  } catch (const base::Error& error) {
    add_problem(
        report, "error", fmt::format("GPU {} cannot be used: {}", ordinal, error.what()),
        gpu["compute_mode"] == "one process"
            ? "another process has it for itself; start MPS, or set the compute mode to default (nvidia-smi -c 0)"
            : "leave it out with CUDA_VISIBLE_DEVICES, or see nvidia-smi for what is wrong with it");
  }
}

void look_at_gpus(Json& report, gpu::Gpu& gpus, const base::Settings& settings) {
  const gpu::Driver& driver = gpus.driver();
  Dl_info object{};
  dladdr(reinterpret_cast<const void*>(driver.initialize), &object);
  int version = 0;
  gpu::check(driver, driver.driver_get_version(&version), "cuDriverGetVersion");
  report["driver"] = {{"found", true},
                      {"emulated", driver.emulated},
                      {"path", object.dli_fname == nullptr ? "" : object.dli_fname},
                      {"version", fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10)}};
  const std::vector<CUdevice> all = devices(driver);
  if (all.empty()) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    add_problem(
        report, "error",
        fmt::format("the driver shows no GPU to this process (CUDA_VISIBLE_DEVICES is {})",
                    visible == nullptr ? "not set" : visible),
        driver.emulated
            ? "set CUDA_VISIBLE_DEVICES to GPUs that exist, or unset it"
            : "set CUDA_VISIBLE_DEVICES to GPUs that exist, or give the container GPUs (docker run --gpus all)");
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    Json gpu = describe(driver, all[i], static_cast<int>(i));
    look_into_context(report, gpu, driver, settings);
    report["gpus"].push_back(std::move(gpu));
  }
  for (const CUdevice from : all) {
    Json row = Json::array();
    for (const CUdevice to : all) {
      int can = from == to ? 1 : 0;
      if (from != to) gpu::check(driver, driver.device_can_access_peer(&can, from, to), "cuDeviceCanAccessPeer");
      row.push_back(can != 0);
    }
    report["peer_access"].push_back(std::move(row));
  }
}

void look_at_driver(Json& report, const Environment& environment) {
  const base::Settings& settings = environment.settings;
  report["driver"] = {{"found", false}, {"emulated", false}, {"path", ""}, {"version", ""}};
  report["gpus"] = Json::array();
  report["peer_access"] = Json::array();
  // Said already, and another driver than the one that was meant tells nothing; the emulated one would read it for itself.
  if (environment.refuses("CROSSLANE_GPU")) return;
  if (settings.gpu == "none") {
    add_problem(report, "note", "CROSSLANE_GPU is none: every buffer counts as host memory", "unset it to use GPUs");
    return;
  }
  const bool emulated = settings.gpu.starts_with("emulated");
  attempt(report,
          emulated ? "correct the variable; docs/settings.md lists those of the emulated driver"
                   : "update the NVIDIA driver; see nvidia-smi",
          [&] {
            const auto gpus = open_gpu(settings);
            if (!gpus->present()) {
              add_problem(report, "error", "no CUDA driver library (libcuda.so.1) on this machine",
                          "install NVIDIA's driver, or try emulated GPUs: --gpus emulated:4");
              return;
            }
            look_at_gpus(report, *gpus, settings);
          });
}

void look_at_mpi(Json& report) {
  report["mpi"] = {{"loaded", false}, {"path", ""}, {"version", ""}};
  const mpi::Library library;
  if (!library.loaded()) {
    add_problem(report, "warning", "no MPI library of this family is loaded: it was not looked at",
                "name a program (crosslane doctor ./program), or install an MPI");
    return;
  }
  attempt(report, "see that this MPI runs a program without Crosslane", [&] {
    const std::string version = library.version();
    report["mpi"] = {{"loaded", true}, {"path", library.path()}, {"version", version.substr(0, version.find('\n'))}};
  });
}

std::string to_hex(const CUipcMemHandle& handle) {
  std::string text;
  for (const char byte : handle.reserved) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

CUipcMemHandle from_hex(std::string_view text) {
  CUipcMemHandle handle{};
  if (text.size() != 2 * sizeof(handle.reserved))
    throw base::Error(base::ErrorClass::argument, "a handle has {} digits, not {}", 2 * sizeof(handle.reserved),
                      text.size());
  for (std::size_t i = 0; i < sizeof(handle.reserved); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      throw base::Error(base::ErrorClass::argument, "'{}' is no handle", text);
    std::memcpy(&handle.reserved[i], &byte, 1);
  }
  return handle;
}

/// What export_memory keeps until the process ends.
struct Exported {
  std::unique_ptr<gpu::Gpu> gpus;
  std::vector<gpu::PrimaryContext> contexts;
  std::vector<gpu::Buffer> buffers;
};

Json export_memory(const Environment& environment) {
  Json report = {{"handles", Json::array()}, {"problems", Json::array()}};
  if (environment.refuses("CROSSLANE_GPU")) return report;
  auto kept = std::make_unique<Exported>();
  kept->gpus = open_gpu(environment.settings);
  if (!kept->gpus->present()) return report;
  const gpu::Driver& driver = kept->gpus->driver();
  const std::vector<CUdevice> all = devices(driver);
  for (std::size_t i = 0; i < all.size(); ++i) {
    attempt(report, "see nvidia-smi for who has the memory, and the compute mode", [&] {
      const auto& context = kept->contexts.emplace_back(driver, static_cast<int>(i));
      const gpu::ContextScope scope(driver, context.context());
      const auto& buffer = kept->buffers.emplace_back(driver, exported_bytes);
      const gpu::Stream stream(driver);
      gpu::check(driver,
                 driver.memset_d32_async(buffer.address(), written_word, exported_bytes / sizeof(written_word),
                                         stream.view().handle()),
                 "cuMemsetD32Async");
      finish(driver, stream);
      try {
        report["handles"].push_back({{"uuid", uuid(driver, all[i])}, {"handle", to_hex(buffer.export_handle())}});
      } catch (const base::Error& error) {
        add_problem(report, "warning",
                    fmt::format("memory of GPU {} cannot be shown to other processes: {}", i, error.what()),
                    "messages and collectives then go through the host; containers need --ipc=host, or one of them for "
                    "all ranks");
      }
    });
  }
  static_cast<void>(kept.release());  // freeing memory that a peer maps is undefined; the process's end frees it
  return report;
}

void open_one(const gpu::Driver& driver, int ordinal, const CUipcMemHandle& handle) {
  const gpu::PrimaryContext primary(driver, ordinal);
  const gpu::ContextScope scope(driver, primary.context());
  const gpu::Mapping mapping(driver, handle);
  const gpu::Stream stream(driver);
  std::uint32_t word = 0;
  gpu::copy_async(&word, mapping.data() + exported_bytes - sizeof(word), sizeof(word), stream);
  finish(driver, stream);
  if (word != written_word)
    throw base::Error(base::ErrorClass::intern, "opened, but it reads {:#x} instead of {:#x}", word, written_word);
}

Json import_memory(const Environment& environment, const Json& exported) {
  Json report = {{"opened", Json::array()}, {"problems", Json::array()}};
  const auto gpus = open_gpu(environment.settings);
  const gpu::Driver& driver = gpus->driver();
  const std::vector<CUdevice> all = devices(driver);
  std::string failed;
  for (const Json& one : exported.at("handles")) {
    const CUipcMemHandle handle = from_hex(one.at("handle").get_ref<const std::string&>());
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::string error;
      try {
        open_one(driver, static_cast<int>(i), handle);
      } catch (const base::Error& wrong) {
        error = wrong.what();
        if (failed.empty()) failed = error;
      }
      report["opened"].push_back(
          {{"exporter", one.at("uuid")}, {"importer", uuid(driver, all[i])}, {"ok", error.empty()}, {"error", error}});
    }
  }
  if (!failed.empty())
    add_problem(report, "warning",
                fmt::format("GPU memory of another process cannot be opened everywhere (CUDA IPC): {}", failed),
                "ranks of such GPUs exchange data through host memory; in containers start all ranks in one, or with "
                "--ipc=host and --pid=host");
  return report;
}

}  // namespace
}  // namespace crosslane::api

using namespace crosslane;
using namespace crosslane::api;

extern "C" {

CROSSLANE_EXPORTED const char* crosslane_doctor_json(void) {
  Json report = {{"family", mpi::family}, {"usable", true}, {"problems", Json::array()}};
  try {
    const Environment environment = read_settings(report);
    look_whether_switched_off(report, environment.settings);
    look_at_driver(report, environment);
    look_at_mpi(report);
    report["mps"] = mps_state();
    report["process"] = process_limits();
    for (Json& problem : surroundings_problems(report)) report["problems"].push_back(std::move(problem));
  } catch (const std::exception& error) {
    add_problem(report, "error", error.what(), "report this as a defect of crosslane doctor");
  }
  return line(report);
}

CROSSLANE_EXPORTED const char* crosslane_doctor_mpi_json(void) {
  Json report = {{"initialized", false}, {"cuda", false}, {"problems", Json::array()}};
  try {
    const mpi::Library library;
    if (!library.loaded()) return line(report);
    // A name of its own would be better than a second look, but an MPI can be initialized only once a process.
    if (library.below().Init(nullptr, nullptr) == mpi::success) {
      report["initialized"] = true;
      report["cuda"] = library.cuda_capable();
      library.below().Finalize();
    }
  } catch (const std::exception& error) {
    add_problem(report, "error", error.what(), "see that this MPI runs a program without Crosslane");
  }
  return line(report);
}

CROSSLANE_EXPORTED const char* crosslane_doctor_export_json(void) {
  try {
    return line(export_memory(Environment()));
  } catch (const std::exception& error) {
    return line({{"handles", Json::array()}, {"error", error.what()}});
  }
}

CROSSLANE_EXPORTED const char* crosslane_doctor_import_json(const char* exported) {
  try {
    return line(import_memory(Environment(), Json::parse(exported)));
  } catch (const std::exception& error) {
    return line({{"opened", Json::array()}, {"error", error.what()}});
  }
}
}
