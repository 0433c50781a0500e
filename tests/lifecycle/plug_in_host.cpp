// Loads a plug-in and runs it: plug_in_host <plug-in> [argument...]. The plug-in's MPI stays out of the global scope.
// It must not know MPI.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  void* const plug_in = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plug_in == nullptr) {
    static_cast<void>(std::fprintf(stderr, "%s\n", dlerror()));
    return 2;
  }
  void* const symbol = dlsym(plug_in, "crosslane_test_plug_in");
  if (symbol == nullptr) return 2;
  argv[1] = argv[0];
  return reinterpret_cast<int (*)(int, char**)>(symbol)(argc - 1, argv + 1);
}
