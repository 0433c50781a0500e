// Point-to-point procedures: every rank sends to its right neighbour and receives from its left one.
#include "demo.h"

namespace demo {
namespace {

using Send = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
using Isend = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

/// The receive is posted first and everybody knows it, so that a ready send may be checked like the others.
bool with_posted_receive(const World& world, const std::function<void(const DeviceVector&)>& send) {
  const DeviceVector out(message(world.rank));
  const DeviceVector in(length);
  MPI_Request receive = MPI_REQUEST_NULL;
  MPI_Irecv(in.data(), length, MPI_INT, world.left(), 1, MPI_COMM_WORLD, &receive);
  MPI_Barrier(MPI_COMM_WORLD);
  send(out);
  finish(receive);
  return in.values() == message(world.left());
}

bool blocking(const World& world, Send send) {
  return with_posted_receive(
      world, [&](const DeviceVector& out) { send(out.data(), length, MPI_INT, world.right(), 1, MPI_COMM_WORLD); });
}

bool nonblocking(const World& world, Isend send) {
  return with_posted_receive(world, [&](const DeviceVector& out) {
    MPI_Request request = MPI_REQUEST_NULL;
    send(out.data(), length, MPI_INT, world.right(), 1, MPI_COMM_WORLD, &request);
    finish(request);
  });
}

bool persistent(const World& world, Isend init) {
  return with_posted_receive(world, [&](const DeviceVector& out) {
    MPI_Request request = MPI_REQUEST_NULL;
    init(out.data(), length, MPI_INT, world.right(), 1, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    finish(request);
    MPI_Request_free(&request);
  });
}

/// A receive of any kind against a plain nonblocking send.
bool received(const World& world, const std::function<void(const DeviceVector&)>& receive) {
  const DeviceVector out(message(world.rank));
  const DeviceVector in(length);
  MPI_Request send = MPI_REQUEST_NULL;
  MPI_Isend(out.data(), length, MPI_INT, world.right(), 2, MPI_COMM_WORLD, &send);
  receive(in);
  finish(send);
  return in.values() == message(world.left());
}

}  // namespace

void add_point_to_point(std::vector<Check>& checks, const World& world) {
  checks.push_back({"MPI_Send", [=] { return blocking(world, MPI_Send); }});
  checks.push_back({"MPI_Ssend", [=] { return blocking(world, MPI_Ssend); }});
  checks.push_back({"MPI_Rsend", [=] { return blocking(world, MPI_Rsend); }});
  checks.push_back({"MPI_Bsend", [=] {
                      std::vector<char> buffer(length * sizeof(int) + MPI_BSEND_OVERHEAD);
                      MPI_Buffer_attach(buffer.data(), static_cast<int>(buffer.size()));
                      const bool right = blocking(world, MPI_Bsend);
                      void* detached = nullptr;
                      int size = 0;
                      MPI_Buffer_detach(&detached, &size);
                      return right;
                    }});
  checks.push_back({"MPI_Isend", [=] { return nonblocking(world, MPI_Isend); }});
  checks.push_back({"MPI_Issend", [=] { return nonblocking(world, MPI_Issend); }});
  checks.push_back({"MPI_Irsend", [=] { return nonblocking(world, MPI_Irsend); }});
  checks.push_back({"MPI_Send_init", [=] { return persistent(world, MPI_Send_init); }});
  checks.push_back({"MPI_Ssend_init", [=] { return persistent(world, MPI_Ssend_init); }});
  checks.push_back({"MPI_Rsend_init", [=] { return persistent(world, MPI_Rsend_init); }});

  checks.push_back({"MPI_Recv", [=] {
                      return received(world, [&](const DeviceVector& in) {
                        MPI_Recv(in.data(), length, MPI_INT, world.left(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                      });
                    }});
  checks.push_back({"MPI_Irecv", [=] {
                      return received(world, [&](const DeviceVector& in) {
                        MPI_Request request = MPI_REQUEST_NULL;
                        MPI_Irecv(in.data(), length, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &request);
                        finish(request);
                      });
                    }});
  checks.push_back({"MPI_Recv_init", [=] {
                      return received(world, [&](const DeviceVector& in) {
                        MPI_Request request = MPI_REQUEST_NULL;
                        MPI_Recv_init(in.data(), length, MPI_INT, world.left(), 2, MPI_COMM_WORLD, &request);
                        MPI_Start(&request);
                        finish(request);
                        MPI_Request_free(&request);
                      });
                    }});
  checks.push_back({"MPI_Mrecv", [=] {
                      return received(world, [&](const DeviceVector& in) {
                        MPI_Message matched = MPI_MESSAGE_NULL;
                        MPI_Mprobe(world.left(), 2, MPI_COMM_WORLD, &matched, MPI_STATUS_IGNORE);
                        MPI_Mrecv(in.data(), length, MPI_INT, &matched, MPI_STATUS_IGNORE);
                      });
                    }});
  checks.push_back({"MPI_Imrecv", [=] {
                      return received(world, [&](const DeviceVector& in) {
                        MPI_Message matched = MPI_MESSAGE_NULL;
                        MPI_Request request = MPI_REQUEST_NULL;
                        MPI_Mprobe(world.left(), 2, MPI_COMM_WORLD, &matched, MPI_STATUS_IGNORE);
                        MPI_Imrecv(in.data(), length, MPI_INT, &matched, &request);
                        finish(request);
                      });
                    }});
  checks.push_back({"MPI_Sendrecv", [=] {
                      const DeviceVector out(message(world.rank));
                      const DeviceVector in(length);
                      MPI_Sendrecv(out.data(), length, MPI_INT, world.right(), 3, in.data(), length, MPI_INT,
                                   world.left(), 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                      return in.values() == message(world.left());
                    }});
  checks.push_back({"MPI_Sendrecv_replace", [=] {
                      const DeviceVector buffer(message(world.rank));
                      MPI_Sendrecv_replace(buffer.data(), length, MPI_INT, world.right(), 4, world.left(), 4,
                                           MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                      return buffer.values() == message(world.left());
                    }});
}

}  // namespace demo
