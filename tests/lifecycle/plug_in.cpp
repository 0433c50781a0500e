// A plug-in that brings MPI into a program that knows nothing of it, as mpi4py does. It must not know Crosslane.
#include "exchange.h"

extern "C" __attribute__((visibility("default"))) int crosslane_test_plug_in(int argc, char** argv);

extern "C" int crosslane_test_plug_in(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "lifecycle_plug_in");
  for (const int count : {1, 1000, 500000}) exchange(program, program.kind(), count, 2);
  return program.finish();
}
