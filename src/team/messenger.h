// Messenger: small nonblocking exchanges on the world's private communicator, as tasks await them. Nonblocking since
// MPIs spin in their blocking calls: eight ranks on two cores took MPICH 250 ms for one MPI_Comm_split_type.
// It must not know what is sent.
#pragma once

#include "engine/engine.h"
#include "mpi/library.h"
#include "team/tags.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace crosslane::team {

/// Throws Error (other) with MPI's own text if `code` is not success.
void check(const mpi::Functions& mpi, int code, std::string_view call);

class Messenger {
 public:
  /// `mpi` and `handles` must outlive it; it does not own the communicator.
  Messenger(const mpi::Functions& mpi, const mpi::Handles& handles, MPI_Comm communicator) noexcept
      : mpi_(mpi), handles_(handles), communicator_(communicator) {}

  [[nodiscard]] MPI_Comm communicator() const noexcept { return communicator_; }

  /// Bytes to and from a rank. The memory must live until the task is finished; errors are thrown.
  engine::Task<> send(std::span<const std::byte> bytes, int to, Tag tag) const;
  engine::Task<> receive(std::span<std::byte> bytes, int from, Tag tag) const;
  /// The same of at most so many bytes; how many came.
  engine::Task<std::size_t> receive_up_to(std::span<std::byte> bytes, int from, Tag tag) const;

  /// Everybody's bytes, equally many from each, to everybody in rank order.
  engine::Task<> all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const;

  /// Everybody's words, equally many from each, combined bit by bit: those remain that all have set.
  engine::Task<> all_and(std::span<std::uint64_t> words) const;

 private:
  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  MPI_Comm communicator_;
};

/// The bytes of a trivially copied object or a container of such.
template <class T>
std::span<const std::byte> bytes_of(const T& object) {
  return std::as_bytes(std::span{&object, 1});
}
template <class T>
std::span<std::byte> bytes_of(T& object) {
  return std::as_writable_bytes(std::span{&object, 1});
}

}  // namespace crosslane::team
