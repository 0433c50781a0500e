// One buffer argument of an MPI call, and the host copy that stands for it while the MPI works.
// An argument in host memory passes through untouched. It must not know which call it belongs to.
#pragma once

#include "base/recycler.h"
#include "lane/copier.h"
#include "layout/layout.h"
#include "mpi/abi.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace crosslane::interpose {

/// Which way data goes through a buffer argument; none: the call does not touch it on this rank.
enum class Direction { none, in, out, inout };

/// One block of a buffer: count elements of a type at a displacement (in extents, or bytes in the w forms).
struct Block {
  MPI_Count count;
  MPI_Aint displacement;
  MPI_Datatype type;
};
using BlockList = std::vector<Block>;

/// What the MPI below is given for a buffer argument. For GPU memory that is a host copy, of which only the bytes that the
/// datatype touches are ever copied:
/// - in mirror form the copy has the layout of the original, and counts, displacements and types stay;
/// - where that would be mostly holes, or parts of it lie in other memories, the copy is packed, and stands as as many elements of a
///   contiguous type of its size (the packed twin), so that any extent is fine. Reductions and files always keep their type.
class Argument {
 public:
  /// A part of the argument that lies in one memory, and its place in the host copy.
  struct Part {
    const std::byte* memory;  // where the buffer's block starts (not its first touched byte)
    std::shared_ptr<const layout::Layout> layout;
    MPI_Count count;
    std::optional<lane::Place> place;  // nothing of host memory: of an argument some of which is in GPU memory
    std::ptrdiff_t offset;             // in the host copy: of the part, or of the block's start in mirror form
    std::size_t begin, bytes;          // of the block's packed stream
  };
  using Parts = std::span<const Part>;

  [[nodiscard]] void* address() const noexcept { return address_; }
  [[nodiscard]] MPI_Count count() const noexcept { return count_; }
  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }
  [[nodiscard]] const MPI_Count* counts() const noexcept { return counts_.data(); }
  [[nodiscard]] const MPI_Aint* displacements() const noexcept { return displacements_.data(); }
  [[nodiscard]] const MPI_Datatype* types() const noexcept { return types_.data(); }

  [[nodiscard]] bool on_gpu() const noexcept { return !parts().empty(); }
  /// It lies in several memories, one at least of a GPU: nothing but its host copy has it in one place.
  [[nodiscard]] bool apart() const noexcept { return apart_; }
  [[nodiscard]] bool reads() const noexcept { return direction_ == Direction::in || direction_ == Direction::inout; }
  [[nodiscard]] bool writes() const noexcept { return direction_ == Direction::out || direction_ == Direction::inout; }
  [[nodiscard]] bool received() const noexcept { return received_; }
  [[nodiscard]] const lane::Place& place() const noexcept { return place_; }  ///< Of memory that is on_gpu().
  /// What the driver said of its lowest byte; empty where the buffer is one of blocks.
  [[nodiscard]] const gpu::PointerInfo& seen() const noexcept { return seen_; }
  /// Of memory that is on_gpu(), and not apart().
  [[nodiscard]] const std::shared_ptr<const layout::Layout>& layout() const noexcept { return parts().front().layout; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// Lends the host copy its memory. Addresses are valid from then on. Call once. Ordinary memory is for a copy that will hardly be used.
  enum class Staging : std::uint8_t { pinned, ordinary };
  void stage(lane::Batch& batch, Staging staging);
  /// Before the MPI gets to work with the host copy again. Throws Error (buffer) where the application has ended the context that the
  /// buffer was in.
  void throw_if_gone() const;
  /// Enqueues the copies to the host (reads) or to the GPU (writes; the first `limit` bytes of the packed stream).
  void fetch(lane::Batch& batch) const { fetch_range(batch, 0, bytes_); }
  void deliver(lane::Batch& batch, std::size_t limit) const { deliver_range(batch, 0, limit); }
  /// The same for bytes [begin, end) of the packed stream of all parts.
  void fetch_range(lane::Batch& batch, std::size_t begin, std::size_t end) const;
  void deliver_range(lane::Batch& batch, std::size_t begin, std::size_t end) const;

 private:
  friend class ArgumentBuilder;
  [[nodiscard]] std::byte* host_of(const Part& part, std::size_t begin) const;
  [[nodiscard]] Parts parts() const noexcept { return only_ ? Parts{&*only_, 1} : Parts{several_}; }

  void* address_ = nullptr;
  MPI_Count count_ = 0;
  MPI_Datatype type_{};
  std::vector<MPI_Count> counts_;
  std::vector<MPI_Aint> displacements_;
  std::vector<MPI_Datatype> types_;

  Direction direction_ = Direction::none;
  lane::Form form_ = lane::Form::packed;
  bool received_ = false;
  bool apart_ = false;
  lane::Place place_;
  gpu::PointerInfo seen_;
  std::optional<Part> only_;                                   // mostly there is one,
  std::vector<Part, base::RecyclingAllocator<Part>> several_;  // or these
  std::size_t bytes_ = 0;                                      // of the packed stream of all parts
  std::size_t host_bytes_ = 0;                                 // of the host copy
  std::ptrdiff_t first_ = 0;      // from the host copy's start to the address that the MPI is given
  mutable lane::HostBlock host_;  // notes that it was used
};

}  // namespace crosslane::interpose
