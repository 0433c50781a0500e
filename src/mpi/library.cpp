// Finding an MPI library that the application loaded. It is linked into the library that exports MPI_X itself:
// RTLD_NEXT means "behind the object that this code is in".
#include "mpi/library.h"

#include "base/log.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

namespace crosslane::mpi {
namespace {

#if defined(CROSSLANE_ABI_OPENMPI)
constexpr std::array sonames = {"libmpi.so.40"};
#elif defined(CROSSLANE_ABI_MPICH)
constexpr std::array sonames = {"libmpi.so.12", "libmpich.so.12"};
#else
constexpr std::array sonames = {"libmpi_abi.so.1", "libmpi_abi.so.0"};
#endif

/// One member of Functions.
struct Entry {
  const char* name;
  std::size_t offset;
};

constexpr Entry entries[] = {
#define CROSSLANE_MPI_FUNCTION(name) {#name, offsetof(Functions, name)},
#include "mpi/functions_names.inc"
#undef CROSSLANE_MPI_FUNCTION
};

std::string_view file_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

/// The path of the object that holds an address.
std::string object_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

/// The loaded objects that look like an MPI library of any family.
std::vector<std::string> loaded_mpis() {
  std::vector<std::string> found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* context) {
        const std::string_view name = file_name(info->dlpi_name == nullptr ? "" : info->dlpi_name);
        for (const std::string_view prefix : {"libmpi.so", "libmpich.so", "libmpi_abi.so"}) {
          if (name.starts_with(prefix)) static_cast<std::vector<std::string>*>(context)->push_back(info->dlpi_name);
        }
        return 0;
      },
      &found);
  return found;
}

/// The places where symbols are looked for, in order.
class Search {
 public:
  Search() {
    for (const char* soname : sonames) {
      // NOLOAD: only what the application has loaded itself, e.g. mpi4py with RTLD_LOCAL; never another MPI.
      if (handle_ = dlopen(soname, RTLD_NOLOAD | RTLD_LAZY); handle_ != nullptr) break;
    }
  }
  ~Search() {
    if (handle_ != nullptr) dlclose(handle_);  // only our count of it; the application keeps it
  }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  /// A function that stands behind the object that this code is in.
  [[nodiscard]] void* function(const char* name) const {
    void* const found = dlsym(RTLD_NEXT, name);
    return found != nullptr || handle_ == nullptr ? found : dlsym(handle_, name);
  }

  /// What answers for the MPI alone: not that of another library of ours, which a program may be linked with while this one is preloaded.
  [[nodiscard]] void* query(const char* name) const {
    void* const found = function(name);
    if (found == nullptr || !file_name(object_of(found)).starts_with("libcrosslane_")) return found;
    return handle_ == nullptr ? nullptr : dlsym(handle_, name);
  }

  /// An MPI's data. A copy of it in the executable (a copy relocation) is the one that counts, and comes first in the
  /// global scope; behind us there is only the original that nobody uses.
  [[nodiscard]] void* data(const char* name) const {
    void* const found = dlsym(RTLD_DEFAULT, name);
    return found != nullptr || handle_ == nullptr ? found : dlsym(handle_, name);
  }

 private:
  void* handle_ = nullptr;
};

/// True if the library that `search` finds is of this family.
bool of_this_family(const Search& search, const std::string& path) {
  const bool open_mpi = search.data("ompi_mpi_comm_world") != nullptr;
  const bool standard = file_name(path).starts_with("libmpi_abi.so");
#if defined(CROSSLANE_ABI_OPENMPI)
  return open_mpi && !standard;
#elif defined(CROSSLANE_ABI_MPICH)
  return !open_mpi && !standard;
#else
  static_cast<void>(open_mpi);
  return standard;
#endif
}

/// Fills a table from the names <prefix>_X, and returns how many it found.
std::size_t fill(const Search& search, const char* prefix, Functions& functions) {
  std::size_t filled = 0;
  for (const Entry& entry : entries) {
    void* found = search.function(fmt::format("{}_{}", prefix, entry.name).c_str());
    if (found == nullptr && std::string_view(entry.name).ends_with("_init")) {
      // Open MPI 4.1 has the persistent collectives of MPI 4.0 as extensions with the same parameters.
      found = search.function(fmt::format("{}X_{}", prefix, entry.name).c_str());
    }
    if (found == nullptr) continue;
    // A function pointer and the void* that dlsym gives have one representation (POSIX).
    std::memcpy(reinterpret_cast<std::byte*>(&functions) + entry.offset, &found, sizeof(found));
    ++filled;
  }
  return filled;
}

template <class Function>
Function function_from(void* symbol) {
  Function function = nullptr;
  if (symbol != nullptr) std::memcpy(&function, &symbol, sizeof(symbol));
  return function;
}

std::string expected_names() {
  std::string text;
  for (const char* soname : sonames) text += fmt::format("{}{}", text.empty() ? "" : " or ", soname);
  return text;
}

[[noreturn]] void not_found(const std::string& other) {
  std::string found;
  for (const std::string& path : loaded_mpis()) found += fmt::format("{}{}", found.empty() ? "" : ", ", path);
  if (found.empty()) found = other.empty() ? "no MPI library" : other;
  throw base::Error(
      base::ErrorClass::other,
      "this is Crosslane's library for the {} family of MPI ({}), and the process has loaded {}. Start the "
      "program with `crosslane run`, which picks the right one, or preload the library of the other family",
      family, expected_names(), found);
}

}  // namespace

Library::Library() = default;
Library::~Library() = default;

const Library::Tables& Library::resolve() const {
  const std::scoped_lock lock(mutex_);
  if (tables_ != nullptr) return *tables_;
  const Search search;
  void* const anchor = search.function("PMPI_Comm_rank");
  if (anchor == nullptr) not_found({});
  auto made = std::make_unique<Tables>();
  made->path = object_of(anchor);
  if (!of_this_family(search, made->path)) not_found(made->path);
  const std::size_t below = fill(search, "PMPI", made->below);
  const std::size_t next = fill(search, "MPI", made->next);
  made->handles =
      Handles::resolve([](void* context, const char* name) { return static_cast<const Search*>(context)->data(name); },
                       const_cast<Search*>(&search));
  made->next.handles = &made->handles;
  made->below.handles = &made->handles;
  made->query_cuda = function_from<int (*)(void)>(search.query("MPIX_Query_cuda_support"));
  made->query_gpu = function_from<int (*)(int, int*)>(search.query("MPIX_GPU_query_support"));
  base::log(base::Topic::debug, "MPI is {}: {} functions, {} of them before PMPI tools", made->path, below, next);
  tables_ = std::move(made);
  found_.store(tables_.get(), std::memory_order_release);
  return *tables_;
}

bool Library::loaded() const noexcept {
  try {
    static_cast<void>(tables());
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

std::string Library::version() const {
  std::string text(static_cast<std::size_t>(max_library_version_string), '\0');
  int length = 0;
  if (below().Get_library_version == nullptr || below().Get_library_version(text.data(), &length) != success) return {};
  text.resize(std::strlen(text.c_str()));
  return text;
}

bool world_exists(const Functions& below) noexcept {
  int initialized = 0, finalized = 0;
  if (below.Initialized == nullptr || below.Initialized(&initialized) != success || initialized == 0) return false;
  return below.Finalized != nullptr && below.Finalized(&finalized) == success && finalized == 0;
}

bool Library::cuda_capable() const {
  const Tables& found = tables();
  // MPICH ends the program when it is asked outside of MPI_Init and MPI_Finalize.
  if (!world_exists(found.below)) return false;
  if (found.query_gpu != nullptr) {
    constexpr int cuda = 0;  // MPIX_GPU_SUPPORT_CUDA
    int supported = 0;
    if (found.query_gpu(cuda, &supported) == success) return supported != 0;
  }
  return found.query_cuda != nullptr && found.query_cuda() != 0;
}

}  // namespace crosslane::mpi
