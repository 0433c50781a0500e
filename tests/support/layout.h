// Random MPI datatypes beside a model of which bytes they touch and in which order, and buffers laid out by them.
// It must not know Crosslane, nor how any MPI represents a datatype.
#pragma once

#include "support/memory.h"
#include "support/random.h"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace crosslane::tests {

/// Consecutive bytes, relative to an element's address.
struct Piece {
  std::ptrdiff_t offset = 0;
  std::size_t bytes = 0;
};

/// What both sides of a message agree on: a basic type, a pair type, or a struct of three basic types. A message is a
/// sequence of units; layouts differ in where these lie.
struct Unit {
  std::string text;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::vector<Piece> pieces;  ///< In the order of the type map.
  std::ptrdiff_t extent = 0;
  std::size_t size = 0;  ///< Bytes of data.
  int basics = 1;        ///< Basic elements, as MPI_Get_elements counts them.
  std::ptrdiff_t alignment = 1;
};

/// The units, with the struct's datatype committed; freed by the destructor (before MPI_Finalize).
class Units {
 public:
  Units();
  ~Units();
  Units(const Units&) = delete;
  Units& operator=(const Units&) = delete;
  [[nodiscard]] const Unit& pick(Random& random) const { return random.pick(units_); }
  [[nodiscard]] const Unit& bytes() const { return units_.front(); }

 private:
  std::vector<Unit> units_;
  MPI_Datatype record_ = MPI_DATATYPE_NULL;
};

/// One datatype: where each of its units lies.
class Layout {
 public:
  /// The unit itself.
  explicit Layout(const Unit& unit);
  /// Up to three random constructors (contiguous, vector with positive or negative stride, indexed, struct, resized,
  /// subarray, dup ...) over the unit, at most `most_units` units; no byte is touched twice. Committed, and checked
  /// against what the MPI says about it.
  static Layout random(Random& random, const Unit& unit, std::size_t most_units = 256);
  ~Layout();
  Layout(Layout&& other) noexcept;
  Layout& operator=(Layout&& other) noexcept;

  [[nodiscard]] const Unit& unit() const { return *unit_; }
  [[nodiscard]] MPI_Datatype type() const { return type_; }
  [[nodiscard]] const std::vector<std::ptrdiff_t>& units() const { return units_; }  ///< Displacements in bytes.
  [[nodiscard]] std::ptrdiff_t lower() const { return lower_; }
  [[nodiscard]] std::ptrdiff_t extent() const { return upper_ - lower_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  /// The pieces of one element, neighbours in order and in memory joined.
  [[nodiscard]] std::vector<Piece> pieces() const;

 private:
  void derive(Random& random, std::size_t most_units);
  void replace(MPI_Datatype type, const std::vector<std::ptrdiff_t>& displacements);
  void subarray(Random& random);
  void check_against_mpi() const;
  void release();

  const Unit* unit_;
  MPI_Datatype type_;
  bool owned_ = false;
  std::vector<std::ptrdiff_t> units_;
  std::ptrdiff_t lower_ = 0, upper_ = 0;
  std::string text_;
};

/// `count` elements of a layout in one kind of memory, with an image on the host of what the memory should hold.
class TypedBuffer {
 public:
  /// The contents are random noise until load(). `offset`: see Memory. `absolute`: the message is described by
  /// MPI_BOTTOM and one element of a datatype made of addresses.
  TypedBuffer(MemoryKind kind, Layout layout, int count, std::uint64_t noise, std::size_t offset = 0,
              bool absolute = false);
  ~TypedBuffer();
  TypedBuffer(TypedBuffer&& other) noexcept;
  TypedBuffer& operator=(TypedBuffer&&) = delete;

  // What is passed to MPI.
  [[nodiscard]] void* address() const;
  [[nodiscard]] int count() const { return absolute_ == MPI_DATATYPE_NULL ? count_ : 1; }
  [[nodiscard]] MPI_Datatype type() const { return absolute_ == MPI_DATATYPE_NULL ? layout_.type() : absolute_; }

  [[nodiscard]] std::size_t units() const { return static_cast<std::size_t>(count_) * layout_.units().size(); }
  [[nodiscard]] std::size_t bytes() const { return units() * layout_.unit().size; }  ///< Of data.
  [[nodiscard]] std::size_t units_an_element() const {
    return absolute_ == MPI_DATATYPE_NULL ? layout_.units().size() : units();
  }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] std::string text() const;

  /// Puts `packed` (at most bytes()) into the buffer's first units, in memory and image.
  void load(const std::vector<std::byte>& packed);
  /// Overwrites everything, gaps too, with new noise.
  void scramble(std::uint64_t noise);
  /// The memory must now hold what it held, with `packed` received into the first units. Nothing else may have changed.
  void check_received(const std::vector<std::byte>& packed, const std::string& what);
  /// Whether check_received would pass now; for a receive whose end nothing announces.
  [[nodiscard]] bool would_match(const std::vector<std::byte>& packed) const;
  /// The memory must be what it was (a send buffer; a receive that got nothing).
  void check_unchanged(const std::string& what) const { check_image(what); }
  /// After a truncated receive: any prefix may have arrived, gaps and guards must be what they were.
  void check_gaps(const std::string& what);

 private:
  void scatter(const std::vector<std::byte>& packed, std::vector<std::byte>& image) const;
  void check_image(const std::string& what) const;

  Layout layout_;
  int count_;
  std::ptrdiff_t low_ = 0;  // from the memory's start to the buffer's address: -low_
  std::vector<std::byte> image_;
  Memory memory_;
  MPI_Datatype absolute_ = MPI_DATATYPE_NULL;
};

}  // namespace crosslane::tests
