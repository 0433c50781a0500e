// MPI_Pack, MPI_Unpack and their external32 forms (MPI 5.0, section 5.2) where either side is GPU memory: the MPI works on
// host copies, and only the bytes that it packed or unpacked are written.
#include "interpose/manual.h"
#include "interpose/process.h"
#include "interpose/route.h"

#include <limits>

namespace crosslane::interpose {
namespace {

// The packed buffer is bytes; what lies before and after the packed range keeps what it held, so it is copied in as well.
template <class Invoke>
int packing(const Site& site, const char* call, const Target& target, const void* inbuf, MPI_Count incount,
            MPI_Datatype datatype, void* outbuf, MPI_Count outsize, Invoke&& invoke) {
  return run_route(site.process(), site.next(), call, target, [&](Route& route) {
    const auto byte = site.process().library().handles().byte;
    const auto& in = route.single("inbuf", inbuf, "incount", incount, 1, datatype, Direction::in, lane::Form::mirror);
    const auto& out = route.single("outbuf", outbuf, "outsize", outsize, 1, byte, Direction::inout, lane::Form::mirror);
    return route.blocking(mpi::status_ignore(), [&](const mpi::Functions& next, mpi::Narrowed&, MPI_Status*) {
      return invoke(next, in.address(), out.address());
    });
  });
}

template <class Invoke>
int unpacking(const Site& site, const char* call, const Target& target, const void* inbuf, MPI_Count insize,
              void* outbuf, MPI_Count outcount, MPI_Datatype datatype, Invoke&& invoke) {
  return run_route(site.process(), site.next(), call, target, [&](Route& route) {
    const auto byte = site.process().library().handles().byte;
    const auto& in = route.single("inbuf", inbuf, "insize", insize, 1, byte, Direction::in, lane::Form::mirror);
    const auto& out =
        route.single("outbuf", outbuf, "outcount", outcount, 1, datatype, Direction::out, lane::Form::mirror);
    return route.blocking(mpi::status_ignore(), [&](const mpi::Functions& next, mpi::Narrowed&, MPI_Status*) {
      return invoke(next, in.address(), out.address());
    });
  });
}

}  // namespace

int manual::pack(const Site& site, const char* call, const void* inbuf, MPI_Count incount, MPI_Datatype datatype,
                 void* outbuf, MPI_Count outsize, MPI_Count* position, MPI_Comm comm) {
  return packing(site, call, Target::of_comm(comm), inbuf, incount, datatype, outbuf, outsize,
                 [&](const mpi::Functions& next, const void* in, void* out) {
                   return mpi::calls::Pack(next, in, incount, datatype, out, outsize, position, comm);
                 });
}

int manual::pack_external(const Site& site, const char* call, const char datarep[], const void* inbuf,
                          MPI_Count incount, MPI_Datatype datatype, void* outbuf, MPI_Count outsize,
                          MPI_Count* position) {
  return packing(site, call, Target::self(), inbuf, incount, datatype, outbuf, outsize,
                 [&](const mpi::Functions& next, const void* in, void* out) {
                   return mpi::calls::Pack_external(next, datarep, in, incount, datatype, out, outsize, position);
                 });
}

int manual::unpack(const Site& site, const char* call, const void* inbuf, MPI_Count insize, MPI_Count* position,
                   void* outbuf, MPI_Count outcount, MPI_Datatype datatype, MPI_Comm comm) {
  return unpacking(site, call, Target::of_comm(comm), inbuf, insize, outbuf, outcount, datatype,
                   [&](const mpi::Functions& next, const void* in, void* out) {
                     return mpi::calls::Unpack(next, in, insize, position, out, outcount, datatype, comm);
                   });
}

int manual::unpack_external(const Site& site, const char* call, const char datarep[], const void* inbuf,
                            MPI_Count insize, MPI_Count* position, void* outbuf, MPI_Count outcount,
                            MPI_Datatype datatype) {
  return unpacking(site, call, Target::self(), inbuf, insize, outbuf, outcount, datatype,
                   [&](const mpi::Functions& next, const void* in, void* out) {
                     return mpi::calls::Unpack_external(next, datarep, in, insize, position, out, outcount, datatype);
                   });
}

}  // namespace crosslane::interpose
