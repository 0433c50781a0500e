// Buffers whose bytes lie elsewhere than their address says: the type's first byte is far from it (MPI 5.0, section 5.1.12, has types of
// absolute addresses). The address is on the stack, in data, on the heap, mapped, or GPU memory; the bytes are in memory of any kind.
// It must not know Crosslane.
#include "support/program.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace crosslane::tests {
namespace {

std::array<std::byte, 64> in_data;

/// So many blocks of so many bytes; MPI is given `address()`.
class Buffer {
 public:
  Buffer(const std::byte* anchor, MemoryKind kind, std::size_t block, std::size_t blocks)
      : anchor_(anchor), memory_(kind, block * blocks) {
    const auto there = reinterpret_cast<MPI_Aint>(memory_.data()), here = reinterpret_cast<MPI_Aint>(anchor);
    const MPI_Aint distance = MPI_Aint_diff(there, here);
    CROSSLANE_MPI(MPI_Type_create_hindexed_block(1, static_cast<int>(block), &distance, MPI_BYTE, &type_));
    CROSSLANE_MPI(MPI_Type_commit(&type_));
    memory_.write(std::vector<std::byte>(block * blocks, std::byte{0x5a}));
  }
  ~Buffer() { MPI_Type_free(&type_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] void* address() const { return const_cast<std::byte*>(anchor_); }
  [[nodiscard]] MPI_Datatype type() const { return type_; }
  [[nodiscard]] Memory& memory() { return memory_; }

 private:
  const std::byte* anchor_;
  Memory memory_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

class Rank {
 public:
  explicit Rank(Program& program)
      : program_(program),
        left_((program.rank + program.size - 1) % program.size),
        right_((program.rank + 1) % program.size),
        on_heap_(64),
        mapped_(mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    CROSSLANE_CHECK(mapped_ != MAP_FAILED, "mmap of {} bytes", mapped_bytes);
    if (program.device() != nullptr) on_gpu_ = std::make_unique<Memory>(MemoryKind::device, 64);
  }
  ~Rank() { munmap(mapped_, mapped_bytes); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void run(std::int64_t rounds) {
    for (round_ = 0; round_ < rounds; ++round_) {
      block_ = std::max<std::size_t>(program_.shared().bytes(std::size_t{1} << 20), 1);
      root_ = static_cast<int>(program_.shared().below(static_cast<std::uint64_t>(program_.size)));
      std::array<std::byte, 64> on_stack{};
      anchors_ = {on_stack.data(), in_data.data(), on_heap_.data(), static_cast<std::byte*>(mapped_)};
      if (on_gpu_) anchors_.push_back(on_gpu_->as<std::byte>());
      messages();
      probed();
      in_place();
      persistent();
      broadcast();
      gathers();
      scatters();
      exchanges();
      among_neighbours();
      packs();
    }
  }

 private:
  static constexpr std::size_t mapped_bytes = std::size_t{4} << 20;

  [[nodiscard]] std::vector<std::byte> data(int from, int to = 0) const {
    return pattern(mix(program_.seed, round_, from, to), block_);
  }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(program_.size); }
  // For every rank one.
  [[nodiscard]] std::vector<int> multiples_of(std::size_t distance) const {
    std::vector<int> places;
    for (std::size_t rank = 0; rank < ranks(); ++rank) places.push_back(static_cast<int>(rank * distance));
    return places;
  }
  [[nodiscard]] std::unique_ptr<Buffer> blank(std::size_t blocks = 1) {
    return std::make_unique<Buffer>(program_.local().pick(anchors_), program_.kind(), block_, blocks);
  }
  [[nodiscard]] std::unique_ptr<Buffer> outgoing() {
    auto buffer = blank();
    buffer->memory().write(data(program_.rank));
    return buffer;
  }
  // For every rank one.
  [[nodiscard]] std::unique_ptr<Buffer> outgoing_to_all() {
    auto buffer = blank(ranks());
    for (int to = 0; to < program_.size; ++to)
      buffer->memory().write(data(program_.rank, to), static_cast<std::size_t>(to) * block_);
    return buffer;
  }
  void step(const char* what) const { CROSSLANE_STEP("round {}: {}, blocks of {} bytes", round_, what, block_); }
  void check(Buffer& buffer, int from, int to, const char* what, int at = 0) const {
    CROSSLANE_CHECK(buffer.memory().read(static_cast<std::size_t>(at) * block_, block_) == data(from, to),
                    "round {}: {} of {} bytes from rank {} into {} memory", round_, what, block_, from,
                    name(buffer.memory().kind()));
  }
  void check_all(Buffer& buffer, const char* what) const {
    for (int from = 0; from < program_.size; ++from) check(buffer, from, 0, what, from);
  }

  void messages() {
    step("messages");
    const auto out = outgoing(), in = blank(), again = blank();
    std::vector<MPI_Request> requests(2);
    CROSSLANE_MPI(MPI_Irecv(in->address(), 1, in->type(), left_, 0, MPI_COMM_WORLD, requests.data()));
    CROSSLANE_MPI(MPI_Isend(out->address(), 1, out->type(), right_, 0, MPI_COMM_WORLD, &requests[1]));
    polite_waitall(requests);
    check(*in, left_, 0, "MPI_Irecv");
    CROSSLANE_MPI(MPI_Sendrecv(out->address(), 1, out->type(), right_, 1, again->address(), 1, again->type(), left_, 1,
                               MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    check(*again, left_, 0, "MPI_Sendrecv");
    const auto last = blank();
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Issend(out->address(), 1, out->type(), right_, 2, MPI_COMM_WORLD, &request));
    CROSSLANE_MPI(MPI_Recv(last->address(), 1, last->type(), left_, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    polite_wait(request);
    check(*last, left_, 0, "MPI_Recv");
  }

  void probed() {
    step("matched probes");
    const auto out = outgoing(), in = blank(), again = blank();
    std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
    for (int tag = 0; tag < 2; ++tag)
      CROSSLANE_MPI(MPI_Isend(out->address(), 1, out->type(), right_, tag, MPI_COMM_WORLD,
                              &requests[static_cast<std::size_t>(tag)]));
    MPI_Message message = MPI_MESSAGE_NULL;
    CROSSLANE_MPI(MPI_Mprobe(left_, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
    CROSSLANE_MPI(MPI_Mrecv(in->address(), 1, in->type(), &message, MPI_STATUS_IGNORE));
    CROSSLANE_MPI(MPI_Mprobe(left_, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Imrecv(again->address(), 1, again->type(), &message, &request));
    polite_wait(request);
    polite_waitall(requests);
    check(*in, left_, 0, "MPI_Mrecv");
    check(*again, left_, 0, "MPI_Imrecv");
  }

  void in_place() {
    step("MPI_Sendrecv_replace");
    const auto both = outgoing();
    CROSSLANE_MPI(
        MPI_Sendrecv_replace(both->address(), 1, both->type(), right_, 0, left_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    check(*both, left_, 0, "MPI_Sendrecv_replace");
  }

  void persistent() {
    step("persistent messages");
    const auto out = outgoing(), in = blank();
    std::vector<MPI_Request> requests(2);
    CROSSLANE_MPI(MPI_Recv_init(in->address(), 1, in->type(), left_, 0, MPI_COMM_WORLD, requests.data()));
    CROSSLANE_MPI(MPI_Send_init(out->address(), 1, out->type(), right_, 0, MPI_COMM_WORLD, &requests[1]));
    CROSSLANE_MPI(MPI_Startall(2, requests.data()));
    polite_waitall(requests);
    check(*in, left_, 0, "MPI_Recv_init");
    for (MPI_Request& request : requests) CROSSLANE_MPI(MPI_Request_free(&request));
  }

  void broadcast() {
    step("MPI_Bcast");
    const auto buffer = program_.rank == root_ ? outgoing() : blank();
    CROSSLANE_MPI(MPI_Bcast(buffer->address(), 1, buffer->type(), root_, MPI_COMM_WORLD));
    check(*buffer, root_, 0, "MPI_Bcast");
    const auto other = program_.rank == root_ ? outgoing() : blank();
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Ibcast(other->address(), 1, other->type(), root_, MPI_COMM_WORLD, &request));
    polite_wait(request);
    check(*other, root_, 0, "MPI_Ibcast");
  }

  void gathers() {
    step("gathers");
    const auto out = outgoing(), all = blank(ranks()), each = blank(ranks());
    CROSSLANE_MPI(MPI_Allgather(out->address(), 1, out->type(), all->address(), 1, all->type(), MPI_COMM_WORLD));
    check_all(*all, "MPI_Allgather");
    const std::vector<int> counts(ranks(), 1);
    const auto places = multiples_of(1);
    CROSSLANE_MPI(MPI_Allgatherv(out->address(), 1, out->type(), each->address(), counts.data(), places.data(),
                                 each->type(), MPI_COMM_WORLD));
    check_all(*each, "MPI_Allgatherv");
    const bool root = program_.rank == root_;
    const auto gathered = root ? blank(ranks()) : nullptr;
    // Elsewhere what only the root says means nothing.
    CROSSLANE_MPI(MPI_Gather(out->address(), 1, out->type(), root ? gathered->address() : in_data.data(), 1,
                             root ? gathered->type() : MPI_DATATYPE_NULL, root_, MPI_COMM_WORLD));
    if (root) check_all(*gathered, "MPI_Gather");
  }

  void scatters() {
    step("scatters");
    const bool root = program_.rank == root_;
    const auto out = root ? outgoing_to_all() : nullptr;
    const auto in = blank(), again = blank();
    CROSSLANE_MPI(MPI_Scatter(root ? out->address() : in_data.data(), 1, root ? out->type() : MPI_DATATYPE_NULL,
                              in->address(), 1, in->type(), root_, MPI_COMM_WORLD));
    check(*in, root_, program_.rank, "MPI_Scatter");
    const std::vector<int> counts(ranks(), 1);
    const auto places = multiples_of(1);
    CROSSLANE_MPI(MPI_Scatterv(root ? out->address() : in_data.data(), counts.data(), places.data(),
                               root ? out->type() : MPI_DATATYPE_NULL, again->address(), 1, again->type(), root_,
                               MPI_COMM_WORLD));
    check(*again, root_, program_.rank, "MPI_Scatterv");
  }

  void exchanges() {
    step("all-to-all");
    const auto out = outgoing_to_all(), in = blank(ranks());
    CROSSLANE_MPI(MPI_Alltoall(out->address(), 1, out->type(), in->address(), 1, in->type(), MPI_COMM_WORLD));
    for (int from = 0; from < program_.size; ++from) check(*in, from, program_.rank, "MPI_Alltoall", from);
    const auto again = blank(ranks());
    const std::vector<int> counts(ranks(), 1);
    const auto places = multiples_of(block_);
    const std::vector<MPI_Datatype> sent(ranks(), out->type()), received(ranks(), again->type());
    CROSSLANE_MPI(MPI_Alltoallw(out->address(), counts.data(), places.data(), sent.data(), again->address(),
                                counts.data(), places.data(), received.data(), MPI_COMM_WORLD));
    for (int from = 0; from < program_.size; ++from) check(*again, from, program_.rank, "MPI_Alltoallw", from);
  }

  void among_neighbours() {
    step("MPI_Neighbor_alltoallw");
    const int periodic = 1;
    MPI_Comm ring = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Cart_create(MPI_COMM_WORLD, 1, &program_.size, &periodic, 0, &ring));
    const auto out = blank(2), in = blank(2);
    out->memory().write(data(program_.rank, left_));
    out->memory().write(data(program_.rank, right_), block_);
    const std::array counts{1, 1};
    const std::array places{MPI_Aint{0}, static_cast<MPI_Aint>(block_)};
    const std::array sent{out->type(), out->type()}, received{in->type(), in->type()};
    CROSSLANE_MPI(MPI_Neighbor_alltoallw(out->address(), counts.data(), places.data(), sent.data(), in->address(),
                                         counts.data(), places.data(), received.data(), ring));
    check(*in, left_, program_.rank, "MPI_Neighbor_alltoallw", 0);
    check(*in, right_, program_.rank, "MPI_Neighbor_alltoallw", 1);
    CROSSLANE_MPI(MPI_Comm_free(&ring));
  }

  void packs() {
    step("MPI_Pack and MPI_Unpack");
    const auto out = outgoing(), in = blank();
    Memory packed(program_.kind(), block_);
    const int room = static_cast<int>(block_);
    int position = 0;
    CROSSLANE_MPI(MPI_Pack(out->address(), 1, out->type(), packed.data(), room, &position, MPI_COMM_WORLD));
    CROSSLANE_CHECK(position == room && packed.read() == data(program_.rank), "MPI_Pack of {} bytes", block_);
    position = 0;
    CROSSLANE_MPI(MPI_Unpack(packed.data(), room, &position, in->address(), 1, in->type(), MPI_COMM_WORLD));
    check(*in, program_.rank, 0, "MPI_Unpack");
  }

  Program& program_;
  int left_, right_, root_ = 0;
  std::vector<std::byte> on_heap_;
  void* mapped_;
  std::unique_ptr<Memory> on_gpu_;
  std::vector<const std::byte*> anchors_;
  std::int64_t round_ = 0;
  std::size_t block_ = 1;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "collectives_shifted");
  { Rank(program).run(program.option("cases", 20)); }
  return program.finish();
}
