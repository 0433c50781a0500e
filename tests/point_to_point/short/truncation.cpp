// Cases of receives with too little room; see cases.h.
#include "point_to_point/short/cases.h"
#include "point_to_point/short/draw.h"
#include "point_to_point/short/transfer.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

#ifdef OMPI_MAJOR_VERSION
constexpr bool frees_failed_requests = true;  // persistent ones too
#else
constexpr bool frees_failed_requests = false;
#endif

struct Cut {
  std::size_t bytes, room;
  std::uint64_t seed;
};
constexpr int cut_tag = 5;

int error_class(int result) {
  int value = MPI_SUCCESS;
  MPI_Error_class(result, &value);
  return value;
}

void receive_cut(Ring& ring, const Cut& cut) {
  auto& local = ring.local();
  const auto comm = ring.returning;
  const bool fits = cut.bytes <= cut.room;
  auto in = byte_buffer(ring, cut.room);
  const auto way = local.below(8);
  const auto what = fmt::format("way {}: {} bytes into {} in {}", way, cut.bytes, cut.room, in.text());
  MPI_Status status{};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message handle = MPI_MESSAGE_NULL;
  int result = MPI_SUCCESS;
  const int source = local.chance(30) ? MPI_ANY_SOURCE : ring.left;
  const int tag = local.chance(30) ? MPI_ANY_TAG : cut_tag;
  const int room = in.count();
  if (way == 4 || way == 5) {
    CROSSLANE_MPI(MPI_Mprobe(source, tag, comm, &handle, &status));
    check_bytes(status, cut.bytes, "a probe of what may be cut");
  } else if (way == 6) {
    CROSSLANE_MPI(MPI_Probe(source, tag, comm, &status));
    check_bytes(status, cut.bytes, "a probe of what may be cut");
  }
  switch (way) {
    case 0:
    case 6:
      result = MPI_Recv(in.address(), room, in.type(), source, tag, comm, &status);
      break;
    case 1:
      result = MPI_Recv(in.address(), room, in.type(), source, tag, comm, MPI_STATUS_IGNORE);
      break;
    case 4:
      result = MPI_Mrecv(in.address(), room, in.type(), &handle, &status);
      break;
    case 5:
      CROSSLANE_MPI(MPI_Imrecv(in.address(), room, in.type(), &handle, &request));
      result = MPI_Wait(&request, &status);
      break;
    case 7:
      CROSSLANE_MPI(MPI_Recv_init(in.address(), room, in.type(), source, tag, comm, &request));
      CROSSLANE_MPI(MPI_Start(&request));
      result = MPI_Wait(&request, &status);
      CROSSLANE_CHECK(request != MPI_REQUEST_NULL || (!fits && frees_failed_requests),
                      "{}: the persistent request is null", what);
      if (request != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(&request));
      break;
    default:
      CROSSLANE_MPI(MPI_Irecv(in.address(), room, in.type(), source, tag, comm, &request));
      if (way == 2) {
        result = MPI_Wait(&request, &status);
      } else {
        for (int flag = 0; flag == 0 && result == MPI_SUCCESS; sched_yield())
          result = MPI_Test(&request, &flag, &status);
      }
  }
  CROSSLANE_CHECK(error_class(result) == (fits ? MPI_SUCCESS : MPI_ERR_TRUNCATE), "{}: {}", what,
                  describe_mpi_error(result));
  CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "{}: the request is not null", what);
  if (!fits) return;  // any bytes of the buffer may have been written; its guards are looked at
  in.check_received(pattern(mix(cut.seed, ring.left), cut.bytes), what);
  if (way != 1) check_bytes(status, cut.bytes, what);
}

}  // namespace

void truncation(Ring& ring) {
  auto& random = ring.shared();
  std::vector<Cut> cuts;
  for (int i = random.between(1, 5); i > 0; --i) {
    Cut cut{std::max<std::size_t>(draw_length(ring, random), 1), 0, random.next()};
    cut.room = random.chance(40) ? cut.bytes + random.below(20) : random.below(cut.bytes);
    cuts.push_back(cut);
  }
  ring.step(fmt::format("{} messages, some of them truncated", cuts.size()));
  std::deque<std::pair<TypedBuffer, MPI_Request>> sends;
  for (const auto& cut : cuts) {
    auto& [out, request] = sends.emplace_back(byte_buffer(ring, cut.bytes), MPI_REQUEST_NULL);
    out.load(pattern(mix(cut.seed, ring.rank()), cut.bytes));
    CROSSLANE_MPI((ring.local().chance(30) ? MPI_Issend : MPI_Isend)(out.address(), out.count(), out.type(), ring.right,
                                                                     cut_tag, ring.returning, &request));
  }
  for (const auto& cut : cuts) {
    ring.sleep();
    receive_cut(ring, cut);
  }
  for (auto& [buffer, request] : sends) polite_wait(request);
}

// MPICH 5.0.2 takes some messages that do not fit for received, in host memory and with nothing preloaded.
bool loses_truncations() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  return std::string_view(version.data()).find("MPICH Version:      5") != std::string_view::npos;
}

}  // namespace crosslane::tests
