// See decode.h. One case a constructor; what each does to offsets is MPI 5.0, sections 5.1.2 to 5.1.4.
#include "layout/decode.h"

#include "base/error.h"
#include "layout/array.h"
#include "layout/contents.h"

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace crosslane::layout {
namespace {

using mpi::Combiner;

// The predefined types with holes: a value and an int, as C lays them out.
template <class Value>
struct Pair {
  Value value;
  int index;
};

template <class Value>
NodePointer pair_node() {
  const Placed members[] = {{0, block(0, sizeof(Value))}, {offsetof(Pair<Value>, index), block(0, sizeof(int))}};
  return join(members);
}

class Decoder {
 public:
  Decoder(const mpi::Functions& below, const mpi::Handles& handles) : below_(below), handles_(handles) {}
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() {
    for (MPI_Datatype& type : owned_) below_.Type_free(&type);
  }

  Decoded decode(MPI_Datatype type) {
    if (type == handles_.datatype_null) {
      throw base::Error(base::ErrorClass::type,
                        "the datatype is MPI_DATATYPE_NULL; pass a predefined or committed one");
    }
    const Envelope envelope = envelope_of(below_, type);
    return {layout_of(type, envelope), envelope.predefined()};
  }

 private:
  // Handles stay open until the end, so one that comes twice is the same type: a type made of itself thirty times over
  // is decoded thirty times, not 2^30 times.
  const Layout& child(MPI_Datatype type) {
    if (const auto known = known_.find(type); known != known_.end()) return known->second;
    if (depth_ == deepest)
      throw base::Error(
          base::ErrorClass::unsupported,
          "a datatype is made of others {} levels deep, of which no more are looked at; make one of fewer", deepest);
    const Level level(depth_);
    return known_.emplace(type, layout_of(type, envelope_of(below_, type))).first->second;
  }

  // As many as the stacks of small threads hold.
  static constexpr int deepest = 256;
  class Level {
   public:
    explicit Level(int& depth) noexcept : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  Layout layout_of(MPI_Datatype type, const Envelope& envelope) {
    MPI_Aint lb = 0;
    MPI_Aint extent = 0;
    if (const int code = below_.Type_get_extent(type, &lb, &extent); code != mpi::success) {
      throw base::Error(base::ErrorClass::type, "MPI_Type_get_extent failed with MPI error code {}", code);
    }
    return Layout(node_of(type, envelope, extent), lb, extent);
  }

  NodePointer node_of(MPI_Datatype type, const Envelope& envelope, std::int64_t extent) {
    if (envelope.predefined() && envelope.combiner != Combiner::value_index) return predefined_node(type, extent);
    Contents contents(below_, type, envelope);
    for (const MPI_Datatype inner : contents.types()) own(inner);
    switch (envelope.combiner) {
      case Combiner::dup:
      case Combiner::resized:
        return child(contents.types().at(0)).node();
      case Combiner::contiguous:
        return elements(child(contents.types().at(0)), contents.count());
      case Combiner::vector:
      case Combiner::hvector:
        return vector_node(contents, envelope.combiner == Combiner::hvector);
      case Combiner::indexed:
      case Combiner::hindexed:
        return indexed_node(contents, envelope.combiner == Combiner::hindexed);
      case Combiner::indexed_block:
      case Combiner::hindexed_block:
        return indexed_block_node(contents, envelope.combiner == Combiner::hindexed_block);
      case Combiner::structure:
        return structure_node(contents);
      case Combiner::value_index:
        return value_index_node(contents);
      case Combiner::subarray:
        return subarray_node(contents);
      case Combiner::darray:
        return darray_node(contents);
      default:
        throw base::Error(base::ErrorClass::unsupported, "a datatype has a constructor that Crosslane does not know");
    }
  }

  NodePointer predefined_node(MPI_Datatype type, std::int64_t extent) {
    MPI_Count size = 0;
    if (const int code = below_.Type_size_x(type, &size); code != mpi::success) {
      throw base::Error(base::ErrorClass::type, "MPI_Type_size_x failed with MPI error code {}", code);
    }
    if (size == extent || size == 0) return block(0, static_cast<std::size_t>(size));
    NodePointer node = empty();
    if (type == handles_.double_int) node = pair_node<double>();
    if (type == handles_.long_int) node = pair_node<long>();
    if (type == handles_.short_int) node = pair_node<short>();
    if (type == handles_.long_double_int) node = pair_node<long double>();
    if (static_cast<MPI_Count>(node->size) == size) return node;
    throw base::Error(base::ErrorClass::unsupported,
                      "a predefined datatype has {} bytes in an extent of {}, and Crosslane does not know where; "
                      "use a derived datatype of its members",
                      size, extent);
  }

  static NodePointer elements(const Layout& layout, std::int64_t count) {
    return repeat(layout.node(), static_cast<std::uint64_t>(count), layout.extent());
  }

  NodePointer vector_node(Contents& contents, bool in_bytes) {
    const Layout& inner = child(contents.types().at(0));
    const std::int64_t count = contents.count();
    const std::int64_t length = contents.count();
    const std::int64_t stride = in_bytes ? contents.address() : scaled(contents.count(), inner.extent());
    return repeat(elements(inner, length), static_cast<std::uint64_t>(count), stride);
  }

  // The block that any number of elements is, one after another; null where they are none.
  static const Node* dense_block(const Layout& inner) {
    return inner.dense() && inner.node()->kind == Node::Kind::block ? inner.node().get() : nullptr;
  }

  // Blocks of so many elements each. Most lists are such: a million of them must not become a million nodes first.
  template <class Length>
  static NodePointer join_blocks(const Node& block, std::size_t count, bool in_bytes, std::int64_t extent,
                                 const std::vector<std::int64_t>& displacements, Length length_of) {
    std::vector<Piece> pieces;
    pieces.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t displacement = in_bytes ? displacements[i] : scaled(displacements[i], extent);
      pieces.push_back({displacement, static_cast<std::size_t>(scaled(length_of(i), extent))});
    }
    return shift(join(pieces), block.low);
  }

  NodePointer indexed_node(Contents& contents, bool in_bytes) {
    const Layout& inner = child(contents.types().at(0));
    const auto count = static_cast<std::size_t>(contents.count());
    const auto lengths = contents.counts(count);
    const auto displacements = in_bytes ? contents.addresses(count) : contents.counts(count);
    if (const Node* const block = dense_block(inner)) {
      return join_blocks(*block, count, in_bytes, inner.extent(), displacements,
                         [&](std::size_t i) { return lengths[i]; });
    }
    std::vector<Placed> placed;
    placed.reserve(count);
    std::int64_t last_length = 0;
    NodePointer last;  // equal lengths share their node
    for (std::size_t i = 0; i < count; ++i) {
      if (last == nullptr || lengths[i] != last_length) {
        last = elements(inner, lengths[i]);
        last_length = lengths[i];
      }
      placed.push_back({in_bytes ? displacements[i] : scaled(displacements[i], inner.extent()), last});
    }
    return join(placed);
  }

  NodePointer indexed_block_node(Contents& contents, bool in_bytes) {
    const Layout& inner = child(contents.types().at(0));
    const auto count = static_cast<std::size_t>(contents.count());
    const std::int64_t length = contents.count();
    const auto displacements = in_bytes ? contents.addresses(count) : contents.counts(count);
    if (const Node* const block = dense_block(inner)) {
      return join_blocks(*block, count, in_bytes, inner.extent(), displacements, [&](std::size_t) { return length; });
    }
    const NodePointer node = elements(inner, length);
    std::vector<Placed> placed;
    placed.reserve(count);
    for (const std::int64_t displacement : displacements) {
      placed.push_back({in_bytes ? displacement : scaled(displacement, inner.extent()), node});
    }
    return join(placed);
  }

  NodePointer structure_node(Contents& contents) {
    const auto count = static_cast<std::size_t>(contents.count());
    const auto lengths = contents.counts(count);
    const auto displacements = contents.addresses(count);
    std::vector<Placed> placed;
    placed.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (lengths[i] != 0) placed.push_back({displacements[i], elements(child(contents.types().at(i)), lengths[i])});
    }
    return join(placed);
  }

  // A value and an index as a C structure: the index at the first multiple of its own size, which is its alignment.
  NodePointer value_index_node(Contents& contents) {
    const Layout& value = child(contents.types().at(0));
    const Layout& index = child(contents.types().at(1));
    const std::int64_t alignment = index.extent();
    const Placed members[] = {{0, value.node()},
                              {(value.extent() + alignment - 1) / alignment * alignment, index.node()}};
    return join(members);
  }

  NodePointer subarray_node(Contents& contents) {
    const auto dimensions = static_cast<std::size_t>(contents.integer());
    Subarray array;
    array.sizes = contents.counts(dimensions);
    array.subsizes = contents.counts(dimensions);
    array.starts = contents.counts(dimensions);
    array.fortran = contents.integer() == mpi::order_fortran;
    const Layout& inner = child(contents.types().at(0));
    return subarray(inner.node(), inner.extent(), array);
  }

  NodePointer darray_node(Contents& contents) {
    DistributedArray array;
    array.processes = contents.integer();
    array.rank = contents.integer();
    const auto dimensions = static_cast<std::size_t>(contents.integer());
    const auto sizes = contents.counts(dimensions);
    const auto distributions = contents.integers(dimensions);
    const auto arguments = contents.integers(dimensions);
    const auto grid = contents.integers(dimensions);
    for (std::size_t i = 0; i < dimensions; ++i) {
      using Kind = DistributedArray::Kind;
      const Kind kind = distributions[i] == mpi::distribute_block    ? Kind::block
                        : distributions[i] == mpi::distribute_cyclic ? Kind::cyclic
                                                                     : Kind::none;
      const int argument = arguments[i] == mpi::distribute_dflt_darg ? 0 : arguments[i];
      array.dimensions.push_back({sizes[i], kind, argument, grid[i]});
    }
    array.fortran = contents.integer() == mpi::order_fortran;
    const Layout& inner = child(contents.types().at(0));
    return darray(inner.node(), inner.extent(), array);
  }

  static std::int64_t scaled(std::int64_t elements_before, std::int64_t extent) {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(elements_before, extent, &bytes)) {
      throw base::Error(base::ErrorClass::type, "the datatype's displacements do not fit into 64 bits");
    }
    return bytes;
  }

  void own(MPI_Datatype type) {
    if (!envelope_of(below_, type).predefined()) owned_.push_back(type);
  }

  const mpi::Functions& below_;
  const mpi::Handles& handles_;
  std::vector<MPI_Datatype> owned_;  // from MPI_Type_get_contents, to be freed
  std::map<MPI_Datatype, Layout> known_;
  int depth_ = 0;  // of the one that is looked at
};

}  // namespace

Decoded decode(const mpi::Functions& below, const mpi::Handles& handles, MPI_Datatype type) {
  return Decoder(below, handles).decode(type);
}

}  // namespace crosslane::layout
