// Device memory attached to a dynamic window (MPI 5.0, section 12.2.4). MPI works on host copies of it (shadow.h), while others address it by
// where it lies on the GPU. So each rank keeps a table of what it has attached, and of where the copies lie, in a window of
// its own, which a rank that makes an access looks into. It must not know what is accessed, nor when the copies are synchronised.
#pragma once

#include "interpose/process.h"
#include "mpi/abi.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace crosslane::interpose {

/// Thread-safe. States of a table's version, which its owner writes and others read by MPI_Get:
///
///   even    what is there stands, until the version is another one
///   odd     its owner is changing it: to be read again
///
/// A rank learns of an address from its owner, by whatever means, after that has attached it; so the row is there when it looks.
class Attachments {
 public:
  /// True on all ranks of the communicator, or on none: all load Crosslane, and a GPU may appear in one of them.
  [[nodiscard]] static bool wanted(Process& process, MPI_Comm comm);

  /// Collective over the window's communicator; wanted(). Throws Error (other) where the MPI refuses.
  Attachments(Process& process, MPI_Comm comm);
  /// Collective: nothing is looked up any more. Windows that a program forgets end with the MPI.
  void free() noexcept;
  Attachments(const Attachments&) = delete;
  Attachments& operator=(const Attachments&) = delete;

  /// This rank has attached `bytes` at `base`, of which MPI has a copy. Throws Error (no_memory) where the table is full, (argument) where it
  /// overlaps what is attached already.
  void add(const void* base, std::size_t bytes, const void* copy);
  void remove(const void* base) noexcept;

  /// What MPI is to be told in place of a displacement at that rank of the window: the same in the copy, if it lies in attached
  /// device memory; else itself. Throws Error (other) where the MPI refuses to look.
  [[nodiscard]] MPI_Aint place(int target, MPI_Aint displacement);

 private:
  static constexpr std::size_t most = 1024;
  struct Row {
    std::uint64_t base, bytes, copy;
  };
  struct Table {
    std::atomic<std::uint64_t> version;
    std::uint64_t rows;
    Row row[most];
  };
  // What was seen of another rank's.
  struct Known {
    std::uint64_t version = 0;
    std::vector<Row> rows;
  };
  void get(void* into, std::size_t bytes, std::size_t offset, int target) const;
  [[nodiscard]] std::uint64_t version_of(int target) const;
  void publish() noexcept;
  [[nodiscard]] static MPI_Aint place_in(const std::vector<Row>& rows, MPI_Aint displacement) noexcept;

  Process& process_;
  MPI_Win win_;
  Table* own_ = nullptr;
  int me_ = 0;
  bool on_node_ = false;       // all ranks
  std::mutex mutex_;           // of what follows
  std::vector<Row> attached_;  // here
  std::vector<Known> known_;   // by rank
};

}  // namespace crosslane::interpose
