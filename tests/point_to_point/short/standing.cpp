// See standing.h.
#include "point_to_point/short/standing.h"

#include "point_to_point/short/draw.h"
#include "point_to_point/short/transfer.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace crosslane::tests {

Standing::~Standing() {
  for (auto& one : receives_) MPI_Request_free(&one.request);
}

void Standing::make(std::size_t until, bool on_host) {
  while (receives_.size() < until) {
    const auto at = receives_.size();
    auto& one = receives_.emplace_back(
        Receive{byte_buffer(ring_, rooms.at(at), on_host ? MemoryKind::host : ring_.kind()), MPI_REQUEST_NULL});
    CROSSLANE_MPI(MPI_Recv_init(one.buffer.address(), one.buffer.count(), one.buffer.type(),
                                ring_.local().chance(30) ? MPI_ANY_SOURCE : ring_.left,
                                first_tag + static_cast<int>(at), ring_.communicator, &one.request));
  }
}

void Standing::run() {
  for (int turn = ring_.shared().between(1, 3); turn > 0; --turn) run_once();
}

void Standing::run_once() {
  auto& local = ring_.local();
  ring_.step("persistent receives, started again");
  std::vector<std::size_t> bytes;
  for (const std::size_t room : rooms) bytes.push_back(std::min(room, draw_length(ring_, ring_.shared())));
  const auto seed = ring_.shared().next();
  const bool at_once = local.chance(50);
  std::array<bool, rooms.size()> finished{};
  std::vector<MPI_Request> requests;
  if (at_once) {
    for (auto& one : receives_) requests.push_back(one.request);
    CROSSLANE_MPI(MPI_Startall(static_cast<int>(requests.size()), requests.data()));
    for (std::size_t i = 0; i < requests.size(); ++i) receives_[i].request = requests[i];
  }
  std::deque<std::pair<TypedBuffer, MPI_Request>> sends;
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    auto& [out, request] = sends.emplace_back(byte_buffer(ring_, bytes[i]), MPI_REQUEST_NULL);
    out.load(pattern(mix(seed, ring_.rank(), i), bytes[i]));
    CROSSLANE_MPI((local.chance(30) ? MPI_Issend : MPI_Isend)(out.address(), out.count(), out.type(), ring_.right,
                                                              first_tag + static_cast<int>(i), ring_.communicator,
                                                              &request));
  }
  ring_.sleep();
  // Probed before they are started: the message is no longer in MPI then.
  if (!at_once && local.chance(50))
    CROSSLANE_MPI(MPI_Probe(ring_.left, first_tag, ring_.communicator, MPI_STATUS_IGNORE));
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    if (!at_once) CROSSLANE_MPI(MPI_Start(&receives_[i].request));
    if (at_once || local.chance(50)) continue;
    finish(i, bytes[i], seed);
    finished.at(i) = true;
  }
  for (std::size_t i = 0; i < receives_.size(); ++i)
    if (!finished.at(i)) finish(i, bytes[i], seed);
  for (auto& [buffer, request] : sends) polite_wait(request);
}

void Standing::finish(std::size_t at, std::size_t bytes, std::uint64_t seed) {
  auto& one = receives_[at];
  MPI_Status status;
  complete(ring_.local(), one.request, &status, true);
  check_bytes(status, bytes, "a persistent receive");
  CROSSLANE_CHECK(status.MPI_SOURCE == ring_.left && status.MPI_TAG == first_tag + static_cast<int>(at),
                  "a persistent receive: source {}, tag {}", status.MPI_SOURCE, status.MPI_TAG);
  one.buffer.check_received(pattern(mix(seed, ring_.left, at), bytes), fmt::format("persistent receive {}", at));
  one.buffer.scramble(ring_.local().next());
}

}  // namespace crosslane::tests
