// Preloaded by run_mpi.sh where MPICH over UCX has more ranks than cores: gives the processor away when polling finds nothing. MPICH never does
// (its MPIR_CVAR_POLLS_BEFORE_YIELD is without effect on this device), so that ranks burn whole time slices
// while others have something to do: four times the processor time. It changes nothing that a program could see.
#include <dlfcn.h>
#include <sched.h>

// UCX's ucp_worker_progress (ucp.h): how much it has done.
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
