// Many messages between neighbours must not grow the process: resident memory, file descriptors and mappings are
// compared between the end of a warm-up and the end. It must not know Crosslane.
#include "support/program.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

struct Footprint {
  std::int64_t resident_kib = 0, descriptors = 0, mappings = 0;
};

Footprint footprint() {
  Footprint result;
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  result.resident_kib = pages * sysconf(_SC_PAGESIZE) / 1024;
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  result.descriptors = std::distance(begin(descriptors), end(descriptors));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++result.mappings;
  return result;
}

class Rank {
 public:
  explicit Rank(Program& program)
      : program_(program),
        left_((program.rank + program.size - 1) % program.size),
        right_((program.rank + 1) % program.size) {
    for (const std::size_t bytes : sizes) {
      buffers_.push_back({Memory(program_.kind(), bytes), Memory(program_.kind(), bytes)});
      buffers_.back()[0].write(pattern(bytes, bytes));
    }
  }

  void run(int messages) {
    const int warm_up = messages / 4;
    exchange(0, warm_up);
    const auto before = footprint();
    exchange(warm_up, messages);
    const auto after = footprint();
    if (program_.rank == 0)
      fmt::print(stderr, "from {} to {} messages: {} to {} KiB resident, {} to {} descriptors, {} to {} mappings\n",
                 warm_up, messages, before.resident_kib, after.resident_kib, before.descriptors, after.descriptors,
                 before.mappings, after.mappings);
    // The MPI's own free lists and the allocator settle late; a leak of 1 KiB a message would be 15 MiB.
    CROSSLANE_CHECK(after.resident_kib - before.resident_kib < 8 * 1024, "resident memory grew from {} to {} KiB",
                    before.resident_kib, after.resident_kib);
    CROSSLANE_CHECK(after.descriptors - before.descriptors < 4, "descriptors grew from {} to {}", before.descriptors,
                    after.descriptors);
    CROSSLANE_CHECK(after.mappings - before.mappings < 32, "mappings grew from {} to {}", before.mappings,
                    after.mappings);
  }

 private:
  static constexpr std::array<std::size_t, 8> sizes{1, 8, 900, 1100, 4096, 10000, 65536, 300000};

  void exchange(int first, int last) {
    for (int i = first; i < last; ++i) {
      if (i % 100 == 0) CROSSLANE_STEP("message {}", i);
      // Mostly short ones; every hundredth message uses memory that did not exist before.
      const auto which =
          i % 16 == 0 ? static_cast<std::size_t>(i / 16) % sizes.size() : static_cast<std::size_t>(i) % 5;
      const auto bytes = sizes.at(which);
      if (i % 100 == 50) {
        buffers_[which] = {Memory(program_.kind(), bytes), Memory(program_.kind(), bytes)};
        buffers_[which][0].write(pattern(bytes, bytes));
      }
      one(buffers_[which][0], buffers_[which][1], static_cast<int>(bytes), i);
    }
  }

  void one(const Memory& out, Memory& in, int bytes, int i) {
    const bool checked = i % 37 == 0;
    if (checked) in.write(std::vector<std::byte>(in.size()));
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    const int tag = i % 1000;
    if (i % 5 == 1) {
      CROSSLANE_MPI(MPI_Recv_init(in.data(), bytes, MPI_BYTE, left_, tag, MPI_COMM_WORLD, requests.data()));
      CROSSLANE_MPI(MPI_Send_init(out.data(), bytes, MPI_BYTE, right_, tag, MPI_COMM_WORLD, &requests[1]));
      CROSSLANE_MPI(MPI_Startall(2, requests.data()));
      for (auto& request : requests) {
        polite_wait(request);
        CROSSLANE_MPI(MPI_Request_free(&request));
      }
    } else if (i % 5 == 2) {
      CROSSLANE_MPI(MPI_Isend(out.data(), bytes, MPI_BYTE, right_, tag, MPI_COMM_WORLD, requests.data()));
      CROSSLANE_MPI(MPI_Recv(in.data(), bytes, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      polite_wait(requests[0]);
    } else {
      CROSSLANE_MPI(MPI_Irecv(in.data(), bytes, MPI_BYTE, left_, tag, MPI_COMM_WORLD, requests.data()));
      CROSSLANE_MPI(MPI_Isend(out.data(), bytes, MPI_BYTE, right_, tag, MPI_COMM_WORLD, &requests[1]));
      for (auto& request : requests) polite_wait(request);
    }
    if (checked) CROSSLANE_CHECK(in.read() == pattern(in.size(), in.size()), "message {} of {} bytes", i, bytes);
  }

  Program& program_;
  int left_, right_;
  std::vector<std::array<Memory, 2>> buffers_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_leak");
  Rank(program).run(static_cast<int>(program.option("cases", 20000)));
  return program.finish();
}
