// See random_type.h.
#include "layout/random_type.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace crosslane::tests {
namespace {

void require(int code, const char* what) {
  if (code == mpi::success) return;
  std::fprintf(stderr, "the test's own %s failed with MPI error code %d\n", what, code);
  std::exit(1);
}

// Open MPI makes no distributed array of a type without bytes, and takes a stride of -1 byte for "the default".
// MPICH counts the empty rest of a cyclic distribution in the true bounds; it places repetitions of contiguous types with
// a negative extent by another extent than it reports.
#if defined(CROSSLANE_ABI_OPENMPI)
constexpr bool empty_darray_refused = true;
constexpr bool minus_one_is_wrong = true;
constexpr bool darray_bounds_are_loose = false;
constexpr bool negative_extents_are_wrong = false;
#else
constexpr bool empty_darray_refused = false;
constexpr bool minus_one_is_wrong = false;
constexpr bool darray_bounds_are_loose = true;
constexpr bool negative_extents_are_wrong = true;
#endif

template <class To, class From>
std::vector<To> as(const std::vector<From>& from) {
  return {from.begin(), from.end()};
}

}  // namespace

bool RandomType::packs_wrong(MPI_Datatype basic, int stride) const {
  constexpr std::size_t count = 3, bytes = 16;
  MPI_Datatype spread{};
  require(mpi_.Type_create_hvector(count, 1, stride, basic, &spread), "MPI_Type_create_hvector");
  require(mpi_.Type_commit(&spread), "MPI_Type_commit");
  std::array<unsigned char, 256> memory{};
  for (std::size_t i = 0; i < memory.size(); ++i) memory.at(i) = static_cast<unsigned char>(i + 1);
  std::array<unsigned char, count * bytes> packed{};
  int position = 0;
  require(mpi_.Pack(memory.data(), 1, spread, packed.data(), static_cast<int>(packed.size()), &position,
                    handles_.comm_self),
          "MPI_Pack");
  require(mpi_.Type_free(&spread), "MPI_Type_free");
  for (std::size_t i = 0; i < packed.size(); ++i)
    if (packed.at(i) != memory.at(i / bytes * static_cast<std::size_t>(stride) + i % bytes)) return true;
  return false;
}

RandomType::Made RandomType::make(int depth) {
  Made made = depth == 0 ? predefined() : derived(depth);
  require(mpi_.Type_commit(&made.type), "MPI_Type_commit");
  return made;
}

void RandomType::free(Made& made) {
  if (!made.predefined) require(mpi_.Type_free(&made.type), "MPI_Type_free");
}

bool RandomType::within_bounds(MPI_Datatype type) const {
  MPI_Count size = 0, true_lb = 0, true_extent = 0, lb = 0, extent = 0;
  require(mpi_.Type_size_x(type, &size), "MPI_Type_size_x");
  require(mpi_.Type_get_true_extent_x(type, &true_lb, &true_extent), "MPI_Type_get_true_extent_x");
  require(mpi_.Type_get_extent_x(type, &lb, &extent), "MPI_Type_get_extent_x");
  const auto near = [](MPI_Count offset) { return offset > -200'000 && offset < 200'000; };
  return size >= 0 && size < 40'000 && near(true_lb) && near(true_extent) && near(lb) && near(extent);
}

RandomType::Made RandomType::predefined() {
  const struct {
    MPI_Datatype type;
    const char* text;
  } basics[] = {{handles_.byte, "byte"},
                {handles_.char_, "char"},
                {handles_.short_, "short"},
                {handles_.int_, "int"},
                {handles_.long_, "long"},
                {handles_.float_, "float"},
                {handles_.double_, "double"},
                {handles_.long_double, "long_double"},
                {handles_.int64, "int64"},
                {handles_.c_double_complex, "c_double_complex"},
                {handles_.c_bool, "c_bool"},
                {handles_.float_int, "float_int"},
                {handles_.double_int, "double_int"},
                {handles_.long_int, "long_int"},
                {handles_.short_int, "short_int"},
                {handles_.long_double_int, "long_double_int"},
                {handles_.two_int, "2int"}};
  if (between(0, 24) == 0) {
    // Predefined, but made: MPI_Type_free must not be called on them.
    Made made{{}, true, "", false, false};
    auto which = between(0, 2);
    if (which == 1 && complex_is_misplaced_) which = 0;
    switch (which) {
      case 0:
        require(mpi_.Type_create_f90_real(static_cast<int>(between(3, 14)), mpi::undefined, &made.type), "f90_real");
        made.text = "f90_real";
        break;
      case 1:
        require(mpi_.Type_create_f90_complex(static_cast<int>(between(3, 14)), mpi::undefined, &made.type),
                "f90_complex");
        made.text = "f90_complex";
        break;
      default:
        require(mpi_.Type_create_f90_integer(static_cast<int>(between(1, 17)), &made.type), "f90_integer");
        made.text = "f90_integer";
    }
    ++used_[made.text];
    return made;
  }
  const auto last = static_cast<std::int64_t>(std::size(basics)) - 1;
  auto basic = basics[between(0, last)];
  const auto left_out = [this](MPI_Datatype type) {
    return (padding_is_lost_ && (type == handles_.long_double || type == handles_.long_double_int)) ||
           (complex_is_misplaced_ && type == handles_.c_double_complex);
  };
  while (left_out(basic.type)) basic = basics[between(0, last)];
  return {basic.type, true, basic.text, false, false};
}

RandomType::Made RandomType::derived(int depth) {
  // What grew out of bounds is thrown away; small arguments are common enough for this to end soon.
  for (;;) {
    Made made = constructed(depth);
    if (within_bounds(made.type)) return made;
    free(made);
  }
}

RandomType::Made RandomType::constructed(int depth) {
  const auto inner_of = [&] { return depth > 1 ? derived(static_cast<int>(between(1, depth - 1))) : predefined(); };
  Made inner = inner_of();
  MPI_Datatype made{};
  std::string text;
  MPI_Aint lb = 0, extent = 0;
  require(mpi_.Type_get_extent(inner.type, &lb, &extent), "MPI_Type_get_extent");
  const bool large = mpi_.Type_vector_c != nullptr && between(0, 2) == 0;
  const auto plain_int = [](std::int64_t value) { return static_cast<int>(value); };

  const auto count = between(0, 9) == 0 ? 0 : between(1, 5);
  const auto n = static_cast<std::size_t>(count);
  std::vector<std::int64_t> lengths(n), displacements(n), bytes(n);
  const bool regular = between(0, 3) == 0;
  const std::int64_t regular_length = between(1, 3), regular_step = between(-4, 6);
  for (std::size_t i = 0; i < n; ++i) {
    lengths[i] = regular ? regular_length : between(0, 4);
    displacements[i] = regular ? static_cast<std::int64_t>(i) * regular_step : between(-6, 20);
    bytes[i] = regular              ? displacements[i] * extent
               : between(0, 3) == 0 ? displacements[i] * extent + between(-3, 3)
                                    : displacements[i] * extent;
  }
  const auto block = between(0, 4);
  const auto dimensions = static_cast<std::size_t>(between(1, 3));
  const bool fortran = between(0, 1) == 1;
  const int order = fortran ? mpi::order_fortran : mpi::order_c;

  bool hollow = inner.hollow, loose = inner.loose;
  MPI_Count inner_size = 0;
  require(mpi_.Type_size_x(inner.type, &inner_size), "MPI_Type_size_x");
  auto constructor = between(0, 11);
  if (constructor == 10 && inner_size == 0 && empty_darray_refused) constructor = 0;
  switch (constructor) {
    case 0:
      text = "dup";
      require(mpi_.Type_dup(inner.type, &made), "MPI_Type_dup");
      break;
    case 1:
      text = fmt::format("contiguous({})", count);
      require(large ? mpi_.Type_contiguous_c(count, inner.type, &made)
                    : mpi_.Type_contiguous(plain_int(count), inner.type, &made),
              "MPI_Type_contiguous");
      break;
    case 2: {
      auto stride = between(-5, 9);
      if (stride * extent == -1 && minus_one_is_wrong) stride = 2;
      text = fmt::format("vector({}, {}, {})", count, block, stride);
      require(large ? mpi_.Type_vector_c(count, block, stride, inner.type, &made)
                    : mpi_.Type_vector(plain_int(count), plain_int(block), plain_int(stride), inner.type, &made),
              "MPI_Type_vector");
      break;
    }
    case 3: {
      auto stride = between(-100, 200);
      if (stride == -1 && minus_one_is_wrong) stride = 2;
      text = fmt::format("hvector({}, {}, {})", count, block, stride);
      require(large ? mpi_.Type_create_hvector_c(count, block, stride, inner.type, &made)
                    : mpi_.Type_create_hvector(plain_int(count), plain_int(block), stride, inner.type, &made),
              "MPI_Type_create_hvector");
      break;
    }
    case 4:
      text = fmt::format("indexed({}, {})", lengths, displacements);
      require(large ? mpi_.Type_indexed_c(count, as<MPI_Count>(lengths).data(), as<MPI_Count>(displacements).data(),
                                          inner.type, &made)
                    : mpi_.Type_indexed(plain_int(count), as<int>(lengths).data(), as<int>(displacements).data(),
                                        inner.type, &made),
              "MPI_Type_indexed");
      break;
    case 5:
      text = fmt::format("hindexed({}, {})", lengths, bytes);
      require(large ? mpi_.Type_create_hindexed_c(count, as<MPI_Count>(lengths).data(), as<MPI_Count>(bytes).data(),
                                                  inner.type, &made)
                    : mpi_.Type_create_hindexed(plain_int(count), as<int>(lengths).data(), as<MPI_Aint>(bytes).data(),
                                                inner.type, &made),
              "MPI_Type_create_hindexed");
      break;
    case 6:
      text = fmt::format("indexed_block({}, {})", block, displacements);
      require(
          large ? mpi_.Type_create_indexed_block_c(count, block, as<MPI_Count>(displacements).data(), inner.type, &made)
                : mpi_.Type_create_indexed_block(plain_int(count), plain_int(block), as<int>(displacements).data(),
                                                 inner.type, &made),
          "MPI_Type_create_indexed_block");
      break;
    case 7:
      text = fmt::format("hindexed_block({}, {})", block, bytes);
      require(large ? mpi_.Type_create_hindexed_block_c(count, block, as<MPI_Count>(bytes).data(), inner.type, &made)
                    : mpi_.Type_create_hindexed_block(plain_int(count), plain_int(block), as<MPI_Aint>(bytes).data(),
                                                      inner.type, &made),
              "MPI_Type_create_hindexed_block");
      break;
    case 8: {
      std::vector<Made> members(n);
      std::vector<MPI_Datatype> types(n);
      std::string names;
      for (std::size_t i = 0; i < n; ++i) {
        if (i == 0 || between(0, 1) == 0) members[i] = inner_of();
        types[i] = members[i].text.empty() ? inner.type : members[i].type;
        names += (i == 0 ? "" : "; ") + (members[i].text.empty() ? "this" : members[i].text);
        bytes[i] += between(0, 64);
      }
      text = fmt::format("struct({}, {}, [{}])", lengths, bytes, names);
      require(large ? mpi_.Type_create_struct_c(count, as<MPI_Count>(lengths).data(), as<MPI_Count>(bytes).data(),
                                                types.data(), &made)
                    : mpi_.Type_create_struct(plain_int(count), as<int>(lengths).data(), as<MPI_Aint>(bytes).data(),
                                              types.data(), &made),
              "MPI_Type_create_struct");
      for (Made& member : members) {
        hollow = hollow || member.hollow;
        loose = loose || member.loose;
        if (!member.text.empty()) free(member);
      }
      break;
    }
    case 9: {
      std::vector<std::int64_t> sizes(dimensions), subsizes(dimensions), starts(dimensions);
      for (std::size_t d = 0; d < dimensions; ++d) {
        sizes[d] = between(1, 6);
        subsizes[d] = between(1, sizes[d]);
        starts[d] = between(0, sizes[d] - subsizes[d]);
      }
      text = fmt::format("subarray({}, {}, {}, {})", sizes, subsizes, starts, fortran ? "Fortran" : "C");
      require(
          large ? mpi_.Type_create_subarray_c(plain_int(static_cast<std::int64_t>(dimensions)),
                                              as<MPI_Count>(sizes).data(), as<MPI_Count>(subsizes).data(),
                                              as<MPI_Count>(starts).data(), order, inner.type, &made)
                : mpi_.Type_create_subarray(plain_int(static_cast<std::int64_t>(dimensions)), as<int>(sizes).data(),
                                            as<int>(subsizes).data(), as<int>(starts).data(), order, inner.type, &made),
          "MPI_Type_create_subarray");
      break;
    }
    case 10: {
      std::vector<std::int64_t> sizes(dimensions);
      std::vector<int> distributions(dimensions), arguments(dimensions), grid(dimensions);
      for (std::size_t d = 0; d < dimensions; ++d) {
        sizes[d] = between(1, 7);
        const int kinds[] = {mpi::distribute_none, mpi::distribute_block, mpi::distribute_cyclic};
        distributions[d] = kinds[between(0, 2)];
        grid[d] = distributions[d] == mpi::distribute_none ? 1 : plain_int(between(1, 3));
        arguments[d] = mpi::distribute_dflt_darg;
        if (distributions[d] != mpi::distribute_none && between(0, 1) == 0) {
          const std::int64_t least = distributions[d] == mpi::distribute_block ? (sizes[d] + grid[d] - 1) / grid[d] : 1;
          arguments[d] = plain_int(between(least, least + 2));
        }
      }
      const int processes = std::accumulate(grid.begin(), grid.end(), 1, [](int a, int b) { return a * b; });
      const int rank = plain_int(between(0, processes - 1));
      loose = loose || darray_bounds_are_loose;
      text = fmt::format("darray({}, {}, {}, {}, {}, {}, {})", processes, rank, sizes, distributions, arguments, grid,
                         fortran ? "Fortran" : "C");
      const int d = plain_int(static_cast<std::int64_t>(dimensions));
      require(large ? mpi_.Type_create_darray_c(processes, rank, d, as<MPI_Count>(sizes).data(), distributions.data(),
                                                arguments.data(), grid.data(), order, inner.type, &made)
                    : mpi_.Type_create_darray(processes, rank, d, as<int>(sizes).data(), distributions.data(),
                                              arguments.data(), grid.data(), order, inner.type, &made),
              ("MPI_Type_create_" + text + " of " + inner.text).c_str());
      break;
    }
    default: {
      const auto new_lb = between(-40, 40),
                 new_extent = between(0, 4) == 0 && !negative_extents_are_wrong ? between(-200, 0) : between(1, 600);
      text = fmt::format("resized({}, {})", new_lb, new_extent);
      require(large ? mpi_.Type_create_resized_c(inner.type, new_lb, new_extent, &made)
                    : mpi_.Type_create_resized(inner.type, new_lb, new_extent, &made),
              "MPI_Type_create_resized");
    }
  }
  ++used_[text.substr(0, text.find('(')) + (large && text != "dup" ? "_c" : "")];
  MPI_Count size = 0;
  require(mpi_.Type_size_x(made, &size), "MPI_Type_size_x");
  Made result{made, false, fmt::format("{}{} of {}", text, large ? "_c" : "", inner.text), hollow || size == 0,
              loose || hollow || size == 0};
  free(inner);
  return result;
}

}  // namespace crosslane::tests
