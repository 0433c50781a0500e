// The nonblocking calls behind the messenger.
#include "team/messenger.h"

#include "base/error.h"
#include "mpi/calls_by_hand.h"

#include <array>
#include <string>

namespace crosslane::team {

void check(const mpi::Functions& mpi, int code, std::string_view call) {
  if (code == mpi::success) return;
  std::array<char, 2048> text{};  // above every family's MPI_MAX_ERROR_STRING
  int length = 0;
  if (mpi.Error_string(code, text.data(), &length) != mpi::success) length = 0;
  throw base::Error(base::ErrorClass::other, "{} failed inside Crosslane: {}", call,
                    std::string_view{text.data(), static_cast<std::size_t>(length)});
}

engine::Task<> Messenger::send(std::span<const std::byte> bytes, int to, Tag tag) const {
  MPI_Request request{};
  check(
      mpi_,
      mpi_.Isend(bytes.data(), static_cast<int>(bytes.size()), handles_.byte, to, value(tag), communicator_, &request),
      "MPI_Isend");
  const int code = co_await engine::Completion::of(&request);
  check(mpi_, code, "MPI_Isend");
}

engine::Task<> Messenger::receive(std::span<std::byte> bytes, int from, Tag tag) const {
  static_cast<void>(co_await receive_up_to(bytes, from, tag));
}

engine::Task<std::size_t> Messenger::receive_up_to(std::span<std::byte> bytes, int from, Tag tag) const {
  MPI_Request request{};
  MPI_Status status{};
  check(mpi_,
        mpi_.Irecv(bytes.data(), static_cast<int>(bytes.size()), handles_.byte, from, value(tag), communicator_,
                   &request),
        "MPI_Irecv");
  const int code = co_await engine::Completion::of(&request, &status);
  check(mpi_, code, "MPI_Irecv");
  MPI_Count count = 0;
  check(mpi_, mpi::calls::Get_count(mpi_, &status, handles_.byte, &count), "MPI_Get_count");
  co_return static_cast<std::size_t>(count);
}

engine::Task<> Messenger::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const {
  MPI_Request request{};
  const int count = static_cast<int>(mine.size());
  check(mpi_,
        mpi_.Iallgather(mine.data(), count, handles_.byte, all.data(), count, handles_.byte, communicator_, &request),
        "MPI_Iallgather");
  const int code = co_await engine::Completion::of(&request);
  check(mpi_, code, "MPI_Iallgather");
}

engine::Task<> Messenger::all_and(std::span<std::uint64_t> words) const {
  MPI_Request request{};
  check(mpi_,
        mpi_.Iallreduce(mpi::in_place(), words.data(), static_cast<int>(words.size()), handles_.uint64, handles_.band,
                        communicator_, &request),
        "MPI_Iallreduce");
  const int code = co_await engine::Completion::of(&request);
  check(mpi_, code, "MPI_Iallreduce");
}

}  // namespace crosslane::team
