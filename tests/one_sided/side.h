// One of two windows of the same shape that go through the same random program: the one under test, in memory of any kind, or the one
// that plain MPI serves, in host memory. What the program reads is noted, to be compared with the other side's. It must not know Crosslane.
#pragma once

#include "one_sided/shape.h"
#include "support/program.h"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::tests {

/// Something the program read.
struct Note {
  std::string text;
  std::vector<std::byte> bytes;
};

class Side {
 public:
  /// Collective over `communicator`, of whose ranks `shapes` are the windows.
  Side(const Program& program, const std::vector<Shape>& shapes, MPI_Comm communicator, MPI_Info info, bool reference,
       std::uint64_t seed);
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  [[nodiscard]] MPI_Win window() const { return window_; }
  [[nodiscard]] MPI_Comm communicator() const { return communicator_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return static_cast<int>(shapes_.size()); }
  [[nodiscard]] const Shape& shape(int rank) const { return shapes_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Shape& own() const { return shape(rank_); }
  /// Memory for an origin's or result's buffer; always draws the same number of choices.
  [[nodiscard]] MemoryKind kind(Random& random) const;

  void step(const std::string& text) const;
  void note(std::string text, std::vector<std::byte> bytes);
  [[nodiscard]] const std::vector<Note>& notes() const { return notes_; }
  void forget_notes() { notes_.clear(); }

  // The window's own memory in this rank, through loads and stores. What MPI 5.0, section 12.7, says of the separate memory model decides
  // when they are allowed: the callers keep these two up to date.
  bool behind =
      false;  ///< Others may have updated the window, which no call of this rank has brought into its memory yet.
  bool unshown = false;  ///< Stores that no call of this rank has shown to others yet.
  bool own_changed =
      false;  ///< By this rank's own operations on its own window, which no call has brought into its memory yet.
  void load_all(const std::string& text);  ///< Notes the window, and what is around it.
  void store(Random& random);              ///< Somewhere.
  void store_own(Random& random);          ///< Where no other rank reaches.
  void load_own(const std::string& text);
  /// Where this byte of the rank's window lies.
  [[nodiscard]] void* address(std::size_t at) const { return memory_.as<char>() + own().before + at; }
  /// A call has brought into the window's memory what others did.
  void caught_up() { behind = own_changed = false; }

  /// Collective: the window goes, the memory stays and is noted.
  void free();

 private:
  void store(Random& random, std::size_t begin, std::size_t end);

  const Program& program_;
  const std::vector<Shape>& shapes_;
  MPI_Comm communicator_;
  int rank_ = 0;
  bool reference_;
  Memory memory_;
  std::vector<std::byte> around_;  // what is before and behind the window, and stays
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<Note> notes_;
};

}  // namespace crosslane::tests
