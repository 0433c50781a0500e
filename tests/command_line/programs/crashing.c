/* A library that is broken: it ends the process that asks it. */
#include <signal.h>

const char* crosslane_doctor_json(void) {
  raise(SIGSEGV);
  return "";
}
