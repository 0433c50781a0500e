// The process's object, and the calls that begin and end its life (MPI 5.0, section 11.2).
#include "interpose/process.h"

#include "base/attempt.h"
#include "base/function_ref.h"
#include "base/log.h"
#include "gpu/context.h"
#include "interpose/attached_buffers.h"
#include "interpose/manual.h"
#include "interpose/memories.h"
#include "interpose/route.h"
#include "interpose/teams.h"
#include "interpose/windows.h"
#include "layout/reach.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <utility>

namespace crosslane::interpose {
namespace {

// A program that is linked with one of our libraries may have another preloaded, for the MPI that it runs on. The first that the
// loader's search meets does the work, as its crosslane_* are the ones that are called; the others pass calls on.
bool first_comes_another() noexcept {
  Dl_info first{};
  Dl_info own{};
  const void* const found = dlsym(RTLD_DEFAULT, "crosslane_prepare");
  return found != nullptr && dladdr(found, &first) != 0 &&
         dladdr(reinterpret_cast<const void*>(&first_comes_another), &own) != 0 && first.dli_fbase != own.dli_fbase;
}

// An exception of the application's error handler passes through our frames (raise_caught). The unwinder that is linked in here would
// abort at the first of them, unless it has thrown one before: it then knows the sizes of the machine's registers.
void make_ready_for_exceptions() noexcept {
  struct First {};
  [[maybe_unused]] bool caught = false;
  try {
    throw First{};
  } catch (const First&) {
    caught = true;
  }
}

extern "C" int crosslane_copy_no_end(MPI_Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return mpi::success;
}

extern "C" int crosslane_end(MPI_Comm, int, void* process, void*) {
  static_cast<Process*>(process)->finalizing();
  return mpi::success;
}

}  // namespace

constinit std::atomic<Process*> detail::the_process{nullptr};
constinit thread_local int detail::nesting = 0;

Process& Process::make() noexcept {
  auto* const mine = new Process;
  Process* expected = nullptr;
  if (detail::the_process.compare_exchange_strong(expected, mine, std::memory_order_acq_rel)) return *mine;
  delete mine;  // another thread was first
  return *expected;
}

Process::Process() {
  make_ready_for_exceptions();
  try {
    if (first_comes_another()) {
      settings_.gpu = "none";
      gpu_ = std::make_unique<gpu::Gpu>(settings_);
      return;
    }
    settings_ = base::Settings::from_environment();
    base::set_log_topics(settings_.log);
    choice_ = std::make_unique<collective::Choice>(settings_);
    active_ = !settings_.switched_off();
    const bool nvtx = trace::Tracer::nvtx_wanted();
    if (nvtx || !settings_.trace.empty()) tracer_ = std::make_unique<trace::Tracer>(settings_.trace, nvtx);
    if (settings_.stats) counts_ = std::make_unique<trace::Counts>();
    gpu_ = std::make_unique<gpu::Gpu>(settings_);
  } catch (const std::exception& error) {
    // Reported by MPI_Init or MPI_Session_init, where there is an error handler that can be called.
    settings_error_ = error.what();
    active_ = false;
    settings_ = {};
    settings_.gpu = "none";
    gpu_ = std::make_unique<gpu::Gpu>(settings_);
  }
}

Process::~Process() = default;

const mpi::Functions& Process::find_next(Level level) noexcept {
  try {
    return level == Level::mpi ? library_.next() : library_.below();
  } catch (const std::exception& error) {
    base::log(base::Topic::error, "{}", error.what());
    return absent_;
  }
}

void Process::make_services() {
  if (services_made_.load(std::memory_order_acquire)) [[likely]]
    return;
  std::call_once(services_once_, [this] {
    engine_ = std::make_unique<engine::Engine>(library_.below(), settings_.watchdog_s);
    engine_->trace_into(tracer_.get());
    copier_ = std::make_unique<lane::Copier>(*gpu_, *engine_, settings_);
    layouts_ = std::make_unique<layout::Cache>(library_.below(), library_.handles());
    services_made_.store(true, std::memory_order_release);
  });
}

engine::Engine& Process::engine() {
  make_services();
  return *engine_;
}

lane::Copier& Process::copier() {
  make_services();
  return *copier_;
}

layout::Cache& Process::layouts() {
  make_services();
  return *layouts_;
}

void Process::took_route(const char* call, std::string_view route, std::uint64_t bytes) noexcept {
  try {
    if (counts_ != nullptr) [[unlikely]]
      counts_->add(call, route, bytes);
    if (!base::log_enabled(base::Topic::route)) return;
    const std::lock_guard lock(mutex_);
    if (logged_routes_.insert(fmt::format("{} {}", call, route)).second)
      base::log(base::Topic::route, "{}: {}", call, route);
  } catch (const std::exception& error) {  // for want of memory to tell of it no call fails
    base::log(base::Topic::debug, "{} by {} is not counted: {}", call, route, error.what());
  }
}

// Of each thread its own: another one's error has the same code and other words.
void Process::remember_error(int code, const std::string& message) {
  constexpr std::size_t most = 64;  // threads that have not asked
  const auto thread = std::this_thread::get_id();
  const std::lock_guard lock(mutex_);
  std::erase_if(remembered_, [&](const Remembered& each) { return each.thread == thread; });
  if (remembered_.size() == most) remembered_.pop_front();
  remembered_.push_back({thread, code, message});
}

std::string Process::take_error_message(int code) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(remembered_, std::this_thread::get_id(), &Remembered::thread);
  if (found == remembered_.end() || found->code != code) return {};
  std::string message = std::move(found->message);
  remembered_.erase(found);
  return message;
}

bool Process::may_ask_without_world() noexcept {
  return had_session_.load(std::memory_order_acquire) || mpi::world_exists(next(Level::pmpi));
}

int Process::session_began(MPI_Session session, MPI_Errhandler handler) noexcept {
  had_session_.store(true, std::memory_order_release);
  // A session has a level of its own, which may be higher than what MPI_Init_thread has told, or will; or nothing will.
  if (!multiple()) {
    if (auto* const attended = this->attended()) attended->leave_attended();
    multiple_.store(true, std::memory_order_relaxed);
  }
  if (settings_error_.empty()) return mpi::success;
  const base::Error error(base::ErrorClass::argument, settings_error_);
  if (handler != library_.handles().errors_return)
    return raise(*this, Target::of_session(session), "MPI_Session_init", error);
  // Not by the session: MPICH 4.0 does not know its handler.
  const int code = mpi::error_class(error.error_class());
  remember_error(code, "MPI_Session_init: " + settings_error_);
  return code;
}

int Process::initialized() noexcept {
  if (std::exchange(initialized_, true)) return mpi::success;
  if (!settings_error_.empty())
    return raise(*this, Target::self(), "MPI_Init", base::Error(base::ErrorClass::argument, settings_error_));
  if (!active_) return mpi::success;
  try {
    const Nested nested;
    std::exception_ptr failure;
    base::attempt(failure, [this] {
      form_world();
      finalize_last();
    });
    if (world_ != nullptr && world_->agreed()) world_->confirm(failure != nullptr);
    if (failure) std::rethrow_exception(failure);
  } catch (const base::Error& error) {
    give_up();
    return raise(*this, Target::self(), "MPI_Init", error);
  } catch (const std::exception& error) {
    give_up();
    return raise(*this, Target::self(), "MPI_Init", base::Error(base::ErrorClass::other, error.what()));
  }
  // Of this rank alone: the others count on it all the same.
  return raising(*this, Target::self(), "MPI_Init", [&] {
    const Nested nested;
    if (settings_.mode == base::Mode::automatic && library_.cuda_capable()) {
      base::log(base::Topic::info,
                "the MPI is CUDA-capable itself: Crosslane carries out calls with GPU memory all the same; "
                "CROSSLANE_MODE=passthrough leaves them to it");
    }
    // Not when it is first asked, in some send: another thread may then be in a collective on MPI_COMM_SELF.
    if (gpu_->may_appear()) static_cast<void>(layouts().private_self());
    if (tracer_ != nullptr) tracer_->open(world_->rank());
    return mpi::success;
  });
}

// All ranks do, or none that is agreed with others.
void Process::give_up() noexcept {
  const Nested nested;
  active_ = looks_ = false;
  teams_.reset();
  unexpected_.reset();
  transfers_.reset();
  communicators_.reset();
  world_.reset();
}

// Of MPI's own, not of tools': they would see communicators and messages that no application made.
void Process::form_world() {
  const auto& below = library_.below();
  const auto& handles = library_.handles();
  int level = mpi::thread_single;
  below.Query_thread(&level);
  if (level == mpi::thread_multiple) multiple_.store(true, std::memory_order_relaxed);
  const std::string alike = fmt::format("Crosslane's table of algorithms={:016x}\n", collective::catalogue_hash());
  world_ =
      std::make_unique<team::World>(below, handles, engine(), settings_, gpu_->may_appear(), share::all_methods, alike);
  pthread_atfork(nullptr, nullptr, [] {
    if (team::World* const world = get().world()) world->directory().leave_to_parent();
  });
  communicators_ =
      std::make_unique<team::Communicators>(below, handles, [this](MPI_Comm comm) { return of_session(comm); });
  const bool spans = world_->nodes().nodes() > 1 && choice_->spans_nodes();
  if (world_->agreed() && world_->node_looks() && (world_->directory().ranks() > 1 || spans))
    teams_ = std::make_unique<Teams>(*this, *world_, *communicators_, *choice_);
  if (!world_->agreed()) return;
  transfers_ = std::make_unique<message::Transfers>(below, handles, *world_, *engine_, *copier_, settings_,
                                                    [this]() -> engine::HelperThread& { return teams_->helper(); });
  // A rank alone is never sent a header: what it sends to itself goes plain.
  looks_ = world_->size() > 1 && world_->looks_at_receives(world_->rank());
  if (!looks_) return;
  unexpected_ = std::make_unique<message::Unexpected>(below, handles, world_->cookie(),
                                                      world_->messenger().communicator(), world_->rank());
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF first of all, the last one first (MPI 4.1, 11.2.4), and what it calls for those of the
// application may communicate as before. This one is set before the application's.
void Process::finalize_last() {
  const auto& below = library_.below();
  const auto checked = [&](int code, const char* call) {
    if (code != mpi::success) throw base::Error(base::ErrorClass::other, "{} failed with code {}", call, code);
  };
  int key = 0;
  checked(below.Comm_create_keyval(crosslane_copy_no_end, crosslane_end, &key, nullptr), "MPI_Comm_create_keyval");
  checked(below.Comm_set_attr(library_.handles().comm_self, key, this), "MPI_Comm_set_attr");
  checked(below.Comm_free_keyval(&key), "MPI_Comm_free_keyval");  // which goes with the attribute
}

void Process::finalizing() noexcept {
  if (!active_ || copier_ == nullptr) return;
  const Nested nested;
  // Whatever becomes of one step, the next one comes: other ranks wait in it for this one.
  const auto step = [](base::FunctionRef<void()> body) {
    try {
      body();
    } catch (const std::exception& error) {
      base::log(base::Topic::error, "MPI_Finalize: {}", error.what());
    }
  };
  step([this] { settle(true); });
  step([this] { free_attachments(); });
  step([this] {
    windows_.for_each([](MPI_Win /*handle*/, const std::shared_ptr<Window>& window) {
      if (window->mapped() != nullptr) window->mapped()->leave();
    });
  });
  step([this] { layouts_->release(); });
  for (MPI_Request idle{}; requests_.lend_idle(&idle);) library_.below().Request_free(&idle);
  // First, for others may still read what this rank has sent from the memory that goes with its teams.
  bool over = transfers_ == nullptr;  // else what only the dead could end stays, and with it what it refers to
  if (transfers_) step([&] { over = transfers_->finish(); });
  teams_.reset();
  report();
  looks_ = false;
  unexpected_.reset();
  if (over)
    transfers_.reset();
  else
    static_cast<void>(transfers_.release());
  communicators_.reset();
  if (over)
    world_.reset();
  else
    team::World::leave_behind(std::move(world_));
}

// Of dynamic windows that the program has not freed, which MPIs put up with; but MPICH ends a program that leaves others, such as our tables'.
// Collective: so in one order on all ranks.
void Process::free_attachments() {
  std::vector<std::shared_ptr<Window>> left;
  windows_.for_each([&](MPI_Win /*handle*/, const std::shared_ptr<Window>& window) {
    if (window->attachments() != nullptr) left.push_back(window);
  });
  std::ranges::sort(left, {}, [](const auto& window) { return window->attachments()->order(); });
  for (const auto& window : left) window->attachments()->free();
}

// What the user asked for is printed whatever CROSSLANE_LOG says, in one piece: other ranks print theirs.
void Process::report() noexcept {
  try {
    if (counts_ != nullptr) {
      const std::string table = counts_->table();
      base::log_detail::write(base::Topic::info, "{}", fmt::make_format_args(table));
    }
    if (tracer_ != nullptr && world_ != nullptr) tracer_->write(world_->rank());
  } catch (const std::exception& error) {
    base::log(base::Topic::error, "MPI_Finalize: {}", error.what());
  }
}

// Of several threads one may be on its way into MPI with a receive that was not looked at.
bool Process::take_tokens() noexcept {
  if (multiple() || settings_.direct_bytes >= message::header_bytes) return short_receives_.are_looked_at();
  return short_receives_.look_at();
}

void Process::see_device(int device) {
  if (device_seen_.load(std::memory_order_acquire) || world_ == nullptr) return;
  const share::Uuid uuid = gpu::device_uuid(gpu_->driver(), device);
  const std::lock_guard lock(mutex_);
  if (device_seen_.load(std::memory_order_relaxed)) return;
  world_->directory().see_device(uuid);
  device_seen_.store(true, std::memory_order_release);
}

bool Site::ask(const void* pointer) const noexcept {
  auto& host = process_.host_memory();
  if (is_no_address(pointer) || !driver() || host.knows(pointer)) return false;
  // What nobody can read goes to the route as well, which explains it instead of crashing.
  if (const auto info = process_.gpu().inspect(pointer); info.on_gpu()) {
    seen_ = info;
    return true;
  }
  if (!gpu::Gpu::readable_by_cpu(pointer)) return true;
  host.remember(pointer);
  return false;
}

bool Site::reaches_gpu(const void* buffer, MPI_Count count, MPI_Datatype type) const noexcept {
  if (is_no_address(buffer) || count <= 0 || !driver()) return false;  // with MPI_IN_PLACE the type means nothing
  const auto& below = process_.library().below();
  MPI_Count low = 0, extent = 0;
  if (mpi::calls::Type_get_true_extent(below, type, &low, &extent) != mpi::success) return false;
  // It may lie in several memories, which is found out where it is looked at closely: MPI must not get at it.
  if (static_cast<std::uint64_t>(extent) >= wide_span) return true;
  const auto byte = [&](MPI_Count offset) { return lane::byte_at(buffer, static_cast<std::ptrdiff_t>(offset)); };
  if (low != 0 && on_gpu(byte(low))) return true;
  if (static_cast<std::size_t>(extent) >= gpu::region_bytes) {
    try {
      const Nested nested;
      const auto layout = process_.layouts().of(type);
      const auto lowest = layout->span(count).begin;
      const auto on_one = [this](const std::byte* one) { return on_gpu(one); };
      std::shared_ptr<const layout::Outline> outline;
      try {
        if (layout::is_scattered(*layout)) outline = process_.layouts().outline_of(type);
      } catch (const std::bad_alloc&) {
        base::log(base::Topic::debug, "no memory for a datatype's outline: all of its runs are looked at");
      }
      return (lowest != low && on_gpu(byte(lowest))) || layout::reaches(on_one, buffer, *layout, outline.get(), count);
    } catch (const std::exception&) {
      return false;  // the MPI has its own words for such a type
    }
  }
  MPI_Count lower = 0, step = 0, last = low + extent - 1;
  if (count > 1) {
    if (mpi::calls::Type_get_extent(below, type, &lower, &step) != mpi::success) return false;
    MPI_Count steps = 0;
    if (__builtin_mul_overflow(count - 1, step, &steps) || __builtin_add_overflow(last, steps, &last)) return true;
  }
  return last != 0 && extent > 0 && on_gpu(byte(last));
}

int manual::init(const Site& site, int* argc, char*** argv) {
  const int result = site.next().Init(argc, argv);
  return result == mpi::success ? site.process().initialized() : result;
}

int manual::init_thread(const Site& site, int* argc, char*** argv, int required, int* provided) {
  const int result = site.next().Init_thread(argc, argv, required, provided);
  return result == mpi::success ? site.process().initialized() : result;
}

int manual::session_init(const Site& site, MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  const int result = site.next().Session_init(info, errhandler, session);
  return result == mpi::success ? site.process().session_began(*session, errhandler) : result;
}

// An error that Crosslane raised is explained by its own message, cut to what MPI allows.
int manual::error_string(const Site& site, int errorcode, char* string, int* resultlen) {
  const std::string message = site.outer() ? site.process().take_error_message(errorcode) : std::string{};
  if (message.empty()) return site.next().Error_string(errorcode, string, resultlen);
  const std::size_t length = std::min(message.size(), static_cast<std::size_t>(mpi::max_error_string) - 1);
  std::memcpy(string, message.data(), length);
  string[length] = '\0';
  *resultlen = static_cast<int>(length);
  return mpi::success;
}

}  // namespace crosslane::interpose
