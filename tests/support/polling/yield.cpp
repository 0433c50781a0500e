// Preloaded by run_mpi.sh where there are as many ranks as cores or more, and not --naps off: who waits and finds nothing gives the
// processor away for a while. A program sees nothing of it; without it tests take half as much processor time again.
//
// sched_yield: a yield leads from one rank that waits to the next, and the one that they wait for has its turn late; so after many in a row
// comes a nap. ucp_worker_progress: MPICH over UCX never yields (its MPIR_CVAR_POLLS_BEFORE_YIELD is without effect on this
// device), so that its ranks would burn whole time slices.
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr long long in_a_row_ns = 20'000;  // from one yield to the next, of a thread that does nothing else
constexpr unsigned yields_before_naps = 16;
constexpr timespec nap{0, 50'000};

long long now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int sched_yield() noexcept {
  thread_local long long last = 0;
  thread_local unsigned yields = 0;
  const long long begun = now_ns();
  yields = begun - last < in_a_row_ns ? yields + 1 : 0;
  if (yields < yields_before_naps)
    syscall(SYS_sched_yield);
  else
    nanosleep(&nap, nullptr);
  last = now_ns();
  return 0;
}

// UCX's (ucp.h): how much it has done.
extern "C" __attribute__((visibility("default"))) unsigned ucp_worker_progress(void* worker) {
  constexpr unsigned polls_before_yield = 50;
  using Progress = unsigned(void*);
  // By name: where a plug-in has brought MPI, UCX is behind nothing in the search order.
  static Progress* const progress =
      reinterpret_cast<Progress*>(dlsym(dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD), "ucp_worker_progress"));
  thread_local unsigned idle = 0;
  const unsigned done = progress(worker);
  idle = done != 0 ? 0 : idle + 1;
  if (idle == polls_before_yield) {
    idle = 0;
    sched_yield();
  }
  return done;
}
