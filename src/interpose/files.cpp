// What opens and closes files (MPI 5.0, section 14.2); what reads and writes them is generated.
#include "interpose/files.h"

#include "base/log.h"
#include "interpose/manual.h"
#include "interpose/process.h"
#include "interpose/route.h"
#include "layout/contents.h"

#include <array>
#include <exception>
#include <string_view>

namespace crosslane::interpose {

bool status_tells(Process& process, MPI_File file) {
  // A null file is the MPI's to refuse: MPICH 4.0 tells of its view, and leaves everything as it was.
  if (file == process.library().handles().file_null) return true;
  const auto& below = process.library().below();
  MPI_Offset displacement = 0;
  std::array<MPI_Datatype, 2> types{};
  std::array<char, mpi::max_datarep_string> representation{};
  if (below.File_get_view(file, &displacement, types.data(), &types[1], representation.data()) != mpi::success)
    return true;  // the MPI refuses the call itself
  bool has_holes = true;
  try {
    has_holes = !process.layouts().of(types[1])->dense();
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a file's view is not understood: {}", error.what());
  }
  for (MPI_Datatype& type : types)
    if (!layout::envelope_of(below, type).predefined()) below.Type_free(&type);
  return !has_holes && std::string_view(representation.data()) == "native";
}

// ROMIO calls collectives by PMPI's names, on communicators that it makes here: no team of ours is to count these. It makes them, too, where
// a rank passes GPU memory, inside of our call, and elsewhere where a rank passes host memory, inside of MPI's.
int manual::file_open(const Site& site, MPI_Comm comm, const char* filename, int amode, MPI_Info info, MPI_File* fh) {
  const Nested nested;
  return site.next().File_open(comm, filename, amode, info, fh);
}

// MPIs crash or hang in requests of a file that is gone. Of a freed one only this library can tell when it is over.
int manual::file_close(const Site& site, MPI_File* fh) {
  auto& process = site.process();
  if (site.outer() && fh != nullptr && !process.requests().empty()) {
    const Target target = Target::of_file(*fh);
    const int code = raising(process, target, "MPI_File_close", [&] {
      process.settle([&](const Operation& operation) {
        return operation.target.kind == Target::Kind::file && operation.target.file == target.file;
      });
      return mpi::success;
    });
    if (code != mpi::success) return code;
  }
  return site.next().File_close(fh);
}

}  // namespace crosslane::interpose
