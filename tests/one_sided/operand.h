// A buffer that a one-sided call reads or fills: so many elements of a random datatype in memory of its own, all of whose other bytes
// must stay. It must not know Crosslane.
#pragma once

#include "support/memory.h"
#include "support/random_types.h"

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace crosslane::tests {

class Operand {
 public:
  /// No memory: a null address and no elements, of a type that is not ours.
  explicit Operand(MPI_Datatype type = MPI_BYTE) : nothing_(type) {}
  Operand(MemoryKind kind, Type type, int count, std::size_t offset);

  [[nodiscard]] bool empty() const { return memory_ == nullptr; }
  /// From the first byte that an element touches to the last.
  [[nodiscard]] std::size_t bytes() const { return memory_->size(); }
  void write(std::vector<std::byte> contents);

  // What MPI is given.
  [[nodiscard]] void* address() const { return empty() ? nullptr : memory_->as<char>() - low_; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] MPI_Datatype type() const { return empty() ? nothing_ : type_.handle; }
  /// The datatype goes away, which a call that was made already must not mind.
  void free_type() { type_.release(); }

  [[nodiscard]] std::vector<std::byte> read() const { return empty() ? std::vector<std::byte>() : memory_->read(); }
  [[nodiscard]] bool unchanged() const { return read() == contents_; }
  [[nodiscard]] std::string text() const;

 private:
  MPI_Datatype nothing_ = MPI_BYTE;
  Type type_;
  int count_ = 0;
  MPI_Aint low_ = 0;
  std::vector<std::byte> contents_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace crosslane::tests
