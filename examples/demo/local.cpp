// Procedures that work on one rank's own GPU memory: packing, also of a strided datatype, and local reduction.
#include "demo.h"

namespace demo {
namespace {

constexpr int columns = 10;  // of a matrix whose first column is packed
constexpr int rows = length / columns;

/// One column of a row-major matrix of ints.
class Column {
 public:
  Column() {
    MPI_Type_vector(rows, 1, columns, MPI_INT, &type_);
    MPI_Type_commit(&type_);
  }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  ~Column() { MPI_Type_free(&type_); }
  [[nodiscard]] MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// `matrix` with its first column from `from`.
std::vector<int> with_column(std::vector<int> matrix, const std::vector<int>& from) {
  for (std::size_t i = 0; i < matrix.size(); i += columns) matrix[i] = from[i];
  return matrix;
}

}  // namespace

void add_local(std::vector<Check>& checks, const World& world) {
  const auto matrix = message(world.rank);
  const auto other = message(world.rank, length, 3);

  // Both halves of a pair are verified by the round trip; the packed buffer is in GPU memory as well.
  const auto native = [=] {
    const Column column;
    const DeviceVector from(matrix), packed(length), to(other);
    int position = 0;
    MPI_Pack(from.data(), 1, column.type(), packed.data(), length * static_cast<int>(sizeof(int)), &position,
             MPI_COMM_WORLD);
    position = 0;
    MPI_Unpack(packed.data(), length * static_cast<int>(sizeof(int)), &position, to.data(), 1, column.type(),
               MPI_COMM_WORLD);
    return to.values() == with_column(other, matrix);
  };
  const auto external = [=] {
    const Column column;
    const DeviceVector from(matrix), packed(length), to(other);
    MPI_Aint position = 0;
    MPI_Pack_external("external32", from.data(), 1, column.type(), packed.data(), length * sizeof(int), &position);
    position = 0;
    MPI_Unpack_external("external32", packed.data(), length * sizeof(int), &position, to.data(), 1, column.type());
    return to.values() == with_column(other, matrix);
  };
  checks.push_back({"MPI_Pack", native});
  checks.push_back({"MPI_Unpack", native});
  checks.push_back({"MPI_Pack_external", external});
  checks.push_back({"MPI_Unpack_external", external});
  checks.push_back({"MPI_Reduce_local", [=] {
                      const DeviceVector in(matrix), inout(other);
                      MPI_Reduce_local(in.data(), inout.data(), length, MPI_INT, MPI_MAX);
                      return inout.values() == other;  // greater by 3 everywhere
                    }});
}

}  // namespace demo
