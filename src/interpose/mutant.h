// Mutants of the wrappers for tools/mutate, which checks that the tests notice them. Only a build with CROSSLANE_MUTABLE
// has any: elsewhere these functions are constants. It must not know what a wrapper does.
#pragma once

#ifdef CROSSLANE_MUTABLE
#include <cstdlib>
#include <string>
#endif

namespace crosslane::interpose {

#ifdef CROSSLANE_MUTABLE
/// True if the environment asks for this mutant of the procedure, as "MPI_Send removed"; large-count forms go along.
inline bool mutated(const char* call, const char* mutation) {
  const char* const wanted = std::getenv("MUTANT_OF_CROSSLANE");
  if (wanted == nullptr) return false;
  std::string procedure = call;
  if (procedure.ends_with("_c")) procedure.resize(procedure.size() - 2);
  return wanted == procedure + ' ' + mutation;
}
#else
constexpr bool mutated(const char*, const char*) { return false; }
#endif

}  // namespace crosslane::interpose
