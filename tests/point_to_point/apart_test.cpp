// Buffers whose parts lie in several memories: GPU memory of several allocations and of two GPUs, the heap. By absolute addresses, by
// distances from their first part, element by element and block by block; against the bytes that went in.
#include "support/memory.h"
#include "support/program.h"
#include "support/random.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::byte untouched{0x5a};

// So many bytes in parts of random memories, one of a GPU at least, and the datatype that reaches them all.
class Buffer {
 public:
  Buffer(Random& random, const std::vector<std::unique_ptr<Device>>& gpus, std::size_t bytes) : bytes_(bytes) {
    // Now and then many; and alike, as the rows of one allocation would be.
    const std::size_t parts = std::min<std::size_t>(random.chance(10) ? 60 : random.between(2, 6), bytes);
    const std::size_t surely_on_gpu = random.below(parts);
    const bool alike = random.chance(30), mostly_on_host = parts > 6;
    for (std::size_t part = 0, left = bytes; part < parts; ++part) {
      const std::size_t others = parts - 1 - part;
      const std::size_t length = others == 0 ? left
                                 : alike
                                     ? bytes / parts
                                     : random.between(std::size_t{1}, mostly_on_host ? 1 + left / 60 : left - others);
      const bool on_gpu = part == surely_on_gpu || random.chance(mostly_on_host ? 0 : 50);
      random.pick(gpus)->make_current();
      parts_.emplace_back(on_gpu              ? MemoryKind::device
                          : random.chance(20) ? MemoryKind::pinned
                                              : MemoryKind::host,
                          length);
      left -= length;
    }
    gpus.front()->make_current();
    const bool by_distance = random.chance(50) && far_apart();
    base_ = by_distance ? parts_.front().data() : MPI_BOTTOM;
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    MPI_Aint origin = 0;
    if (by_distance) CROSSLANE_MPI(MPI_Get_address(base_, &origin));
    for (const auto& part : parts_) {
      lengths.push_back(static_cast<int>(part.size()));
      CROSSLANE_MPI(MPI_Get_address(part.data(), &places.emplace_back()));
      places.back() -= origin;
    }
    CROSSLANE_MPI(MPI_Type_create_hindexed(static_cast<int>(parts), lengths.data(), places.data(), MPI_BYTE, &type_));
    CROSSLANE_MPI(MPI_Type_commit(&type_));
    clear();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { MPI_Type_free(&type_); }

  [[nodiscard]] void* base() const { return base_; }
  [[nodiscard]] MPI_Datatype type() const { return type_; }
  void clear() { write(std::vector<std::byte>(bytes_, untouched)); }
  void write(const std::vector<std::byte>& bytes) {
    auto next = bytes.begin();
    for (auto& part : parts_) {
      part.write(std::vector<std::byte>(next, next + static_cast<std::ptrdiff_t>(part.size())));
      next += static_cast<std::ptrdiff_t>(part.size());
    }
  }
  // It begins with these, and the rest was not touched.
  void check(const std::vector<std::byte>& expected, const std::string& what) const {
    std::vector<std::byte> held;
    for (const auto& part : parts_) {
      const auto bytes = part.read();
      held.insert(held.end(), bytes.begin(), bytes.end());
    }
    auto wanted = expected;
    wanted.resize(bytes_, untouched);
    CROSSLANE_CHECK(held == wanted, "{}: {} of {} bytes in {} parts", what, expected.size(), bytes_, parts_.size());
  }

 private:
  // Distances within an allocation, or that could be such, are taken for strides that run past its end.
  [[nodiscard]] bool far_apart() const {
    constexpr std::ptrdiff_t far = std::ptrdiff_t{1} << 30;
    return std::ranges::any_of(
        parts_, [&](const Memory& part) { return std::abs(part.as<char>() - parts_.front().as<char>()) >= far; });
  }

  std::size_t bytes_;
  std::vector<Memory> parts_;
  void* base_ = nullptr;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

class Ring {
 public:
  explicit Ring(Program& program) : program_(program) {
    int gpus = 0;
    CROSSLANE_CUDA(cuDeviceGetCount(&gpus));
    for (int gpu = 0; gpu < std::min(gpus, 2); ++gpu) gpus_.push_back(std::make_unique<Device>(program.rank + gpu));
  }

  void run(int cases) {
    const std::vector<std::size_t> lengths{254, 255, 255, 255, 256};
    for (case_ = 0; case_ < cases; ++case_) {
      // As long as a header now and then, and as what has no room for one.
      const std::size_t bytes = program_.shared().chance(30) ? program_.shared().pick(lengths)
                                                             : 1 + program_.shared().bytes(std::size_t{2} << 20);
      // A receiver may have room for more.
      const std::size_t room = bytes + (program_.local().chance(30) ? program_.local().below(5000) : 0);
      CROSSLANE_STEP("case {}, {} bytes", case_, bytes);
      messages(std::max<std::size_t>(bytes, 2), std::max<std::size_t>(room, 2));
      collectives(std::max<std::size_t>(bytes, 2));
      blocks(2 + bytes % 70000);
      elements(1 + bytes % 70000 + (case_ % 8 == 0 ? std::size_t{3} << 20 : 0));
      distant_blocks(case_ % 4 == 0 ? 1 : 1 + bytes % 70000 + (case_ % 8 == 1 ? std::size_t{2} << 20 : 0));
    }
  }

 private:
  [[nodiscard]] int left() const { return (program_.rank + program_.size - 1) % program_.size; }
  [[nodiscard]] int right() const { return (program_.rank + 1) % program_.size; }
  [[nodiscard]] std::vector<std::byte> of(int rank, std::size_t bytes, int what) const {
    return pattern(mix(program_.seed, case_, rank, what), bytes);
  }

  void messages(std::size_t bytes, std::size_t room) {
    Random& local = program_.local();
    const MPI_Comm world = MPI_COMM_WORLD;
    const int kind = program_.shared().between(0, 5);
    CROSSLANE_STEP("case {}, {} bytes, messages of kind {}", case_, bytes, kind);
    // One side may be in one piece: what is read from where it lies, or comes by a header.
    const bool sends_one = local.chance(50), receives_one = local.chance(40) && kind != 4;
    Buffer out(local, gpus_, bytes), in(local, gpus_, room);
    Memory one_out(local.chance(50) ? MemoryKind::device : MemoryKind::host, bytes), one_in(MemoryKind::device, room);
    const auto mine = of(program_.rank, bytes, 0);
    out.write(mine);
    one_out.write(mine);
    one_in.write(std::vector<std::byte>(room, untouched));
    const void* const from = sends_one ? one_out.data() : out.base();
    void* const to = receives_one ? one_in.data() : in.base();
    const int sent = sends_one ? static_cast<int>(bytes) : 1, received = receives_one ? static_cast<int>(room) : 1;
    const MPI_Datatype sent_type = sends_one ? MPI_BYTE : out.type(), type = receives_one ? MPI_BYTE : in.type();
    MPI_Request requests[2]{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    switch (kind) {
      case 0:
        CROSSLANE_MPI(MPI_Irecv(to, received, type, left(), 1, world, &requests[0]));
        CROSSLANE_MPI(MPI_Send(from, sent, sent_type, right(), 1, world));
        CROSSLANE_MPI(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        break;
      case 1: {
        CROSSLANE_MPI(
            (local.chance(50) ? MPI_Isend : MPI_Issend)(from, sent, sent_type, right(), 1, world, &requests[0]));
        MPI_Status status;
        CROSSLANE_MPI(MPI_Recv(to, received, type, left(), 1, world, &status));
        int count = 0;
        CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
        CROSSLANE_CHECK_EQUAL(count, static_cast<int>(bytes));
        CROSSLANE_MPI(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        break;
      }
      case 2:
        CROSSLANE_MPI(
            MPI_Sendrecv(from, sent, sent_type, right(), 1, to, received, type, left(), 1, world, MPI_STATUS_IGNORE));
        break;
      case 3:
        CROSSLANE_MPI(MPI_Recv_init(to, received, type, left(), 1, world, &requests[0]));
        CROSSLANE_MPI(MPI_Send_init(from, sent, sent_type, right(), 1, world, &requests[1]));
        for (int start = 0; start < 3; ++start) {
          in.clear();
          one_in.write(std::vector<std::byte>(room, untouched));
          const auto again = of(program_.rank, bytes, start % 2);
          out.write(again);
          one_out.write(again);
          CROSSLANE_MPI(MPI_Startall(2, requests));
          CROSSLANE_MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        }
        for (auto& request : requests) CROSSLANE_MPI(MPI_Request_free(&request));
        break;
      case 4: {
        in.write(of(program_.rank, room, 0));
        // Each sends all of its room: the receiver's has to be as large.
        Buffer same(local, gpus_, bytes);
        same.write(mine);
        CROSSLANE_MPI(
            MPI_Sendrecv_replace(same.base(), 1, same.type(), right(), 1, left(), 1, world, MPI_STATUS_IGNORE));
        same.check(of(left(), bytes, 0), "replaced");
        return;
      }
      default: {
        CROSSLANE_MPI(MPI_Isend(from, sent, sent_type, right(), 1, world, &requests[0]));
        MPI_Message message;
        CROSSLANE_MPI(MPI_Mprobe(left(), 1, world, &message, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Mrecv(to, received, type, &message, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
      }
    }
    const auto expected = of(left(), bytes, 0);
    if (!receives_one) return in.check(expected, "a message");
    auto wanted = expected;
    wanted.resize(room, untouched);
    CROSSLANE_CHECK(one_in.read() == wanted, "a message to one piece");
  }

  void collectives(std::size_t bytes) {
    Random& local = program_.local();
    const MPI_Comm world = MPI_COMM_WORLD;
    const int root = static_cast<int>(program_.shared().below(static_cast<std::uint64_t>(program_.size)));
    const bool started = program_.shared().chance(40);
    CROSSLANE_STEP("case {}, {} bytes, collectives, root {}", case_, bytes, root);
    const auto run = [&](const std::string& what, const auto& blocking, const auto& nonblocking) {
      CROSSLANE_STEP("case {}, {}", case_, what);
      if (!started) {
        CROSSLANE_MPI(blocking());
        return;
      }
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(nonblocking(&request));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    };
    for (int round = 0; round < 3; ++round) {  // first uses are staged
      const bool one = local.chance(40);
      Buffer data(local, gpus_, bytes);
      Memory whole(MemoryKind::device, bytes);
      void* const base = one ? whole.data() : data.base();
      const int count = one ? static_cast<int>(bytes) : 1;
      const MPI_Datatype type = one ? MPI_BYTE : data.type();
      const auto load = [&](const std::vector<std::byte>& values) {
        data.write(values);
        whole.write(values);
      };
      const auto check = [&](const std::vector<std::byte>& expected, const std::string& what) {
        if (!one) return data.check(expected, what);
        CROSSLANE_CHECK(whole.read() == expected, "{} in one piece", what);
      };
      load(of(program_.rank, bytes, round));
      run(
          "broadcast", [&] { return MPI_Bcast(base, count, type, root, world); },
          [&](MPI_Request* request) { return MPI_Ibcast(base, count, type, root, world, request); });
      check(of(root, bytes, round), "a broadcast");

      // Gathered in a piece, from parts.
      load(of(program_.rank, bytes, round + 10));
      const std::size_t all = bytes * static_cast<std::size_t>(program_.size);
      Memory gathered(program_.local().chance(50) ? MemoryKind::device : MemoryKind::host, all);
      run(
          "allgather",
          [&] { return MPI_Allgather(base, count, type, gathered.data(), static_cast<int>(bytes), MPI_BYTE, world); },
          [&](MPI_Request* request) {
            return MPI_Iallgather(base, count, type, gathered.data(), static_cast<int>(bytes), MPI_BYTE, world,
                                  request);
          });
      std::vector<std::byte> expected;
      for (int rank = 0; rank < program_.size; ++rank) {
        const auto theirs = of(rank, bytes, round + 10);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      CROSSLANE_CHECK(gathered.read() == expected, "an allgather");
    }
  }

  // Each block in memories of its own.
  void blocks(std::size_t bytes) {
    Random& local = program_.local();
    CROSSLANE_STEP("case {}, blocks of {} bytes", case_, bytes);
    const auto peers = static_cast<std::size_t>(program_.size);
    std::vector<std::unique_ptr<Buffer>> out, in;
    std::vector<Memory> one;
    std::vector<int> counts(peers, 1), displacements(peers, 0);
    std::vector<MPI_Datatype> sent, received;
    for (std::size_t peer = 0; peer < peers; ++peer) {
      // Those that have distances in them would need a displacement, which an int may be too short for.
      for (auto* const buffers : {&out, &in}) {
        do {
          auto made = std::make_unique<Buffer>(local, gpus_, bytes);
          if (made->base() == MPI_BOTTOM) buffers->push_back(std::move(made));
        } while (buffers->size() == peer);
      }
      out[peer]->write(of(program_.rank, bytes, static_cast<int>(peer)));
      sent.push_back(out[peer]->type());
      received.push_back(in[peer]->type());
    }
    CROSSLANE_MPI(MPI_Alltoallw(MPI_BOTTOM, counts.data(), displacements.data(), sent.data(), MPI_BOTTOM, counts.data(),
                                displacements.data(), received.data(), MPI_COMM_WORLD));
    for (std::size_t peer = 0; peer < peers; ++peer)
      in[peer]->check(of(static_cast<int>(peer), bytes, program_.rank), "a block");
  }

  // One element on the heap and one in GPU memory, in either order, with the distance between the two for their type's extent.
  void elements(std::size_t bytes) {
    CROSSLANE_STEP("case {}, two elements of {} bytes", case_, bytes);
    Memory host(MemoryKind::host, bytes), gpu(MemoryKind::device, bytes);
    const bool host_first = program_.local().chance(70);
    Memory &first = host_first ? host : gpu, &second = host_first ? gpu : host;
    MPI_Datatype element = MPI_DATATYPE_NULL, pair = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &element));
    CROSSLANE_MPI(MPI_Type_create_resized(element, 0, second.as<char>() - first.as<char>(), &pair));
    CROSSLANE_MPI(MPI_Type_commit(&pair));
    const auto mine = of(program_.rank, 2 * bytes, 0), theirs = of(left(), 2 * bytes, 0);
    const auto all = static_cast<int>(2 * bytes);
    const auto split = [&](const std::vector<std::byte>& values) {
      const auto middle = values.begin() + static_cast<std::ptrdiff_t>(bytes);
      first.write({values.begin(), middle});
      second.write({middle, values.end()});
    };
    split(mine);
    Memory whole(MemoryKind::host, 2 * bytes);
    CROSSLANE_MPI(MPI_Sendrecv(first.data(), 2, pair, right(), 1, whole.data(), all, MPI_BYTE, left(), 1,
                               MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(whole.read() == theirs, "two elements sent");
    split(std::vector<std::byte>(2 * bytes, untouched));
    whole.write(mine);
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(first.data(), 2, pair, left(), 1, MPI_COMM_WORLD, &request));
    CROSSLANE_MPI(MPI_Send(whole.data(), all, MPI_BYTE, right(), 1, MPI_COMM_WORLD));
    CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    auto received = first.read();
    const auto rest = second.read();
    received.insert(received.end(), rest.begin(), rest.end());
    CROSSLANE_CHECK(received == theirs, "two elements received");
    CROSSLANE_MPI(MPI_Type_free(&pair));
    CROSSLANE_MPI(MPI_Type_free(&element));
  }

  // Bytes at distances from memory of the host, which lead to that of a GPU: as they are, as one element, and of a type that is no predefined one.
  void distant_blocks(std::size_t bytes) {
    const auto all = static_cast<int>(bytes);
    distant_blocks(bytes, all, MPI_BYTE);
    MPI_Datatype whole = MPI_DATATYPE_NULL, byte = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_contiguous(all, MPI_BYTE, &whole));
    CROSSLANE_MPI(MPI_Type_dup(MPI_BYTE, &byte));
    for (MPI_Datatype* const type : {&whole, &byte}) {
      CROSSLANE_MPI(MPI_Type_commit(type));
      distant_blocks(bytes, type == &whole ? 1 : all, *type);
      CROSSLANE_MPI(MPI_Type_free(type));
    }
  }

  void distant_blocks(std::size_t bytes, int count, MPI_Datatype type) {
    CROSSLANE_STEP("case {}, distant blocks of {} bytes, {} elements", case_, bytes, count);
    MPI_Comm ring = MPI_COMM_NULL;
    const int periodic = 1;
    CROSSLANE_MPI(MPI_Cart_create(MPI_COMM_WORLD, 1, &program_.size, &periodic, 0, &ring));
    const Memory origin(MemoryKind::host, 1);
    Memory out(MemoryKind::device, bytes);
    const std::array<Memory, 2> in{Memory(MemoryKind::device, bytes), Memory(MemoryKind::host, bytes)};
    out.write(of(program_.rank, bytes, 0));
    const std::array<int, 2> counts{count, count};
    const std::array<MPI_Datatype, 2> types{type, type};
    const auto from_origin = [&](const Memory& memory) { return memory.as<char>() - origin.as<char>(); };
    const std::array<MPI_Aint, 2> sent{from_origin(out), from_origin(out)};
    const std::array<MPI_Aint, 2> received{from_origin(in[0]), from_origin(in[1])};
    CROSSLANE_MPI(MPI_Neighbor_alltoallw(origin.data(), counts.data(), sent.data(), types.data(), origin.data(),
                                         counts.data(), received.data(), types.data(), ring));
    CROSSLANE_CHECK(in[0].read() == of(left(), bytes, 0), "from the left");
    CROSSLANE_CHECK(in[1].read() == of(right(), bytes, 0), "from the right");
    CROSSLANE_MPI(MPI_Comm_free(&ring));
  }

  Program& program_;
  std::vector<std::unique_ptr<Device>> gpus_;
  int case_ = 0;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_apart");
  Ring(program).run(static_cast<int>(program.option("cases", 20)));
  return program.finish();
}
