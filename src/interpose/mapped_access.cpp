// See mapped_access.h.
#include "interpose/mapped_access.h"

#include "base/error.h"
#include "interpose/elements.h"
#include "interpose/mapped_window.h"
#include "interpose/route.h"
#include "interpose/sending.h"
#include "interpose/undertaking.h"
#include "interpose/windows.h"
#include "layout/contents.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace crosslane::interpose::mapped {
namespace {

struct Remote {
  int rank;
  MPI_Aint displacement;
  MPI_Count count;
  MPI_Datatype type;
};

/// A buffer of the caller's.
struct Local {
  const char* name;
  const void* address;
  const char* count_name;
  MPI_Count count;
  const char* type_name;
  MPI_Datatype type;
  Direction direction;
};

/// One access, once its arguments are known to be sound as far as MPI looks at them.
class Access {
 public:
  Access(Route& route, MappedWindow& window, const char* call, const Remote& target)
      : route_(route), window_(window), call_(call), target_(target) {
    window.check_home(call);
    window.epochs().check_access(call, target.rank);
  }

  /// Where they lie, or their host copies do. Then remote() is known.
  std::vector<TypedMemory> locals(std::span<const Local> buffers) {
    std::vector<const Argument*> arguments;
    for (const Local& one : buffers)
      arguments.push_back(&route_.single(one.name, one.address, one.count_name, one.count, 1, one.type, one.direction,
                                         lane::Form::packed));
    const auto elsewhere = [&](const Argument* one) {
      return one->on_gpu() && (one->apart() || one->place().context != window_.home()->context());
    };
    lifted_ = std::ranges::any_of(arguments, elsewhere);
    route_.took(lifted_ ? "staged" : "direct");
    remote_ = window_.at(call_, target_.rank, target_.displacement, target_.count, layout_of(target_.type));
    if (lifted_) route_.stage_and_fetch();
    std::vector<TypedMemory> found;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const Argument& argument = *arguments[i];
      // A host copy has the caller's datatype, or is packed.
      const bool copied = lifted_ && argument.on_gpu();
      const void* const address = copied ? argument.address() : buffers[i].address;
      found.push_back({static_cast<std::byte*>(const_cast<void*>(address)),
                       layout_of(copied ? argument.type() : buffers[i].type),
                       copied ? argument.count() : buffers[i].count,
                       argument.on_gpu() && !copied ? std::optional(argument.place()) : std::nullopt});
    }
    return found;
  }
  [[nodiscard]] const TypedMemory& remote() const noexcept { return remote_; }
  /// Of what has `local` on this side. Throws Error (truncate) where the target has no room for it.
  [[nodiscard]] std::size_t bytes_to_remote(const TypedMemory& local) const {
    return fitting("origin", local.bytes(), "target", remote_.bytes());
  }
  /// Of what comes to `local`. Throws the same where that has no room for it.
  [[nodiscard]] std::size_t bytes_from_remote(const TypedMemory& local) const {
    return fitting("target", remote_.bytes(), "origin", local.bytes());
  }
  /// Results that are in host copies go where they belong.
  void lower() {
    if (!lifted_) return;
    window_.finish();
    route_.operation().deliver(route_.process().copier(), nullptr, route_.process().library().below());
  }
  [[nodiscard]] std::shared_ptr<const layout::Layout> layout_of(MPI_Datatype type) const {
    return route_.process().layouts().of(type);
  }

 private:
  [[nodiscard]] std::size_t fitting(const char* from, std::size_t bytes, const char* to, std::size_t room) const {
    if (bytes > room)
      throw base::Error(base::ErrorClass::truncate,
                        "{}: the {} holds {} bytes, but {}_count elements of {}_datatype are {}; check the counts and "
                        "datatypes",
                        call_, from, bytes, to, to, room);
    return bytes;
  }

  Route& route_;
  MappedWindow& window_;
  const char* call_;
  const Remote target_;
  TypedMemory remote_;
  bool lifted_ = false;
};

// MPI is not to see such an access: the memory of its window is ours. Throws Error (count, type), naming the argument.
void check(Process& process, const char* call, const char* count_name, MPI_Count count, const char* type_name,
           MPI_Datatype type) {
  if (count < 0) throw base::Error(base::ErrorClass::count, "{}: {}: {} is negative", call, count_name, count);
  if (!packed_bytes(process, count, type))
    throw base::Error(base::ErrorClass::type,
                      "{}: {}: it is no committed datatype, or so many elements of it are too much", call, type_name);
}

// body(window, access).
template <class Body>
std::optional<int> accessing(const Site& site, const char* call, MPI_Win win, const Remote& target,
                             std::span<const Local> buffers, MPI_Request* request, const Body& body) {
  auto& process = site.process();
  const auto window = mapped_window(site, win);
  if (window == nullptr || target.rank == mpi::proc_null) return std::nullopt;
  MappedWindow* const mapped = window->mapped();
  return run_route(process, site.next(), call, Target::of_win(win), [&](Route& route) {
    if (!mapped->has(target.rank))
      throw base::Error(base::ErrorClass::rank, "{}: target_rank: {} is no rank of the window", call, target.rank);
    check(process, call, "target_count", target.count, "target_datatype", target.type);
    for (const Local& one : buffers) check(process, call, one.count_name, one.count, one.type_name, one.type);
    Access access(route, *mapped, call, target);
    body(*mapped, access);
    if (request == nullptr) return mpi::success;
    mapped->finish();
    return lend_complete_request(process, request);
  });
}

// The predefined type that elements of a datatype are of: of the first of its parts that has any bytes, as all are alike.
MPI_Datatype element_type(Process& process, MPI_Datatype type) {
  const auto& below = process.library().below();
  const layout::Envelope envelope = layout::envelope_of(below, type);
  if (envelope.predefined()) return type;
  layout::Contents contents(below, type, envelope);
  const auto& parts = contents.types();
  std::vector<std::int64_t> lengths(parts.size(), 1);
  if (envelope.combiner == mpi::Combiner::structure)
    lengths = contents.counts(static_cast<std::size_t>(contents.count()));
  const MPI_Datatype none = process.library().handles().datatype_null;
  MPI_Datatype found = none;
  for (std::size_t i = 0; i < parts.size() && found == none; ++i) {
    int bytes = 0;  // of a part that need not be committed
    if (lengths[i] != 0 && below.Type_size(parts[i], &bytes) == mpi::success && bytes != 0)
      found = element_type(process, parts[i]);
  }
  for (MPI_Datatype part : parts)
    if (!layout::envelope_of(below, part).predefined()) below.Type_free(&part);
  return found;
}

void check_op(Process& process, const char* call, MPI_Op op) {
  const auto& handles = process.library().handles();
  if (op != handles.replace && op != handles.no_op && !op_of(handles, op))
    throw base::Error(base::ErrorClass::op, "{}: op: it is none of MPI's own operations, which alone accumulate", call);
}

// Integers, truth values and bytes alone are compared and swapped; characters, too, which MPIs take though MPI does not.
void check_swapped(Process& process, const char* call, MPI_Datatype type) {
  const auto& handles = process.library().handles();
  const bool is_swapped = combining_of(handles, type, handles.bor) || combining_of(handles, type, handles.land) ||
                          type == handles.char_ ||
                          layout::envelope_of(process.library().below(), type).combiner == mpi::Combiner::f90_integer;
  if (!is_swapped)
    throw base::Error(base::ErrorClass::type, "{}: datatype: only integers, logical values and MPI_BYTE are swapped",
                      call);
}

// Of calls of one element.
void check_predefined(Process& process, const char* call, MPI_Datatype type) {
  if (!element_of(process.library().handles(), type) &&
      !layout::envelope_of(process.library().below(), type).predefined())
    throw base::Error(base::ErrorClass::type,
                      "{}: datatype: it is no predefined one, which alone has one element; use "
                      "MPI_Get_accumulate for others",
                      call);
}

// Of the accumulating calls, with or without a result.
enum class Elements { one, any };
std::optional<int> accumulating(const Site& site, const char* call, MPI_Win win, const Remote& target, Local origin,
                                const Local* result, MPI_Op op, MPI_Request* request,
                                Elements elements = Elements::any) {
  auto& process = site.process();
  const bool reads = op != process.library().handles().no_op;
  std::vector<Local> buffers;
  if (reads) buffers.push_back(origin);
  if (result != nullptr) buffers.push_back(*result);
  return accessing(site, call, win, target, buffers, request, [&](MappedWindow& window, Access& access) {
    check_op(process, call, op);
    if (elements == Elements::one) check_predefined(process, call, target.type);
    const auto locals = access.locals(buffers);
    const TypedMemory nothing{};
    const TypedMemory& from = reads ? locals.front() : nothing;
    const std::size_t bytes = reads ? access.bytes_to_remote(from) : access.remote().bytes();
    if (bytes == 0) return;
    const bool combines = reads && op != process.library().handles().replace;
    const Accumulation how{op, combines ? element_type(process, target.type) : target.type};
    window.accumulate(call, target.rank, access.remote(), from, how, result != nullptr ? &locals.back() : nullptr,
                      bytes);
    access.lower();
  });
}

}  // namespace

std::optional<int> put(const Site& site, const char* call, const void* origin_addr, MPI_Count origin_count,
                       MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                       MPI_Datatype target_datatype, MPI_Win win, MPI_Request* request) {
  const std::array buffers{Local{"origin_addr", origin_addr, "origin_count", origin_count, "origin_datatype",
                                 origin_datatype, Direction::in}};
  return accessing(site, call, win, {target_rank, target_disp, target_count, target_datatype}, buffers, request,
                   [&](MappedWindow& window, Access& access) {
                     const auto locals = access.locals(buffers);
                     window.put(call, access.remote(), locals.front(), access.bytes_to_remote(locals.front()));
                     access.lower();
                   });
}

std::optional<int> get(const Site& site, const char* call, void* origin_addr, MPI_Count origin_count,
                       MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                       MPI_Datatype target_datatype, MPI_Win win, MPI_Request* request) {
  // A host copy keeps what is not fetched.
  const Direction direction = fetching(site.process(), origin_count, origin_datatype, target_count, target_datatype);
  const std::array buffers{
      Local{"origin_addr", origin_addr, "origin_count", origin_count, "origin_datatype", origin_datatype, direction}};
  return accessing(site, call, win, {target_rank, target_disp, target_count, target_datatype}, buffers, request,
                   [&](MappedWindow& window, Access& access) {
                     const auto locals = access.locals(buffers);
                     window.get(call, locals.front(), access.remote(), access.bytes_from_remote(locals.front()));
                     access.lower();
                   });
}

std::optional<int> accumulate(const Site& site, const char* call, const void* origin_addr, MPI_Count origin_count,
                              MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                              MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                              MPI_Request* request) {
  return accumulating(
      site, call, win, {target_rank, target_disp, target_count, target_datatype},
      {"origin_addr", origin_addr, "origin_count", origin_count, "origin_datatype", origin_datatype, Direction::in},
      nullptr, op, request);
}

std::optional<int> get_accumulate(const Site& site, const char* call, const void* origin_addr, MPI_Count origin_count,
                                  MPI_Datatype origin_datatype, void* result_addr, MPI_Count result_count,
                                  MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp,
                                  MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                                  MPI_Request* request) {
  const Local result{"result_addr",
                     result_addr,
                     "result_count",
                     result_count,
                     "result_datatype",
                     result_datatype,
                     fetching(site.process(), result_count, result_datatype, target_count, target_datatype)};
  return accumulating(
      site, call, win, {target_rank, target_disp, target_count, target_datatype},
      {"origin_addr", origin_addr, "origin_count", origin_count, "origin_datatype", origin_datatype, Direction::in},
      &result, op, request);
}

std::optional<int> fetch_and_op(const Site& site, const char* call, const void* origin_addr, void* result_addr,
                                MPI_Datatype datatype, int target_rank, MPI_Aint target_disp, MPI_Op op, MPI_Win win) {
  const Local result{"result_addr", result_addr, "1", 1, "datatype", datatype, Direction::out};
  return accumulating(site, call, win, {target_rank, target_disp, 1, datatype},
                      {"origin_addr", origin_addr, "1", 1, "datatype", datatype, Direction::in}, &result, op, nullptr,
                      Elements::one);
}

std::optional<int> compare_and_swap(const Site& site, const char* call, const void* origin_addr,
                                    const void* compare_addr, void* result_addr, MPI_Datatype datatype, int target_rank,
                                    MPI_Aint target_disp, MPI_Win win) {
  const std::array buffers{Local{"origin_addr", origin_addr, "1", 1, "datatype", datatype, Direction::in},
                           Local{"compare_addr", compare_addr, "1", 1, "datatype", datatype, Direction::in},
                           Local{"result_addr", result_addr, "1", 1, "datatype", datatype, Direction::out}};
  return accessing(site, call, win, {target_rank, target_disp, 1, datatype}, buffers, nullptr,
                   [&](MappedWindow& window, Access& access) {
                     check_swapped(site.process(), call, datatype);
                     const auto locals = access.locals(buffers);
                     window.compare_and_swap(call, target_rank, access.remote(), locals[0], locals[1], locals[2]);
                     access.lower();
                   });
}

}  // namespace crosslane::interpose::mapped
