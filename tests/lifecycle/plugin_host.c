/* Opens a plug-in with RTLD_LOCAL and runs it; has no MPI of its own. Usage: plugin_host <plug-in> */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* const plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (plugin == NULL) {
    fprintf(stderr, "plugin_host: %s\n", argc > 1 ? dlerror() : "which plug-in?");
    return 1;
  }
  int (*run)(void) = NULL;
  *(void**)(&run) = dlsym(plugin, "run_plugin");
  return run == NULL ? 1 : run();
}
