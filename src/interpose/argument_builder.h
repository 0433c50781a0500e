// Turns the description of a buffer argument into an Argument: finds out where the memory is, checks that it is all
// there, and lays out the host copy. Errors name the call, the argument and the remedy.
#pragma once

#include "base/error.h"
#include "interpose/argument.h"
#include "interpose/memories.h"
#include "layout/cache.h"

#include <memory>
#include <utility>
#include <vector>

namespace crosslane::interpose {

class ArgumentBuilder {
 public:
  /// What the call knows already; either may be missing. `seen` is what the driver said in this very call of an allocation that a buffer may be in,
  /// `layout` that of a single one's type.
  struct Known {
    const gpu::PointerInfo* seen = nullptr;
    std::shared_ptr<const layout::Layout> layout{};
  };
  ArgumentBuilder(lane::Copier& copier, layout::Cache& layouts, const char* call, Known known)
      : copier_(copier), layouts_(layouts), call_(call), known_(std::move(known)) {}

  /// What follows fills in an argument that is new.
  /// blocks x count elements from `base` on. `contiguous`: a host copy has no gaps, unless it keeps its type (`form`).
  void single(Argument& argument, const char* name, const void* base, const char* count_name, MPI_Count count,
              MPI_Count blocks, MPI_Datatype type, Direction direction, lane::Form form, bool received,
              bool contiguous);

  /// One block a peer. With `in_bytes` displacements are bytes and each block has a type, else they are extents of `type`.
  void blocks(Argument& argument, const char* name, const void* base, BlockList list, bool in_bytes, MPI_Datatype type,
              Direction direction) const;

 private:
  std::shared_ptr<const layout::Layout> layout_of(const char* name, MPI_Datatype type) const;
  [[nodiscard]] Located locate(const char* name, const void* base, const layout::Layout& layout, MPI_Count count,
                               Apart apart) const;

  lane::Copier& copier_;
  layout::Cache& layouts_;
  const char* call_;
  Known known_;
};

}  // namespace crosslane::interpose
