// Preloaded into ranks of MPICH over UCX by run_mpi.sh: gives the processor away when polling finds nothing. MPICH never does
// (its MPIR_CVAR_POLLS_BEFORE_YIELD is without effect on this device), so that more ranks than cores burn whole time
// slices: a fourfold of the tests' time. It changes nothing that a program could see.
#include <dlfcn.h>
#include <sched.h>

// UCX's ucp_worker_progress (ucp.h): how much it has done.
extern "C" __attribute__((visibility("default"))) unsigned ucp_worker_progress(void* worker) {
  constexpr unsigned polls_before_yield = 20;
  using Progress = unsigned(void*);
  static Progress* const progress = reinterpret_cast<Progress*>(dlsym(RTLD_NEXT, "ucp_worker_progress"));
  thread_local unsigned idle = 0;
  const unsigned done = progress(worker);
  idle = done != 0 ? 0 : idle + 1;
  if (idle == polls_before_yield) {
    idle = 0;
    sched_yield();
  }
  return done;
}
