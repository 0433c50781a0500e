// MPI-IO from and to every kind of memory: blocking, nonblocking, split, at an offset, collective, shared and ordered. Written
// files are compared with those that plain MPI writes from host copies; reads, also past the end, with plain MPI's.
// Options beside Program's: --only <MPI procedure>, --cases <number a procedure>. Files are in $TMPDIR.
#include "collectives/argument.h"
#include "support/program.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

using namespace crosslane::tests;

namespace {

enum class Place { individual, offset, shared, ordered };
enum class Form { blocking, nonblocking, split };

struct Procedure {
  std::string name;  // of split ones without _begin and _end
  bool writes;
  Form form;
  bool collective;
  Place place;
};

std::vector<Procedure> procedures() {
  std::vector<Procedure> result;
  for (const bool writes : {true, false}) {
    const std::string verb = writes ? "write" : "read";
    for (const Form form : {Form::blocking, Form::nonblocking, Form::split}) {
      const std::string stem = std::string("MPI_File_") + (form == Form::nonblocking ? "i" : "") + verb;
      result.push_back({stem + "_all", writes, form, true, Place::individual});
      result.push_back({stem + "_at_all", writes, form, true, Place::offset});
      if (form != Form::nonblocking) result.push_back({stem + "_ordered", writes, form, true, Place::ordered});
      if (form == Form::split) continue;
      result.push_back({stem, writes, form, false, Place::individual});
      result.push_back({stem + "_at", writes, form, false, Place::offset});
      result.push_back({stem + "_shared", writes, form, false, Place::shared});
    }
  }
  return result;
}

bool calls(const Procedure& procedure, const std::string& name) {
  if (procedure.form != Form::split) return name == procedure.name;
  return name == procedure.name + "_begin" || name == procedure.name + "_end";
}

// Open MPI 4.1 hangs, also in host memory, when ranks read or write different amounts, in these or in their like that begin and end.
bool wants_equal_amounts([[maybe_unused]] const Procedure& procedure) {
#ifdef CROSSLANE_TEST_MPI_OPENMPI
  return procedure.form != Form::blocking && procedure.collective;
#else
  return false;
#endif
}

/// One file, opened by all ranks.
class File {
 public:
  explicit File(const std::string& path) {
    CROSSLANE_MPI(MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file_));
  }
  ~File() { CROSSLANE_MPI(MPI_File_close(&file_)); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Returns the bytes that the status tells.
  int run(const Procedure& procedure, MPI_Offset at, void* buffer, int count, MPI_Datatype type, bool large) const {
    if (procedure.place == Place::individual) CROSSLANE_MPI(MPI_File_seek(file_, at, MPI_SEEK_SET));
    MPI_Status status;
    switch (procedure.form) {
      case Form::nonblocking: {
        MPI_Request request = MPI_REQUEST_NULL;
        CROSSLANE_MPI(call(procedure, at, buffer, count, type, large, &request));
        polite_wait(request, &status);
        break;
      }
      case Form::blocking:
        CROSSLANE_MPI(call(procedure, at, buffer, count, type, large, &status));
        break;
      case Form::split: {
        using End = int(MPI_File, void*, MPI_Status*);
        CROSSLANE_MPI(call(procedure, at, buffer, count, type, large));
        void* const end = dlsym(RTLD_DEFAULT, (procedure.name + "_end").c_str());
        CROSSLANE_MPI(reinterpret_cast<End*>(end)(file_, buffer, &status));
      }
    }
    int bytes = 0;
    CROSSLANE_MPI(MPI_Get_elements(&status, MPI_BYTE, &bytes));
    return bytes;
  }

 private:
  // `result` is the status or request, if the procedure has one.
  template <class... Result>
  int call(const Procedure& procedure, MPI_Offset at, void* buffer, int count, MPI_Datatype type, bool large,
           Result*... result) const {
    const std::string name = procedure.name + (procedure.form == Form::split ? "_begin" : "");
    void* wide = large ? dlsym(RTLD_DEFAULT, (name + "_c").c_str()) : nullptr;
    void* const plain = dlsym(RTLD_DEFAULT, name.c_str());
    if (procedure.place == Place::offset) {
      if (wide != nullptr) {
        using Call = int(MPI_File, MPI_Offset, void*, MPI_Count, MPI_Datatype, Result*...);
        return reinterpret_cast<Call*>(wide)(file_, at, buffer, count, type, result...);
      }
      using Call = int(MPI_File, MPI_Offset, void*, int, MPI_Datatype, Result*...);
      return reinterpret_cast<Call*>(plain)(file_, at, buffer, count, type, result...);
    }
    if (wide != nullptr) {
      using Call = int(MPI_File, void*, MPI_Count, MPI_Datatype, Result*...);
      return reinterpret_cast<Call*>(wide)(file_, buffer, count, type, result...);
    }
    using Call = int(MPI_File, void*, int, MPI_Datatype, Result*...);
    return reinterpret_cast<Call*>(plain)(file_, buffer, count, type, result...);
  }

  MPI_File file_ = MPI_FILE_NULL;
};

// A folder of this job, which rank 0 makes and removes.
class Folder {
 public:
  explicit Folder(int rank) : rank_(rank) {
    int job = static_cast<int>(getpid());
    MPI_Bcast(&job, 1, MPI_INT, 0, MPI_COMM_WORLD);
    const char* const parent = std::getenv("TMPDIR");
    path_ = std::filesystem::path(parent == nullptr ? "/tmp" : parent) / fmt::format("crosslane-files-{}", job);
    if (rank_ == 0) std::filesystem::create_directories(path_);
    polite_barrier();
  }
  ~Folder() {
    polite_barrier();
    std::error_code ignored;
    if (rank_ == 0) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  int rank_;
  std::filesystem::path path_;
};

std::vector<char> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool has_lower_bound(MPI_Datatype type) {
  MPI_Aint lb = 0, extent = 0, true_lb = 0, true_extent = 0;
  MPI_Type_get_extent(type, &lb, &extent);
  MPI_Type_get_true_extent(type, &true_lb, &true_extent);
  return lb != 0 || true_lb != 0;
}

class Test {
 public:
  Test(Program& program, const Folder& folder) : program_(program), folder_(folder) {}

  void run(const Procedure& procedure) {
    auto& random = wants_equal_amounts(procedure) ? program_.shared() : program_.local();
    const Draw draw{random, program_};
    // MPICH's files cannot take its own pair types apart, and both MPIs' files stumble over structures.
    const Base* base_choice = &random.pick(bases());
    while (base_choice->name.ends_with("_INT") || base_choice->name.starts_with("{"))
      base_choice = &random.pick(bases());
    const Base& base = *base_choice;
    auto buffer = Argument::single(draw, base, static_cast<int>(random.bytes(20000) / base.extent), 1, 0);
    // MPICH's files place types of a lower bound of their own wrongly.
    while (has_lower_bound(buffer.type))
      buffer = Argument::single(draw, base, static_cast<int>(random.bytes(20000) / base.extent), 1, 0);
    if (buffer.address() == nullptr) buffer.give_memory(draw);
    const bool large = random.chance(40);
    const auto place = MPI_Offset{program_.rank} * 30000 + random.between(0, 99);
    CROSSLANE_STEP("{}{}{} of {}", procedure.name, procedure.form == Form::split ? "_begin" : "", large ? "_c" : "",
                   buffer.text());
    const auto tested = folder_.file("tested"), plain = folder_.file("plain");
    if (program_.rank == 0) {
      for (const auto& path : {tested, plain}) std::filesystem::remove(path);
      // The last rank's part, and of a shared pointer's order the last reader's, is cut short.
      if (!procedure.writes) {
        // Open MPI 4.1 hangs in a nonblocking or split read past the end.
        const std::size_t cut = procedure.form == Form::blocking ? 20000 : 0;
        const auto bytes = pattern(program_.seed, 30000 * static_cast<std::size_t>(program_.size) - cut);
        for (const auto& path : {tested, plain})
          std::ofstream(path, std::ios::binary)
              .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      }
    }
    polite_barrier();
    int got = 0, expected = 0;
    in_turn(procedure, plain, [&](const File& file) {
      expected = file.run(procedure, place, buffer.reference_address(), buffer.count, buffer.type, false);
    });
    in_turn(procedure, tested, [&](const File& file) {
      got = file.run(procedure, place, buffer.address(), buffer.count, buffer.type, large);
    });

    CROSSLANE_CHECK_EQUAL(got, expected);
    if (!procedure.writes) buffer.ignore_elements_behind(got);
    buffer.check(procedure.name);
    if (program_.rank == 0 && procedure.writes)
      CROSSLANE_CHECK(contents(tested) == contents(plain), "{}: the file differs from the one that plain MPI writes",
                      procedure.name);
  }

 private:
  // All at once, or one rank after the other where the shared pointer's order would be that of arrival.
  template <class Body>
  void in_turn(const Procedure& procedure, const std::string& path, Body&& body) {
    {
      const File file(path);
      if (procedure.place != Place::shared) {
        body(file);
      } else {
        for (int rank = 0; rank < program_.size; ++rank) {
          if (rank == program_.rank) body(file);
          polite_barrier();
        }
      }
    }
    polite_barrier();
  }

  Program& program_;
  const Folder& folder_;
};

// MPI refuses what has no file, whatever the memory.
void no_file(const Program& program) {
  constexpr int count = 100;
  std::vector<int> plain(count, 7);
  Memory memory(program.device() != nullptr ? MemoryKind::device : MemoryKind::host, plain.size() * sizeof(int));
  memory.fill(plain);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  const auto check = [&](const char* call, auto&& body) {
    CROSSLANE_STEP("{} of MPI_FILE_NULL in {} memory", call, name(memory.kind()));
    int expected = MPI_SUCCESS, got = MPI_SUCCESS;
    MPI_Error_class(body(static_cast<void*>(plain.data())), &expected);
    MPI_Error_class(body(memory.data()), &got);
    CROSSLANE_CHECK_EQUAL(expected, MPI_ERR_FILE);
    CROSSLANE_CHECK_EQUAL(got, expected);
    CROSSLANE_CHECK(memory.values<int>() == plain, "something was read");
  };
  const MPI_File file = MPI_FILE_NULL;
  check("MPI_File_read", [&](void* data) { return MPI_File_read(file, data, count, MPI_INT, &status); });
  check("MPI_File_read_at", [&](void* data) { return MPI_File_read_at(file, 0, data, count, MPI_INT, &status); });
  check("MPI_File_iread_at", [&](void* data) { return MPI_File_iread_at(file, 0, data, count, MPI_INT, &request); });
  check("MPI_File_read_all_begin", [&](void* data) { return MPI_File_read_all_begin(file, data, count, MPI_INT); });
  check("MPI_File_write_at", [&](void* data) { return MPI_File_write_at(file, 0, data, count, MPI_INT, &status); });
}

}  // namespace

// Of a file in another representation a status tells bytes of the file, of which there may be fewer than in memory.
void external(Program& program, const Folder& folder) {
  CROSSLANE_STEP("a file in external32");
  constexpr int count = 1000, bytes = count * int{sizeof(long)};
  const auto open = [&](int mode) {
    MPI_File file = MPI_FILE_NULL;
    const auto path = folder.file(fmt::format("external-{}", program.rank));
    CROSSLANE_MPI(MPI_File_open(MPI_COMM_SELF, path.c_str(), mode, MPI_INFO_NULL, &file));
    return file;
  };
  MPI_File file = open(MPI_MODE_CREATE | MPI_MODE_RDWR);
  // An MPI need not have it; handlers of files return.
  const bool is_there = MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL) == MPI_SUCCESS;
  if (is_there) {
    std::vector<long> values(count);
    std::iota(values.begin(), values.end(), 1);
    std::vector<std::byte> sent(bytes), expected(bytes, std::byte{0x11});
    std::memcpy(sent.data(), values.data(), bytes);
    Memory out(program.kind(), bytes), in(program.kind(), bytes);
    out.write(sent);
    CROSSLANE_MPI(MPI_File_write_at(file, 0, out.data(), count, MPI_LONG, MPI_STATUS_IGNORE));
    for (const int asked : {count, count / 2}) {
      std::fill(expected.begin(), expected.end(), std::byte{0x11});
      in.write(expected);
      CROSSLANE_MPI(MPI_File_read_at(file, 0, expected.data(), asked, MPI_LONG, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_File_read_at(file, 0, in.data(), asked, MPI_LONG, MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(in.read() == expected, "{} of {} numbers into {} memory", asked, count, name(in.kind()));
    }
  }
  CROSSLANE_MPI(MPI_File_close(&file));
}

// ROMIO's status of a nonblocking collective read says that all was read, and so does OMPIO's of a blocking one, which hangs in the other.
void past_the_end(Program& program, const Folder& folder) {
#ifdef CROSSLANE_TEST_MPI_OPENMPI
  constexpr bool nonblocking = false;
#else
  constexpr bool nonblocking = true;
#endif
  CROSSLANE_STEP("collective reads past the end");
  constexpr int there = 20, asked = 40;
  const auto path = folder.file(fmt::format("short-{}", program.rank));
  MPI_File file = MPI_FILE_NULL;
  CROSSLANE_MPI(MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  Memory memory(program.kind(), asked);
  const auto fill = [&](int byte) { memory.write(std::vector<std::byte>(asked, static_cast<std::byte>(byte))); };
  const auto read = [&](bool at, MPI_Request* request) {
    if (nonblocking && at) return MPI_File_iread_at_all(file, 0, memory.data(), asked, MPI_BYTE, request);
    if (nonblocking) return MPI_File_iread_all(file, memory.data(), asked, MPI_BYTE, request);
    if (at) return MPI_File_read_at_all(file, 0, memory.data(), asked, MPI_BYTE, MPI_STATUS_IGNORE);
    return MPI_File_read_all(file, memory.data(), asked, MPI_BYTE, MPI_STATUS_IGNORE);
  };
  for (const bool at : {false, true}) {
    fill(0xab);  // what a host copy may hold
    CROSSLANE_MPI(MPI_File_write_at(file, 0, memory.data(), asked, MPI_BYTE, MPI_STATUS_IGNORE));
    CROSSLANE_MPI(MPI_File_set_size(file, there));
    CROSSLANE_MPI(MPI_File_seek(file, 0, MPI_SEEK_SET));
    fill(0x77);
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(read(at, &request));
    CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    std::vector<std::byte> expected(asked, std::byte{0x77});
    std::fill_n(expected.begin(), there, std::byte{0xab});
    CROSSLANE_CHECK(memory.read() == expected, "{} memory, {}", name(memory.kind()), at ? "at an offset" : "in turn");
  }
  CROSSLANE_MPI(MPI_File_close(&file));
}

// The same where the view has holes, where ROMIO's statuses tell that all was read: what was not stays as it was. One block alone, for of several
// ROMIO itself writes anything behind the end.
void past_the_end_of_a_view(Program& program, const Folder& folder) {
  constexpr int there = 20, asked = 40, apart = 3 * asked;
  const auto path = folder.file(fmt::format("view-{}", program.rank));
  MPI_File file = MPI_FILE_NULL;
  CROSSLANE_MPI(MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  const std::vector<std::byte> written(there, std::byte{0xab});
  CROSSLANE_MPI(
      MPI_File_write_at(file, 0, written.data(), static_cast<int>(written.size()), MPI_BYTE, MPI_STATUS_IGNORE));
  MPI_Datatype block = MPI_DATATYPE_NULL, spaced = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_contiguous(asked, MPI_BYTE, &block));
  CROSSLANE_MPI(MPI_Type_create_resized(block, 0, apart, &spaced));
  CROSSLANE_MPI(MPI_Type_commit(&spaced));
  CROSSLANE_MPI(MPI_Type_free(&block));
  CROSSLANE_MPI(MPI_File_set_view(file, 0, MPI_BYTE, spaced, "native", MPI_INFO_NULL));
  CROSSLANE_MPI(MPI_Type_free(&spaced));
  Memory memory(program.kind(), asked);
  std::vector<std::byte> expected(asked, std::byte{0x77});
  std::fill_n(expected.begin(), there, std::byte{0xab});
  MPI_Status status;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto check = [&](const char* call, auto&& read) {
    CROSSLANE_STEP("{} past the end of a view", call);
    CROSSLANE_MPI(MPI_File_seek(file, 0, MPI_SEEK_SET));
    CROSSLANE_MPI(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    memory.write(std::vector<std::byte>(asked, std::byte{0x77}));
    CROSSLANE_MPI(read(memory.data()));
    CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(memory.read() == expected, "{}, {} memory", call, name(memory.kind()));
  };
  check("MPI_File_read", [&](void* to) { return MPI_File_read(file, to, asked, MPI_BYTE, &status); });
  check("MPI_File_read_at", [&](void* to) { return MPI_File_read_at(file, 0, to, asked, MPI_BYTE, &status); });
  check("MPI_File_read_all", [&](void* to) { return MPI_File_read_all(file, to, asked, MPI_BYTE, &status); });
  check("MPI_File_read_at_all", [&](void* to) { return MPI_File_read_at_all(file, 0, to, asked, MPI_BYTE, &status); });
  check("MPI_File_read_shared", [&](void* to) { return MPI_File_read_shared(file, to, asked, MPI_BYTE, &status); });
  check("MPI_File_read_ordered", [&](void* to) { return MPI_File_read_ordered(file, to, asked, MPI_BYTE, &status); });
#ifndef CROSSLANE_TEST_MPI_OPENMPI  // whose nonblocking reads past the end do not end
  check("MPI_File_read_at_all_begin", [&](void* to) {
    const int begun = MPI_File_read_at_all_begin(file, 0, to, asked, MPI_BYTE);
    return begun == MPI_SUCCESS ? MPI_File_read_at_all_end(file, to, &status) : begun;
  });
  check("MPI_File_iread", [&](void* to) { return MPI_File_iread(file, to, asked, MPI_BYTE, &request); });
  check("MPI_File_iread_at", [&](void* to) { return MPI_File_iread_at(file, 0, to, asked, MPI_BYTE, &request); });
  check("MPI_File_iread_shared", [&](void* to) { return MPI_File_iread_shared(file, to, asked, MPI_BYTE, &request); });
#endif
  CROSSLANE_MPI(MPI_File_close(&file));
}

int main(int argc, char** argv) {
  Program program(argc, argv, "files_test");
  const auto only = program.text_option("only", "");
  const auto cases = program.option("cases", 2);
  {
    const Folder folder(program.rank);
    no_file(program);
    external(program, folder);
    past_the_end(program, folder);
    past_the_end_of_a_view(program, folder);
    Test test(program, folder);
    for (std::int64_t i = 0; i < cases; ++i)
      for (const auto& procedure : procedures())
        if (only.empty() || calls(procedure, only)) test.run(procedure);
  }
  return program.finish();
}
