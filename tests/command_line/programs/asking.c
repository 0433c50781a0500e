/* Which procedures the MPI has, as a program finds out that runs on several: weak references, and dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

extern int MPI_Init(int* argc, char*** argv);
#define PROCEDURES(DO)                                                                                           \
  DO(MPI_Send)                                                                                                   \
  DO(MPI_Send_c)                                                                                                 \
  DO(MPI_Isendrecv) DO(MPI_Psend_init) DO(MPI_Allreduce_init) DO(MPI_Buffer_attach_c) DO(MPI_Comm_attach_buffer) \
      DO(MPI_Request_get_status_all) DO(MPI_Allgatherv_c) DO(MPI_Neighbor_alltoallw_init)
#define WEAK(name) extern int name(void) __attribute__((weak));
PROCEDURES(WEAK)

int main(int argc, char** argv) {
  if (argc > 1) return MPI_Init(&argc, &argv); /* so that the program links MPI */
#define ASK(name) printf("%s%s%s\n", #name, name ? " weak" : "", dlsym(RTLD_DEFAULT, #name) ? " dlsym" : "");
  PROCEDURES(ASK)
  return 0;
}
