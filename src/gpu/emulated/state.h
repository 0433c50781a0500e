// The emulated driver's state: devices, contexts, what this thread has current, and the way into every entry.
// One object a process, made by the first call and never destroyed: streams work until the process is gone.
// Nothing here is part of the Crosslane library; a driver has state as the real one has.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <system_error>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace crosslane::gpu::emulated {

class Stream;

/// A point in a stream: reached when so many of its actions have completed.
struct Point {
  std::shared_ptr<Stream> stream;
  std::uint64_t count = 0;
  [[nodiscard]] bool reached() const;
  void wait() const;
};

/// Thrown inside, returned by the entry.
struct Failure {
  CUresult code;
};
inline void require(bool holds, CUresult otherwise) {
  if (!holds) throw Failure{otherwise};
}

/// One visible GPU.
struct Device {
  int ordinal = 0;   // as this process counts
  int physical = 0;  // as the node counts, before CUDA_VISIBLE_DEVICES
  std::string name, pci;
  CUuuid uuid{};
  int numa = 0;
  std::size_t memory = 0;  // bytes that cuMemAlloc gives in all
  bool mps = true;         // what it says of itself: processes' kernels run side by side in any case
  std::atomic<std::size_t> used{0};
  CUcontext primary = nullptr;  // guarded by State::mutex
  unsigned primary_references = 0;
  unsigned primary_flags = 0;
};

struct Topology {
  std::vector<std::vector<bool>> peer;  // by physical index
};

class State {
 public:
  std::mutex mutex;                              // contexts, current primary ones, handles of modules
  std::vector<std::unique_ptr<Device>> devices;  // fixed once initialized
  Topology topology;
  std::size_t connections = 0;  // hardware queues that a context's streams share; 0: as many as streams
  std::set<CUcontext> contexts;
  std::set<CUcontext> ended;  // those that were destroyed

  Device& device(CUdevice ordinal) {
    require(ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices.size(), CUDA_ERROR_INVALID_DEVICE);
    return *devices[static_cast<std::size_t>(ordinal)];
  }
  [[nodiscard]] bool can_access(const Device& from, const Device& to) const {
    return from.physical == to.physical ||
           topology.peer[static_cast<std::size_t>(from.physical)][static_cast<std::size_t>(to.physical)];
  }
};

/// The state; made on first use.
State& state();

/// Reads the environment and makes the devices. Throws Failure after saying what is wrong on standard error.
void initialize();

/// What an entry needs and may disturb.
enum Trait : unsigned {
  plain = 0,
  before_init = 1,        // may be called before cuInit
  unsafe_in_capture = 2,  // prohibited while a capture of global mode runs (CUDA: "potentially unsafe API calls")
  allocates = 4,          // allocates or maps: crosslane_emulated_forbid applies
};

/// Checks before an entry's body: initialized, not forked, not at exit, no fault asked for, nothing forbidden.
CUresult before(const char* name, unsigned traits) noexcept;

template <class Body>
CUresult enter(const char* name, unsigned traits, Body&& body) noexcept {
  try {
    if (const CUresult early = before(name, traits); early != CUDA_SUCCESS) return early;
    if constexpr (std::is_same_v<std::invoke_result_t<Body>, CUresult>) {
      return body();  // for answers that are no rarity, which an exception would make slow
    } else {
      body();
      return CUDA_SUCCESS;
    }
  } catch (const Failure& failure) {
    return failure.code;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::system_error&) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// The contexts that this thread has pushed, the current one last.
std::vector<CUcontext>& context_stack();

/// The current context; throws Failure INVALID_CONTEXT when there is none or it was destroyed.
CUctx_st& current();

/// A context by its handle, checked.
CUctx_st& checked(CUcontext context);

CUcontext make_context(Device& device, unsigned flags, bool primary);
/// Stops what runs in the context, drops what waits, and frees the memory that was allocated in it.
void destroy_context(CUcontext context);

/// Prints one line to standard error, "crosslane emulated driver: ...".
void say(const std::string& line);

/// Says why the driver cannot be used, which crosslane_emulated_refusal then tells, and throws.
[[noreturn]] void refuse(CUresult result, const std::string& why);
/// Ends the process: `call` got a handle that went with its context, on which a real driver may crash.
[[noreturn]] void die_of_stale(const char* call);
/// The same as say(), but each `once` only the first time.
void say_once(std::atomic<bool>& once, const std::string& line);

}  // namespace crosslane::gpu::emulated

// A context, as the handle points to it.
struct CUctx_st {
  crosslane::gpu::emulated::Device* device = nullptr;
  bool primary = false;
  unsigned flags = 0;
  unsigned long long id = 0;  // never used twice
  std::mutex order;           // held while work is enqueued, so that the legacy stream sees a consistent past
  std::shared_ptr<crosslane::gpu::emulated::Stream> legacy;
  std::vector<std::shared_ptr<crosslane::gpu::emulated::Stream>> streams;  // created ones and per-thread ones
  // By hardware queue, what it was given last; none: every stream has a queue of its own. Guarded by `order`.
  std::vector<crosslane::gpu::emulated::Point> connections;
  std::set<CUcontext> peers;  // contexts whose memory this one's kernels may use
  std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
};
