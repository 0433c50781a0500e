// See cases.h.
#include "ping_pong/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace crosslane::bench {
namespace {

Type contiguous(int n) {
  MPI_Datatype column = MPI_DATATYPE_NULL, matrix = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(n, MPI_DOUBLE, &column);
  MPI_Type_contiguous(n, column, &matrix);
  MPI_Type_free(&column);
  return Type(matrix);
}

Type sub_matrix(int n) {
  MPI_Datatype matrix = MPI_DATATYPE_NULL;
  MPI_Type_vector(n, n, 2 * n, MPI_DOUBLE, &matrix);
  return Type(matrix);
}

// Column j from row first(j) on.
Type triangle(int n, const std::function<int(int)>& first) {
  std::vector<int> lengths, places;
  for (int j = 0; j < n; ++j) {
    lengths.push_back(n - first(j));
    places.push_back(j * n + first(j));
  }
  MPI_Datatype matrix = MPI_DATATYPE_NULL;
  MPI_Type_indexed(n, lengths.data(), places.data(), MPI_DOUBLE, &matrix);
  return Type(matrix);
}

// The matrix by its rows: each is a vector of one double a column.
Type by_rows(int n) {
  MPI_Datatype row = MPI_DATATYPE_NULL, matrix = MPI_DATATYPE_NULL;
  MPI_Type_vector(n, 1, n, MPI_DOUBLE, &row);
  MPI_Type_create_hvector(n, 1, sizeof(double), row, &matrix);
  MPI_Type_free(&row);
  return Type(matrix);
}

// Runs of `run` doubles, each with a gap of three times its length behind it.
Type runs_of(int n, int run) {
  MPI_Datatype runs = MPI_DATATYPE_NULL;
  MPI_Type_vector(n * n / run, run, 4 * run, MPI_DOUBLE, &runs);
  return Type(runs);
}

Type layout_of(const std::string& name, int n, int rank) {
  if (name == "C") return contiguous(n);
  if (name == "V") return sub_matrix(n);
  if (name == "T") return triangle(n, [](int j) { return j; });
  if (name == "stair") return triangle(n, [](int j) { return j / 128 * 128; });
  if (name.starts_with("run")) return runs_of(n, std::stoi(name.substr(3)));
  if (name == "V-C") return rank == 0 ? sub_matrix(n) : contiguous(n);
  if (name == "transpose") return rank == 0 ? contiguous(n) : by_rows(n);
  throw std::runtime_error(fmt::format("no case is called {}; there are {}", name, case_names));
}

}  // namespace

Type::Type(MPI_Datatype type) : type_(type) {
  MPI_Type_commit(&type_);
  MPI_Aint low = 0, span = 0;
  MPI_Type_get_true_extent(type_, &low, &span);
  room_ = static_cast<std::size_t>(low + span);
}

Type::~Type() {
  if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
}

Case make_case(const std::string& name, long n, int rank) {
  Type mine = layout_of(name, static_cast<int>(n), rank);
  int bytes = 0;
  MPI_Type_size(mine.get(), &bytes);
  return {name, n, static_cast<std::size_t>(bytes), std::move(mine)};
}

}  // namespace crosslane::bench
