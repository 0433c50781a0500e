// See entry_points.h.
#include "collectives/entry_points.h"

#include <dlfcn.h>

#include <cctype>

namespace crosslane::tests {
namespace {

// True if the MPI itself has the procedure, whoever may be loaded before it.
bool mpi_has(const std::string& name) {
#ifdef CROSSLANE_TEST_MPI_OPENMPI
  constexpr const char* library = "libmpi.so.40";
#else
  constexpr const char* library = "libmpich.so.12";
#endif
  for (const char* file : {library, "libmpi.so.12"}) {
    void* const handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const bool found = dlsym(handle, name.c_str()) != nullptr;
    dlclose(handle);
    return found;
  }
  return false;
}

}  // namespace

EntryPoint EntryPoint::find(const std::string& operation, Form form, bool large) {
  EntryPoint entry;
  entry.form = form;
  entry.large = large;
  std::string stem = operation;
  if (form == Form::nonblocking) {
    stem[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(stem[0])));
    stem = "I" + stem;
  } else if (form == Form::persistent) {
    stem += "_init";
  }
  entry.name = "MPI_" + stem + (large ? "_c" : "");
  // Open MPI 4 has the persistent forms under an extension's names.
  if (form == Form::persistent && !mpi_has("MPI_" + stem)) {
    entry.name = "MPIX_" + stem;
    if (large || !mpi_has(entry.name)) return entry;
  }
  entry.address = dlsym(RTLD_DEFAULT, entry.name.c_str());
  return entry;
}

}  // namespace crosslane::tests
