// See words.h.
#include "support/words.h"

#include "support/program.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace crosslane::tests {

Words::Words() {
  int size = 1, of_first = getpid();
  CROSSLANE_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Ibcast(&of_first, 1, MPI_INT, 0, MPI_COMM_WORLD, &request));
  polite_wait(request);
  bytes_ = (static_cast<std::size_t>(size) + 1) / 2 * sizeof *words_;
  const std::string name = fmt::format("/crosslane-words-{}", of_first);
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
  CROSSLANE_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes_)) == 0, "shared memory for the pairs' words");
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CROSSLANE_CHECK(memory != MAP_FAILED, "shared memory for the pairs' words");
  close(file);
  words_ = static_cast<std::atomic<int>*>(memory);
  polite_barrier();
  shm_unlink(name.c_str());
}

Words::~Words() { munmap(words_, bytes_); }

}  // namespace crosslane::tests
