// See entry_points.h.
#include "collectives/entry_points.h"

#include "support/beneath.h"

#include <dlfcn.h>

#include <cctype>

namespace crosslane::tests {

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
  if (form == Form::persistent && beneath(("MPI_" + stem).c_str()) == nullptr) {
    entry.name = "MPIX_" + stem;
    if (large || beneath(entry.name.c_str()) == nullptr) return entry;
  }
  entry.address = dlsym(RTLD_DEFAULT, entry.name.c_str());
  return entry;
}

}  // namespace crosslane::tests
