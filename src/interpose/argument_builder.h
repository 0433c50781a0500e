// Turns the description of a buffer argument into an Argument: finds out where the memory is, checks that it is all
// there, and lays out the host copy. Errors name the call, the argument and the remedy.
#pragma once

#include "base/error.h"
#include "interpose/argument.h"
#include "interpose/memories.h"
#include "layout/cache.h"

#include <memory>
#include <vector>

namespace crosslane::interpose {

class ArgumentBuilder {
 public:
  /// `seen` (may be null) is what the driver said in this very call of an allocation that a buffer may be in.
  ArgumentBuilder(lane::Copier& copier, layout::Cache& layouts, const char* call,
                  const gpu::PointerInfo* seen = nullptr)
      : copier_(copier), layouts_(layouts), call_(call), seen_(seen) {}

  /// blocks x count elements from `base` on. `contiguous`: a host copy has no gaps, unless it keeps its type (`form`).
  std::unique_ptr<Argument> single(const char* name, const void* base, const char* count_name, MPI_Count count,
                                   MPI_Count blocks, MPI_Datatype type, Direction direction, lane::Form form,
                                   bool received, bool contiguous) const;

  /// One block a peer. With `in_bytes` displacements are bytes and each block has a type, else they are extents of `type`.
  std::unique_ptr<Argument> blocks(const char* name, const void* base, BlockList list, bool in_bytes, MPI_Datatype type,
                                   Direction direction) const;

 private:
  std::shared_ptr<const layout::Layout> layout_of(const char* name, MPI_Datatype type) const;
  [[nodiscard]] Located locate(const char* name, const void* base, const layout::Layout& layout, MPI_Count count,
                               Apart apart) const;

  lane::Copier& copier_;
  layout::Cache& layouts_;
  const char* call_;
  const gpu::PointerInfo* seen_;
};

}  // namespace crosslane::interpose
