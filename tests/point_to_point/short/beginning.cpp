// See beginning.h.
#include "point_to_point/short/beginning.h"

#include "point_to_point/short/draw.h"
#include "point_to_point/short/transfer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace crosslane::tests {

Beginning::Beginning(Ring& ring, int begin) : ring_(ring) {
  for (int rank = 0; rank < ring_.size(); ++rank) {
    const auto ways = static_cast<int>(Begin::ways);
    const int drawn = ring_.shared().between(0, ways - 1 + 3);  // the first more often
    const int way = begin >= 0 ? begin : drawn;
    begins_.push_back(way < ways ? static_cast<Begin>(way) : Begin::nothing);
  }
}

void Beginning::run(Standing& standing) {
  const Begin begin = begins_.at(static_cast<std::size_t>(ring_.rank()));
  ring_.step(fmt::format("beginning {}", static_cast<int>(begin)));
  if (begin == Begin::persistent || ring_.local().chance(50)) standing.make(3, true);
  post_early();
  receive_at_once();
  first_gpu_receive();
}

std::vector<Beginning::Early> Beginning::draw_early(int rank) const {
  Random random(mix(ring_.program.seed, rank, 4711));
  const Begin begin = begins_.at(static_cast<std::size_t>(rank));
  std::vector<Early> all;
  if (begin == Begin::nothing || begin == Begin::completed || begin == Begin::blocking) return all;
  for (int i = begin == Begin::persistent ? 1 : random.between(1, 6); i > 0; --i) {
    std::size_t room = random.between(least_token, longest_token);
    if (begin == Begin::other_lengths) room = random.chance(50) ? random.below(least_token) : room + longest_token;
    const std::size_t bytes = random.chance(50) ? room : random.between(std::min(room, least_token), room);
    all.push_back({room,
                   bytes,
                   random.next(),
                   begin == Begin::pending_with_gaps,
                   {},
                   MPI_REQUEST_NULL,
                   begin == Begin::persistent});
  }
  return all;
}

void Beginning::post_early() {
  auto& local = ring_.local();
  early_ = draw_early(ring_.rank());
  for (std::size_t i = 0; i < early_.size(); ++i) {
    auto& one = early_[i];
    Layout layout(ring_.units.bytes());
    if (one.gaps) layout = draw_gaps(ring_);
    one.buffer.emplace(MemoryKind::host, std::move(layout), static_cast<int>(one.room), local.next(), 0);
    auto& buffer = *one.buffer;
    const int tag = first_tag + static_cast<int>(i);
    const int source = local.chance(30) ? MPI_ANY_SOURCE : ring_.left;
    CROSSLANE_MPI((one.persistent ? MPI_Recv_init : MPI_Irecv)(buffer.address(), buffer.count(), buffer.type(), source,
                                                               tag, ring_.communicator, &one.request));
    if (one.persistent) CROSSLANE_MPI(MPI_Start(&one.request));
  }
}

// Every rank sends to its right what that one receives at once.
void Beginning::receive_at_once() {
  const Begin begin = begins_.at(static_cast<std::size_t>(ring_.rank()));
  const MPI_Comm comm = ring_.communicator;
  const int left = ring_.left;
  for (int i = 0; i < 3; ++i) {
    const int tag = 19000 + i;
    const std::size_t bytes = 20 + 40 * static_cast<std::size_t>(i);
    const auto contents = [&](int rank) { return pattern(mix(ring_.program.seed, rank, i, 5), bytes); };
    const auto count = static_cast<int>(bytes);
    auto out = byte_buffer(ring_, bytes);
    out.load(contents(ring_.rank()));
    MPI_Request send = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Isend(out.address(), out.count(), out.type(), ring_.right, tag, comm, &send));
    auto in = byte_buffer(ring_, bytes, MemoryKind::host);
    MPI_Message handle = MPI_MESSAGE_NULL;
    if (begin == Begin::completed) {
      MPI_Request receive = MPI_REQUEST_NULL, vain = MPI_REQUEST_NULL;
      std::array<char, 100> memory{};
      CROSSLANE_MPI(MPI_Irecv(in.address(), count, MPI_BYTE, left, tag, comm, &receive));
      CROSSLANE_MPI(MPI_Irecv(memory.data(), 100, MPI_BYTE, left, never_sent, comm, &vain));
      CROSSLANE_MPI(MPI_Cancel(&vain));
      polite_wait(vain);
      polite_wait(receive);
    } else if (i == 0) {
      CROSSLANE_MPI(MPI_Recv(in.address(), count, MPI_BYTE, left, tag, comm, MPI_STATUS_IGNORE));
    } else {
      CROSSLANE_MPI(MPI_Mprobe(left, tag, comm, &handle, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Mrecv(in.address(), count, MPI_BYTE, &handle, MPI_STATUS_IGNORE));
    }
    in.check_received(contents(left), "before the first GPU receive");
    polite_wait(send);
  }
}

// Nobody sends what was awaited early until the receivers may have begun to take something else for it.
void Beginning::first_gpu_receive() {
  ring_.step("the first receive into GPU memory");
  const MPI_Comm comm = ring_.communicator;
  const Program& program = ring_.program;
  for (int i = 0; i < 2; ++i) {
    const auto contents = [&](int rank) { return pattern(mix(program.seed, rank, i, 6), 64); };
    const bool gpu = program.device() != nullptr && program.memory() != "host";
    auto out = byte_buffer(ring_, 64);
    auto in = byte_buffer(ring_, 64, gpu ? MemoryKind::device : MemoryKind::host);
    out.load(contents(program.rank));
    std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
    const int source = i == 0 && ring_.local().chance(50) ? ring_.left : MPI_ANY_SOURCE;
    CROSSLANE_MPI(MPI_Irecv(in.address(), in.count(), in.type(), source, i, comm, &requests[0]));
    CROSSLANE_MPI(MPI_Isend(out.address(), out.count(), out.type(), ring_.right, i, comm, &requests[1]));
    polite_waitall(requests);
    in.check_received(contents(ring_.left), "the first GPU receive");
  }
  polite_barrier();
}

void Beginning::complete_early() {
  auto& local = ring_.local();
  ring_.step("completing what was posted before the first GPU receive");
  std::vector<std::pair<TypedBuffer, MPI_Request>> sends;
  auto theirs = draw_early(ring_.right);
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    auto out = byte_buffer(ring_, theirs[i].bytes);
    out.load(pattern(theirs[i].seed, theirs[i].bytes));
    sends.emplace_back(std::move(out), MPI_REQUEST_NULL);
    auto& [buffer, request] = sends.back();
    CROSSLANE_MPI((local.chance(30) ? MPI_Issend : MPI_Isend)(buffer.address(), buffer.count(), buffer.type(),
                                                              ring_.right, first_tag + static_cast<int>(i),
                                                              ring_.communicator, &request));
  }
  for (auto& one : early_) {
    MPI_Status status;
    complete(local, one.request, &status, one.persistent);
    one.buffer->check_received(pattern(one.seed, one.bytes), "posted before the first GPU receive");
    check_bytes(status, one.bytes, "posted before the first GPU receive");
    if (one.persistent) CROSSLANE_MPI(MPI_Request_free(&one.request));
  }
  for (auto& [buffer, request] : sends) polite_wait(request);
  early_.clear();
}

}  // namespace crosslane::tests
