// One-sided communication between windows and buffers in every kind of memory.
//   --what <part>   epochs, attributes, dynamic, dynamic_threads, wrong, completion, threads, sharing, many, unified,
//                   unified_threads, short
//   --cases <n>     of epochs: random programs; of dynamic: windows; of what has threads, of many and of short: rounds
//   --only <n>      of epochs: this case alone
#include "direct/parts.h"
#include "one_sided/parts.h"

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  return run_part(argc, argv, "one_sided",
                  {{"epochs", one_sided_epochs},
                   {"attributes", one_sided_attributes},
                   {"dynamic", one_sided_dynamic},
                   {"dynamic_threads", one_sided_dynamic_threads, MPI_THREAD_MULTIPLE},
                   {"wrong", one_sided_wrong},
                   {"completion", one_sided_completion},
                   {"threads", one_sided_threads, MPI_THREAD_MULTIPLE},
                   {"sharing", one_sided_sharing, MPI_THREAD_MULTIPLE},
                   {"many", one_sided_many},
                   {"unified", one_sided_unified},
                   {"unified_threads", one_sided_unified, MPI_THREAD_MULTIPLE},
                   {"short", one_sided_short}});
}
