// A rank's buffer of a collective: units of one base in one kind of memory, laid out by a datatype, with an image on the host of
// what it should hold. It must not know collectives, nor Crosslane.
#pragma once

#include "support/memory.h"
#include "support/random_types.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace crosslane::tests {

class Buffer {
 public:
  /// `units` elements of `base`, described by `type`, of whose elements a whole number fits; at `offset` bytes past alignment. It
  /// holds noise.
  Buffer(MemoryKind kind, const Base& base, Type type, std::size_t units, std::size_t offset, std::uint64_t noise);

  [[nodiscard]] void* address() const;
  [[nodiscard]] MPI_Datatype type() const { return type_.handle; }
  /// Elements of type() that hold so many units.
  [[nodiscard]] int count_of(std::size_t units) const;
  [[nodiscard]] std::string text() const;

  /// New noise everywhere, then `packed` from unit `at` on, in memory and image.
  void load(std::span<const std::byte> packed, std::size_t at, std::uint64_t noise);
  /// MPI is to write `packed` there: what else is in the memory must stay.
  void expect(std::span<const std::byte> packed, std::size_t at = 0);
  /// What these units hold after the call is not said by anybody.
  void forget(std::size_t at, std::size_t units);
  /// Compares the memory with what is expected, but for the gaps inside units.
  void check(const std::string& what) const;

 private:
  void place(std::span<const std::byte> packed, std::size_t at);
  // Units that lie one behind the other: body(offset from the start of the memory, the first one's number from `at` on, how many).
  template <class Body>
  void for_each_run(std::size_t at, std::size_t units, Body&& body) const;

  const Base& base_;
  Type type_;
  MPI_Aint low_;
  std::vector<std::byte> image_;
  std::vector<std::uint8_t> ignored_;  // gaps inside units that were received
  Memory memory_;
};

}  // namespace crosslane::tests
