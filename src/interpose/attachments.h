// Device memory attached to a dynamic window (MPI 5.0, section 12.2.4). MPI works on host copies of it (shadow.h), while others address it by
// where it lies on the GPU. So each rank keeps a table of what it has attached, and of where the copies lie, in a window of
// its own, which others read when it has changed. It must not know what is accessed, nor when the copies are synchronised.
#pragma once

#include "interpose/process.h"
#include "mpi/abi.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace crosslane::interpose {

/// Thread-safe. States of a table's version, which its owner writes and others read by MPI_Get:
///
///   even    what is there stands, until the version is another one
///   odd     its owner is changing it: to be read again
///
/// Behind each change its owner puts the new version into all others' tables, before the call returns that attaches or detaches. A rank learns of an
/// address from its owner, by whatever means, after that: so it finds in its own table whether it has to read the owner's, and
/// where nobody attaches GPU memory nobody reads. Before any change a table holds zeroes, or, while its owner is still making the
/// window, anything: then nobody looks, either.
class Attachments {
 public:
  /// Collective over the window's communicator. Null where not all its ranks load Crosslane and belong to one MPI_COMM_WORLD, no GPU may
  /// appear in any of them, or the MPI makes no window for the tables; the same on all.
  [[nodiscard]] static std::unique_ptr<Attachments> make(Process& process, MPI_Comm comm);
  /// Collective, too: nobody looks any more. What was attached, and seen of others, still stands.
  void free() noexcept;
  /// Which of two are freed first where all are: equal on all ranks of the communicator.
  [[nodiscard]] std::pair<int, std::int64_t> order() const noexcept { return order_; }
  Attachments(const Attachments&) = delete;
  Attachments& operator=(const Attachments&) = delete;

  /// Throws Error, as add() would.
  void check(const void* base, std::size_t bytes);
  /// This rank has attached `bytes` at `base`, of which MPI has a copy. Throws Error (no_memory) where the table is full, (argument) where it
  /// overlaps what is attached already, (other) where the MPI fails; then nothing has been added. Needs the other ranks' progress in MPI, as far as
  /// the MPI does.
  void add(const void* base, std::size_t bytes, const void* copy);
  /// Throws Error (other) where the MPI fails; this rank has detached it nevertheless.
  void remove(const void* base);

  /// What MPI is to be told in place of a displacement at that rank of the window, for an access to bytes [begin, end) from there: the same in
  /// the copy, if they lie in attached device memory; else itself. Throws Error (argument) where only some of them do, (other) where the
  /// MPI refuses to look.
  [[nodiscard]] MPI_Aint place(int target, MPI_Aint displacement, std::int64_t begin, std::int64_t end);

 private:
  static constexpr std::size_t most = 1024;
  struct Row {
    std::uint64_t base, bytes, copy;
  };
  struct Table {
    std::atomic<std::uint64_t> version;
    std::uint64_t rows;
    Row row[most];
    // Behind it the versions of all ranks' tables, by rank, as these have put them here.
  };
  // What was seen of another rank's.
  struct Known {
    std::mutex mutex;
    std::uint64_t version = 0;
    std::vector<Row> rows;
  };
  Attachments(Process& process, MPI_Comm comm, int ranks);
  [[nodiscard]] bool open(MPI_Comm comm);
  [[nodiscard]] std::atomic<std::uint64_t>& heard_of(int rank) const noexcept;
  void get(void* into, std::size_t bytes, std::size_t offset, int target) const;
  [[nodiscard]] std::uint64_t version_of(int target) const;
  [[nodiscard]] bool looked_at() const noexcept;
  template <class Change>
  [[nodiscard]] int write(const Change& change) noexcept;
  void tell(int written);
  void check_room(const Row& row) const;
  static MPI_Aint place_in(std::span<const Row> rows, MPI_Aint displacement, std::int64_t begin, std::int64_t end);

  Process& process_;
  MPI_Win win_;                         // null where nobody else looks, or no more
  std::pair<int, std::int64_t> order_;  // the first rank in MPI_COMM_WORLD, and how many windows it had then
  int me_ = 0;
  // MPICH 4.0 takes windows to begin at the last multiple of 16, those that it allocates, too.
  struct alignas(64) Line {
    std::byte byte[64];
  };
  std::vector<Line> memory_;
  Table* own_ = nullptr;       // in it, and behind it what was heard
  std::mutex mutex_;           // of changes of the own table, and of
  std::vector<Row> attached_;  // what it holds, and
  std::uint64_t told_ = 0;     // what others are told, which an MPI that fails may send later
  std::vector<Known> known_;   // by rank
};

}  // namespace crosslane::interpose
