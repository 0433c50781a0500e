// MPI_Pack and MPI_Unpack (MPI 5.0, section 5.2) where either side is GPU memory: by kernels, since the MPIs that there are
// make the plain stream that layouts describe (tried out once). The external32 forms, what the MPI would refuse and what
// a tool wants to see go through host copies: the MPI works on them, and only the bytes that it packed or unpacked are
// written.
#include "base/error.h"
#include "base/function_ref.h"
#include "interpose/manual.h"
#include "interpose/mutant.h"
#include "interpose/process.h"
#include "interpose/route.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

namespace crosslane::interpose {
namespace {

// One side holds elements, the other the packed stream from `position` on.
struct Packing {
  bool packs;
  const Argument& elements;
  void* base;
  MPI_Count count;
  MPI_Datatype type;
  const Argument& packed;
  void* buffer;
  MPI_Count size;
  MPI_Count* position;
};

void move(Process& process, const Packing& packing, const layout::Layout& layout, std::size_t bytes,
          const engine::Watch& watch) {
  const auto byte = process.layouts().of(process.library().handles().byte);
  auto* const stream = lane::byte_at(packing.buffer, static_cast<std::ptrdiff_t>(*packing.position));
  auto* const base = static_cast<std::byte*>(packing.base);
  lane::Batch batch(process.copier(), watch);
  if (packing.elements.on_gpu() && packing.packed.on_gpu()) {
    const lane::Place place = packing.elements.place().with(packing.packed.place());
    const auto elements = lane::Side::of(base, layout, packing.count);
    const auto packed = lane::Side::packed(stream);
    batch.across(place, packing.packs ? packed : elements, packing.packs ? elements : packed, 0, bytes);
    return batch.wait();
  }
  const bool elements_there = packing.elements.on_gpu();
  const lane::Place& place = elements_there ? packing.elements.place() : packing.packed.place();
  const layout::Layout& there = elements_there ? layout : *byte;
  const MPI_Count count = elements_there ? packing.count : static_cast<MPI_Count>(bytes);
  auto* const device = elements_there ? base : stream;
  const lane::HostBlock host = batch.lend(place, bytes);
  if (elements_there == packing.packs) {  // from the GPU
    batch.to_host(place, host.data(), device, there, count, 0, bytes, lane::Form::packed);
    batch.wait();
    if (elements_there) {
      std::memcpy(stream, host.data(), bytes);
    } else {
      layout.unpack(base, host.data(), packing.count, 0, bytes);
    }
    return;
  }
  if (elements_there) {
    std::memcpy(host.data(), stream, bytes);
  } else {
    layout.pack(host.data(), base, packing.count, 0, bytes);
  }
  batch.to_gpu(place, device, host.data(), there, count, 0, bytes, lane::Form::packed);
  batch.wait();
}

const char* limit_of(const Packing& packing) { return packing.packs ? "outsize" : "insize"; }

// Bytes of a buffer, which MPI takes for no count.
void check_size(const char* call, const char* argument, MPI_Count size) {
  if (size < 0)
    throw base::Error(base::ErrorClass::argument, "{}: argument {} is {}; pass how many bytes the packed buffer has",
                      call, argument, size);
}

void check_position(const char* call, const Packing& packing) {
  if (packing.position == nullptr)
    throw base::Error(base::ErrorClass::argument, "{}: argument position is a null pointer; pass where to go on", call);
  if (*packing.position < 0 || *packing.position > packing.size) {
    throw base::Error(base::ErrorClass::argument,
                      "{}: argument position says {}, which lies outside of the {} bytes of argument {}; begin with 0 "
                      "and pass what the call before left there",
                      call, *packing.position, packing.size, limit_of(packing));
  }
}

// A packed buffer that is too small is refused here: MPICH fills what there is, says nothing, and for nested datatypes
// writes wherever its pointers happen to lead (4.0.2). `packed_bytes` are what all elements take.
void check_room(const char* call, const Packing& packing, MPI_Count packed_bytes) {
  if (packed_bytes > packing.size - *packing.position) {
    throw base::Error(base::ErrorClass::truncate,
                      "{}: argument {} is {}, which leaves {} bytes behind position {}, but {} elements of this "
                      "datatype take {} bytes, packed; {}",
                      call, limit_of(packing), packing.size, packing.size - *packing.position, *packing.position,
                      packing.count, packed_bytes,
                      packing.packs ? "provide what MPI_Pack_size (or MPI_Pack_external_size) tells"
                                    : "unpack no more elements than were packed");
  }
}

// How a procedure packs: what `count` elements take as its stream, in bytes (nothing where only the MPI knows) or the
// MPI's error code, and whether kernels make the same stream.
struct Stream {
  base::FunctionRef<int(std::optional<MPI_Count>& bytes)> measure;
  bool by_kernels;
};

// MPI_Pack's stream is plain where the MPI's is.
int measure_plain(Process& process, MPI_Count count, MPI_Datatype datatype, std::optional<MPI_Count>& bytes) {
  if (process.layouts().packs_plainly())
    bytes = static_cast<MPI_Count>(process.layouts().of(datatype)->packed_size(count));
  return mpi::success;
}

// Open MPI tells more than it packs (of MPI_LONG 8 bytes, and packs 4), and refuses by itself what has too little room.
int measure_external(const mpi::Functions& next, const char* datarep, MPI_Count count, MPI_Datatype datatype,
                     std::optional<MPI_Count>& bytes) {
  if (std::string_view(mpi::family) == "openmpi") return mpi::success;
  MPI_Count known = 0;
  const int code = mpi::calls::Pack_external_size(next, datarep, count, datatype, &known);
  if (code == mpi::success) bytes = known;
  return code;
}

// By kernels; nothing where the MPI has to have a look. `ask` makes the application's call with no elements and on host
// memory: the MPI checks the other arguments, and raises what it does not like.
template <class Ask>
std::optional<int> by_kernels(Route& route, const Packing& packing, MPI_Count bytes, Ask&& ask) {
  auto& process = route.process();
  if (packing.elements.on_gpu() && packing.packed.on_gpu() &&
      packing.elements.place().context != packing.packed.place().context)
    return std::nullopt;
  std::byte nothing[1]{};
  MPI_Count unmoved = *packing.position;
  if (const int code = ask(nothing, &unmoved); code != mpi::success) return code;
  route.took("kernels");
  process.settle(false);
  const auto& operation = route.operation();
  if (!mutated(operation.call, "copy in dropped") && !mutated(operation.call, "copy out dropped")) {
    move(process, packing, *process.layouts().of(packing.type), static_cast<std::size_t>(bytes), operation.watch());
  }
  *packing.position += bytes;
  return mpi::success;
}

// Refuses what cannot be done, and does what kernels can. Nothing: the MPI does it on host copies.
template <class Ask>
std::optional<int> without_mpi(Route& route, const Packing& packing, const Stream& stream, Ask&& ask) {
  const bool on_gpu = packing.elements.on_gpu() || packing.packed.on_gpu();
  // Of nothing at all it is not known where it lies: the MPI must not be given that address to find that it has no room.
  if (!on_gpu && packing.size != 0) return std::nullopt;
  std::optional<MPI_Count> bytes;
  if (const int code = stream.measure(bytes); code != mpi::success) return code;
  check_position(route.operation().call, packing);
  if (!bytes) return std::nullopt;
  check_room(route.operation().call, packing, *bytes);
  if (!on_gpu || !stream.by_kernels || *bytes == 0) return std::nullopt;
  return by_kernels(route, packing, *bytes, ask);
}

// By the MPI on host copies. What lies before and behind the packed range is not this call's: others may write there meanwhile.
int pack_on_host(Route& route, const Argument& packed, MPI_Count* position, base::FunctionRef<int()> invoke) {
  route.took("staged");
  route.stage_and_fetch();
  const MPI_Count begin = packed.on_gpu() ? *position : 0;
  const int code = invoke();
  const auto& operation = route.operation();
  if (code != mpi::success || !packed.on_gpu() || mutated(operation.call, "copy out dropped")) return code;
  lane::Batch batch(route.process().copier(), operation.watch());
  packed.deliver_range(batch, static_cast<std::size_t>(begin), static_cast<std::size_t>(*position));
  batch.wait();
  return code;
}

template <class Invoke>
int packing(const Site& site, const char* call, const Target& target, const void* inbuf, MPI_Count incount,
            MPI_Datatype datatype, void* outbuf, MPI_Count outsize, MPI_Count* position, const Stream& stream,
            Invoke&& invoke) {
  return run_route(site.process(), site.next(), call, target, [&](Route& route) {
    const auto byte = site.process().library().handles().byte;
    check_size(call, "outsize", outsize);
    const auto& in = route.single("inbuf", inbuf, "incount", incount, 1, datatype, Direction::in, lane::Form::mirror);
    const auto& out = route.single("outbuf", outbuf, "outsize", outsize, 1, byte, Direction::out, lane::Form::mirror);
    const Packing plain{true, in, const_cast<void*>(inbuf), incount, datatype, out, outbuf, outsize, position};
    if (const auto code = without_mpi(route, plain, stream, [&](void* nothing, MPI_Count* unmoved) {
          return invoke(route.next(), nothing, 0, nothing, unmoved);
        })) {
      return *code;
    }
    return pack_on_host(route, out, position,
                        [&] { return invoke(route.next(), in.address(), incount, out.address(), position); });
  });
}

template <class Invoke>
int unpacking(const Site& site, const char* call, const Target& target, const void* inbuf, MPI_Count insize,
              MPI_Count* position, void* outbuf, MPI_Count outcount, MPI_Datatype datatype, const Stream& stream,
              Invoke&& invoke) {
  return run_route(site.process(), site.next(), call, target, [&](Route& route) {
    const auto byte = site.process().library().handles().byte;
    check_size(call, "insize", insize);
    const auto& in = route.single("inbuf", inbuf, "insize", insize, 1, byte, Direction::in, lane::Form::mirror);
    const auto& out =
        route.single("outbuf", outbuf, "outcount", outcount, 1, datatype, Direction::out, lane::Form::mirror);
    const Packing plain{false, out, outbuf, outcount, datatype, in, const_cast<void*>(inbuf), insize, position};
    if (const auto code = without_mpi(route, plain, stream, [&](void* nothing, MPI_Count* unmoved) {
          return invoke(route.next(), nothing, nothing, 0, unmoved);
        })) {
      return *code;
    }
    return route.blocking(mpi::status_ignore(), [&](const mpi::Functions& next, mpi::Narrowed&, MPI_Status*) {
      return invoke(next, in.address(), out.address(), outcount, position);
    });
  });
}

}  // namespace

int manual::pack(const Site& site, const char* call, const void* inbuf, MPI_Count incount, MPI_Datatype datatype,
                 void* outbuf, MPI_Count outsize, MPI_Count* position, MPI_Comm comm) {
  const bool seen = site.next().Pack != site.process().library().below().Pack;
  auto& process = site.process();
  const auto measure = [&](std::optional<MPI_Count>& bytes) {
    return measure_plain(process, incount, datatype, bytes);
  };
  const Stream stream{measure, !seen};
  return packing(site, call, Target::of_comm(comm), inbuf, incount, datatype, outbuf, outsize, position, stream,
                 [&](const mpi::Functions& next, const void* in, MPI_Count count, void* out, MPI_Count* place) {
                   return mpi::calls::Pack(next, in, count, datatype, out, outsize, place, comm);
                 });
}

int manual::pack_external(const Site& site, const char* call, const char datarep[], const void* inbuf,
                          MPI_Count incount, MPI_Datatype datatype, void* outbuf, MPI_Count outsize,
                          MPI_Count* position) {
  const auto measure = [&](std::optional<MPI_Count>& bytes) {
    return measure_external(site.next(), datarep, incount, datatype, bytes);
  };
  const Stream stream{measure, false};
  return packing(site, call, Target::self(), inbuf, incount, datatype, outbuf, outsize, position, stream,
                 [&](const mpi::Functions& next, const void* in, MPI_Count count, void* out, MPI_Count* place) {
                   return mpi::calls::Pack_external(next, datarep, in, count, datatype, out, outsize, place);
                 });
}

int manual::unpack(const Site& site, const char* call, const void* inbuf, MPI_Count insize, MPI_Count* position,
                   void* outbuf, MPI_Count outcount, MPI_Datatype datatype, MPI_Comm comm) {
  const bool seen = site.next().Unpack != site.process().library().below().Unpack;
  auto& process = site.process();
  const auto measure = [&](std::optional<MPI_Count>& bytes) {
    return measure_plain(process, outcount, datatype, bytes);
  };
  const Stream stream{measure, !seen};
  return unpacking(site, call, Target::of_comm(comm), inbuf, insize, position, outbuf, outcount, datatype, stream,
                   [&](const mpi::Functions& next, const void* in, void* out, MPI_Count count, MPI_Count* place) {
                     return mpi::calls::Unpack(next, in, insize, place, out, count, datatype, comm);
                   });
}

int manual::unpack_external(const Site& site, const char* call, const char datarep[], const void* inbuf,
                            MPI_Count insize, MPI_Count* position, void* outbuf, MPI_Count outcount,
                            MPI_Datatype datatype) {
  const auto measure = [&](std::optional<MPI_Count>& bytes) {
    return measure_external(site.next(), datarep, outcount, datatype, bytes);
  };
  const Stream stream{measure, false};
  return unpacking(site, call, Target::self(), inbuf, insize, position, outbuf, outcount, datatype, stream,
                   [&](const mpi::Functions& next, const void* in, void* out, MPI_Count count, MPI_Count* place) {
                     return mpi::calls::Unpack_external(next, datarep, in, insize, place, out, count, datatype);
                   });
}

}  // namespace crosslane::interpose
