// See state.h. Reading the environment, the life of contexts, and the checks before every entry.
#include "gpu/emulated/state.h"

#include "gpu/emulated/capture.h"
#include "gpu/emulated/faults.h"
#include "gpu/emulated/memory.h"

#include <nlohmann/json.hpp>

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <numeric>
#include <string>
#include <string_view>

namespace crosslane::gpu::emulated {
namespace {

enum class Phase { fresh, ready, failed, forked, exiting };

std::atomic<Phase>& phase() {
  static auto& value = *new std::atomic<Phase>(Phase::fresh);
  return value;
}

thread_local int forbidden = 0;  // crosslane_emulated_forbid

// Why the driver cannot be used, as crosslane_emulated_refusal tells it; set once, by the thread that initializes it.
std::atomic<const std::string*>& refusal() {
  static auto& value = *new std::atomic<const std::string*>(nullptr);
  return value;
}

[[noreturn]] void malformed(const std::string& what) { refuse(CUDA_ERROR_INVALID_VALUE, what); }

std::size_t memory_setting() {
  const char* const text = std::getenv("CROSSLANE_EMULATED_MEMORY");
  if (text == nullptr) return std::size_t{16} << 30;
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 10);
  const std::string_view suffix = end;
  const int shift = suffix.empty() ? 0 : suffix == "k" ? 10 : suffix == "m" ? 20 : suffix == "g" ? 30 : -1;
  if (shift < 0 || number == 0 || number > (std::uint64_t{1} << 40 >> shift)) {
    malformed("CROSSLANE_EMULATED_MEMORY is '" + std::string(text) + "'; give bytes with k, m or g, at most 1024g");
  }
  return static_cast<std::size_t>(number) << shift;
}

bool mps_setting() {
  const char* const text = std::getenv("CROSSLANE_EMULATED_MPS");
  const std::string_view value = text == nullptr ? "1" : text;
  if (value != "0" && value != "1") malformed("CROSSLANE_EMULATED_MPS is '" + std::string(value) + "'; give 0 or 1");
  return value == "1";
}

// As NVIDIA's driver reads it. Unset, streams are independent: then nothing depends on how they happen to be numbered.
std::size_t connections_setting() {
  const char* const text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (text == nullptr) return 0;
  const int number = std::atoi(text);
  if (number < 1 || number > 32) malformed("CUDA_DEVICE_MAX_CONNECTIONS is '" + std::string(text) + "'; give 1 to 32");
  return static_cast<std::size_t>(number);
}

// A UUID that every process of every node gives to the same GPU of its node: the ordinal in a fixed pattern. Hosts
// differ in reality, so the host's name is hashed in (FNV-1a).
CUuuid uuid_of(int physical) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char* at = host; *at != '\0'; ++at) hash = (hash ^ static_cast<unsigned char>(*at)) * 0x100000001b3U;
  CUuuid uuid{};
  std::memcpy(uuid.bytes, "emulated", 4);
  std::memcpy(uuid.bytes + 4, &hash, sizeof hash);
  std::memcpy(uuid.bytes + 12, &physical, sizeof physical);
  return uuid;
}

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int at = 0; at < 16; ++at) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[at])));
    if (at == 4 || at == 6 || at == 8 || at == 10) text += '-';
    text += digits;
  }
  return text;
}

// The GPUs that CUDA_VISIBLE_DEVICES names, by index or UUID prefix; the list ends at the first that does not exist. One that begins with
// the UUID of another GPU, as schedulers set it, is about the machine's GPUs: then all are visible.
std::vector<std::size_t> visible(const std::vector<std::unique_ptr<Device>>& all) {
  std::vector<std::size_t> chosen(all.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return chosen;
  std::string_view rest = text;
  const std::string_view first = rest.substr(0, rest.find(','));
  const auto named = [&](const auto& device) { return uuid_text(device->uuid).starts_with(first); };
  if (first.starts_with("MIG-") || (first.starts_with("GPU-") && std::ranges::none_of(all, named))) return chosen;
  chosen.clear();
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    std::size_t index = all.size();
    if (item.starts_with("GPU-")) {
      for (std::size_t at = 0; at < all.size(); ++at) {
        if (uuid_text(all[at]->uuid).starts_with(item)) index = at;
      }
    } else if (const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), index);
               error != std::errc() || end != item.data() + item.size()) {
      index = all.size();
    }
    if (index >= all.size() || std::find(chosen.begin(), chosen.end(), index) != chosen.end()) break;
    chosen.push_back(index);
  }
  return chosen;
}

// A misspelt key would leave a default in force unnoticed.
void require_keys(const nlohmann::json& object, std::initializer_list<std::string_view> known, const std::string& what,
                  const std::string& path) {
  std::string names;
  for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
  if (!object.is_object()) malformed(what + " in " + path + " must be an object with any of " + names);
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      malformed(std::string("\"")
                    .append(key)
                    .append("\" is no key of ")
                    .append(what)
                    .append(" in ")
                    .append(path)
                    .append("; there are ")
                    .append(names));
  }
}

void read_gpu(const nlohmann::json& gpu, Device& device, const std::string& path) {
  require_keys(gpu, {"name", "pci", "numa"}, "a GPU of \"gpus\"", path);
  const auto text = [&](const char* key, std::string& value) {
    const auto found = gpu.find(key);
    if (found == gpu.end()) return;
    if (!found->is_string()) malformed(std::string("\"") + key + "\" of a GPU in " + path + " must be a text");
    value = found->get<std::string>();
  };
  text("name", device.name);
  text("pci", device.pci);
  if (const auto numa = gpu.find("numa"); numa != gpu.end()) {
    constexpr int most = 1 << 20;
    if (!numa->is_number_integer() || *numa < -1 || *numa > most)
      malformed("\"numa\" of a GPU in " + path + " must be a node's number, or -1");
    device.numa = numa->get<int>();
  }
}

// docs/settings.md tells of the format.
void read_topology(const std::string& path, std::vector<std::unique_ptr<Device>>& all, Topology& topology) {
  std::ifstream file(path);
  if (!file) malformed("cannot read the topology file " + path);
  const auto json = nlohmann::json::parse(file, nullptr, false, true);
  if (json.is_discarded() || !json.is_object()) malformed("the topology file " + path + " is no JSON object");
  require_keys(json, {"gpus", "peer"}, "the object", path);
  if (const auto gpus = json.find("gpus"); gpus != json.end()) {
    if (!gpus->is_array()) malformed("\"gpus\" in " + path + " must be a list, one object a GPU");
    for (std::size_t at = 0; at < std::min(all.size(), gpus->size()); ++at) read_gpu((*gpus)[at], *all[at], path);
  }
  if (const auto peer = json.find("peer"); peer != json.end()) {
    for (std::size_t from = 0; from < all.size(); ++from) {
      for (std::size_t to = 0; to < all.size(); ++to) {
        if (!peer->is_array() || from >= peer->size() || !(*peer)[from].is_array() || to >= (*peer)[from].size() ||
            !(*peer)[from][to].is_number()) {
          malformed("\"peer\" in " + path + " must be rows of numbers, one a GPU: 0 for no access, else GB/s");
        }
        topology.peer[from][to] = (*peer)[from][to].get<double>() > 0;
      }
    }
  }
}

}  // namespace

void say(const std::string& line) { std::fprintf(stderr, "crosslane emulated driver: %s\n", line.c_str()); }

void refuse(CUresult result, const std::string& why) {
  say(why);
  refusal().store(new std::string(why));
  throw Failure{result};
}

void say_once(std::atomic<bool>& once, const std::string& line) {
  if (!once.exchange(true)) say(line);
}

State& state() {
  static auto& instance = *new State();
  return instance;
}

void initialize() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (phase().load() == Phase::ready) return;
  require(phase().load() == Phase::fresh, CUDA_ERROR_NO_DEVICE);
  phase().store(Phase::failed);

  int count = 1;
  std::string topology_file;
  constexpr std::string_view prefix = "emulated:";
  if (const char* const text = std::getenv("CROSSLANE_GPU");
      text != nullptr && std::string_view(text).starts_with(prefix)) {
    const char* const begin = text + prefix.size();
    const char* const end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(begin, end, count);
    if (error != std::errc() || count < 1 || count > 64 || (stop != end && *stop != ':')) {
      malformed("CROSSLANE_GPU is '" + std::string(text) + "'; give emulated:<1 to 64>[:<topology file>]");
    }
    if (stop != end) topology_file = stop + 1;
  }
  const std::size_t memory_bytes = memory_setting();
  const bool mps = mps_setting();
  const std::size_t connections = connections_setting();
  read_faults();

  std::vector<std::unique_ptr<Device>> physical;
  for (int index = 0; index < count; ++index) {
    auto device = std::make_unique<Device>();
    device->physical = index;
    device->name = "Crosslane Emulated GPU";
    char pci[32];
    std::snprintf(pci, sizeof pci, "0000:%02X:00.0", 16 + index);
    device->pci = pci;
    device->uuid = uuid_of(index);
    device->memory = memory_bytes;
    device->mps = mps;
    physical.push_back(std::move(device));
  }
  const auto all_gpus = static_cast<std::size_t>(count);
  all.topology.peer.assign(all_gpus, std::vector<bool>(all_gpus, true));
  if (!topology_file.empty()) read_topology(topology_file, physical, all.topology);
  all.connections = connections;
  for (const std::size_t index : visible(physical)) {
    physical[index]->ordinal = static_cast<int>(all.devices.size());
    all.devices.push_back(std::move(physical[index]));
  }
  require(!all.devices.empty(), CUDA_ERROR_NO_DEVICE);
  memory().initialize();
  // A child has our mappings but no stream threads: as with the real driver nothing works there, and nothing breaks.
  pthread_atfork(nullptr, nullptr, [] { phase().store(Phase::forked); });
  phase().store(Phase::ready);
}

CUresult before(const char* name, unsigned traits) noexcept {
  switch (phase().load(std::memory_order_acquire)) {
    case Phase::ready:
      break;
    case Phase::exiting:
      return CUDA_ERROR_DEINITIALIZED;
    case Phase::forked:
      return CUDA_ERROR_NOT_INITIALIZED;
    case Phase::fresh:
    case Phase::failed:
      if ((traits & before_init) == 0) return CUDA_ERROR_NOT_INITIALIZED;
  }
  if ((traits & allocates) != 0 && forbidden > 0) {
    say(std::string(name) +
        " was called where allocating and mapping are forbidden (inside Plan::start): prepare() must do it");
    std::abort();
  }
  if (const CUresult asked_for = fault(name); asked_for != CUDA_SUCCESS) return asked_for;
  if ((traits & unsafe_in_capture) != 0 && unsafe_now()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return CUDA_SUCCESS;
}

void die_of_stale(const char* call) {
  say(std::string(call) + " was called on what went with its context: a real driver may crash");
  std::abort();
}

std::vector<CUcontext>& context_stack() {
  static thread_local std::vector<CUcontext> stack;
  return stack;
}

CUctx_st& checked(CUcontext context) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  require(all.contexts.contains(context), CUDA_ERROR_INVALID_CONTEXT);
  return *context;
}

CUctx_st& current() {
  const auto& stack = context_stack();
  require(!stack.empty() && stack.back() != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  CUcontext const context = stack.back();
  require(!context->aborted->load(std::memory_order_acquire), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return *context;
}

CUcontext make_context(Device& device, unsigned flags, bool primary) {
  // Never freed: streams, events and threads refer to it, and a handle's number is then never used twice.
  auto* const context = new CUctx_st();
  context->device = &device;
  context->flags = flags;
  context->primary = primary;
  static std::atomic<unsigned long long> ids{0};
  context->id = ++ids;
  context->legacy = std::make_shared<Stream>(*context, Stream::Kind::legacy, 0);
  context->connections.resize(state().connections);
  state().contexts.insert(context);
  return context;
}

void destroy_context(CUcontext context) {
  {
    const std::lock_guard lock(state().mutex);
    state().ended.insert(context);
  }
  context->aborted->store(true, std::memory_order_release);
  synchronize(*context);
  memory().free_all_of(context);
}

}  // namespace crosslane::gpu::emulated

// While on (calls nest), allocating or mapping on this thread aborts: whoever starts a plan turns it on.
extern "C" __attribute__((visibility("default"))) void crosslane_emulated_forbid(int on);
void crosslane_emulated_forbid(int on) {
  crosslane::gpu::emulated::forbidden += on != 0 ? 1 : -1;
  if (crosslane::gpu::emulated::forbidden < 0) crosslane::gpu::emulated::forbidden = 0;
}

// Why cuInit was refused, where it was the environment's fault; null otherwise. It lives as long as the process.
extern "C" __attribute__((visibility("default"))) const char* crosslane_emulated_refusal();
const char* crosslane_emulated_refusal() {
  const std::string* const why = crosslane::gpu::emulated::refusal().load();
  return why == nullptr ? nullptr : why->c_str();
}

// The library goes when the process ends: calls then fail as the real driver's do, streams are left to the end.
namespace {
__attribute__((destructor)) void unload() {
  using crosslane::gpu::emulated::phase;
  phase().store(crosslane::gpu::emulated::Phase::exiting);
}
}  // namespace
