/* Which procedures the MPI has, as a program finds out that runs on several: weak references, and dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#define WEAK(name) extern int name(void) __attribute__((weak))
#define ASK(name) printf("%s%s%s\n", #name, name ? " weak" : "", dlsym(RTLD_DEFAULT, #name) ? " dlsym" : "")

extern int MPI_Init(int* argc, char*** argv);
WEAK(MPI_Send);
WEAK(MPI_Send_c);
WEAK(MPI_Isendrecv);
WEAK(MPI_Psend_init);
WEAK(MPI_Allreduce_init);
WEAK(MPI_Buffer_attach_c);
WEAK(MPI_Comm_attach_buffer);
WEAK(MPI_Request_get_status_all);
WEAK(MPI_Allgatherv_c);
WEAK(MPI_Neighbor_alltoallw_init);

int main(int argc, char** argv) {
  if (argc > 1) return MPI_Init(&argc, &argv); /* so that the program links MPI */
  ASK(MPI_Send);
  ASK(MPI_Send_c);
  ASK(MPI_Isendrecv);
  ASK(MPI_Psend_init);
  ASK(MPI_Allreduce_init);
  ASK(MPI_Buffer_attach_c);
  ASK(MPI_Comm_attach_buffer);
  ASK(MPI_Request_get_status_all);
  ASK(MPI_Allgatherv_c);
  ASK(MPI_Neighbor_alltoallw_init);
  return 0;
}
