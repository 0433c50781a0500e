// Short messages, most of 8 to 254 bytes: a few words may stand for a payload on the sender's GPU there, which every way to receive has
// to notice, on both sides of the length where that begins and ends. Random programs over every communicator, in each of which every byte,
// status and count is compared, and guards and gaps too. What a rank may be sent depends on what it received before, so each launch also
// draws how it begins: with host receives that are posted before its first GPU receive and completed after it, or with none.
//   --isendrecv 0: leave that call out, which MPICH 4.0 gets wrong by itself; --begin <n>: all ranks begin that way; --routes 1: with CROSSLANE_STATS=1, and then messages of such lengths must have gone directly;
//   --patches <n>: instead, with --routes 1: messages of a page from rank 0 to rank 1, in turns from so many allocations, all directly,
//   or from the <m>th of each on: --uses <m>.
// It must not know Crosslane.
#include "point_to_point/short/beginning.h"
#include "point_to_point/short/cases.h"
#include "point_to_point/short/ring.h"
#include "point_to_point/short/standing.h"
#include "support/sharing.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace crosslane::tests {
namespace {

void run_case(Ring& ring, Standing& standing, bool truncations) {
  switch (ring.shared().below(17)) {
    case 0:
    case 1:
    case 2:
    case 3:
      traffic(ring);
      break;
    case 4:
    case 5:
    case 6:
      one_way(ring);
      break;
    case 7:
      blocking_sends(ring);
      break;
    case 8:
    case 9:
      exchange(ring);
      break;
    case 10:
    case 11:
      if (truncations) truncation(ring);
      break;
    case 12:
      cancelled(ring);
      break;
    case 13:
      if (ring.shared().chance(50)) flood(ring);
      break;
    case 14:
      freed_communicator(ring);
      break;
    case 15:
      probed_past(ring);
      break;
    default:
      standing.run();
  }
}

void run(Program& program, bool tokens_only, int cases, int begin) {
  const bool truncations = !loses_truncations();
  if (!truncations && program.rank == 0)
    fmt::print(stderr, "plain MPI is wrong here: it loses truncations of short messages; left out\n");
  Ring ring(program, tokens_only);
  Standing standing(ring);
  Beginning beginning(ring, begin);
  beginning.run(standing);
  standing.make_all();
  const int until = program.shared().between(0, cases / 2);
  for (ring.case_number = 0; ring.case_number < cases; ++ring.case_number) {
    if (ring.case_number == until) beginning.complete_early();
    run_case(ring, standing, truncations);
    ring.step("the barrier after a case");
    polite_barrier();
  }
  if (until >= cases) beginning.complete_early();
}

// Standard error goes to a file while one lives.
class Captured {
 public:
  Captured() : file_(std::tmpfile()), kept_(dup(STDERR_FILENO)) { dup2(fileno(file_), STDERR_FILENO); }
  /// Ends it; what was written meanwhile.
  std::string end() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
    std::rewind(file_);
    std::string text;
    for (int byte = std::fgetc(file_); byte != EOF; byte = std::fgetc(file_)) text.push_back(static_cast<char>(byte));
    std::fclose(file_);
    return text;
  }

 private:
  std::FILE* file_;
  int kept_;
};

// All calls by this route, of the table of CROSSLANE_STATS.
int calls_by_route(const std::string& text, int rank, const std::string& wanted) {
  const auto who = fmt::format("[rank {}] info: calls with GPU memory", rank);
  std::istringstream lines(text.substr(std::min(text.find(who), text.size())));
  std::string line, call, route;
  std::getline(lines, line);
  int all = 0;
  while (std::getline(lines, line) && line.starts_with("  ")) {
    std::istringstream words(line);
    int calls = 0;
    if (words >> call >> route >> calls && route == wanted) all += calls;
  }
  return all;
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_short");
  const bool routes = program.option("routes", 0) != 0;
  const auto patches = static_cast<std::size_t>(program.option("patches", 0));
  Directly wanted{1, std::numeric_limits<int>::max()};
  if (patches != 0) {
    wanted = send_patches(program, patches, static_cast<int>(program.option("uses", 1)));
  } else {
    run(program, routes, static_cast<int>(program.option("cases", 30)), static_cast<int>(program.option("begin", -1)));
  }
  if (!routes) return program.finish();
  // Short copies are not worth a turn, nor does a rank alone send to anybody.
  const bool none = take_turns(MPI_COMM_WORLD) || program.size == 1;
  std::optional<Captured> captured;
  const int status = program.finish([&] { captured.emplace(); });
  const auto told = captured->end();
  // Of a receiver that came late its sender may have stored the message by then.
  const auto direct = calls_by_route(told, program.rank, "direct") + calls_by_route(told, program.rank, "stored");
  CROSSLANE_CHECK(none ? direct == 0 : direct >= wanted.least && direct <= wanted.most,
                  "{} calls with such messages went directly:\n{}", direct, told);
  return failures() > 0 ? 1 : status;
}
