// Wrong arguments among GPU buffers: every call returns the error class that MPI names for them, says which call and
// which argument it was, calls the right error handler once, and leaves MPI usable. It must not know Crosslane.
#include "bad_input/usable.h"
#include "support/direct_calls.h"
#include "support/plain_mpi.h"
#include "support/program.h"
#include "support/refused.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

class Errors {
 public:
  explicit Errors(const Program& program) : program_(program), rank_(program.rank), size_(program.size) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

  // `seen`: MPI was given the memory while it was live, so that anything remembered of it is out of date.
  void freed_memory(bool seen) {
    CROSSLANE_STEP("freed memory, {} before", seen ? "used" : "never used");
    Allocation memory(megabytes), live(megabytes);
    auto* const data = static_cast<std::byte*>(memory.data());
    const MPI_Comm world = MPI_COMM_WORLD;
    if (seen) {
      CROSSLANE_CUDA(cuMemsetD8(reinterpret_cast<CUdeviceptr>(data), 0, megabytes));
      CROSSLANE_MPI(
          MPI_Sendrecv(data, 99, MPI_BYTE, rank_, 0, data + 1000, 99, MPI_BYTE, rank_, 0, world, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, data, 99, MPI_BYTE, MPI_BOR, world));
    }
    memory.free();
    expect(MPI_Send(data, 8, MPI_INT, rank_, 1, world), MPI_ERR_BUFFER, {"MPI_Send", "buf"});
    expect(MPI_Recv(data, 8, MPI_INT, rank_, 1, world, MPI_STATUS_IGNORE), MPI_ERR_BUFFER, {"MPI_Recv", "buf"});
    MPI_Request request = MPI_REQUEST_NULL;
    expect(MPI_Isend(data, 8, MPI_INT, rank_, 1, world, &request), MPI_ERR_BUFFER, {"MPI_Isend", "buf"});
    expect(MPI_Irecv(data, 8, MPI_INT, rank_, 1, world, &request), MPI_ERR_BUFFER, {"MPI_Irecv", "buf"});
    expect(MPI_Send_init(data, 8, MPI_INT, rank_, 1, world, &request), MPI_ERR_BUFFER, {"MPI_Send_init", "buf"});
    expect(MPI_Sendrecv(live.data(), 8, MPI_INT, rank_, 1, data, 8, MPI_INT, rank_, 1, world, MPI_STATUS_IGNORE),
           MPI_ERR_BUFFER, {"MPI_Sendrecv", "recvbuf"});
    expect(MPI_Bcast(data, 8, MPI_INT, 0, world), MPI_ERR_BUFFER, {"MPI_Bcast", "buffer"});
    expect(MPI_Allreduce(data, live.data(), 8, MPI_INT, MPI_SUM, world), MPI_ERR_BUFFER, {"MPI_Allreduce", "sendbuf"});
    expect(MPI_Allreduce(live.data(), data, 8, MPI_INT, MPI_SUM, world), MPI_ERR_BUFFER, {"MPI_Allreduce", "recvbuf"});
    expect(MPI_Iallreduce(MPI_IN_PLACE, data, 8, MPI_INT, MPI_SUM, world, &request), MPI_ERR_BUFFER,
           {"MPI_Iallreduce", "recvbuf"});
    expect(MPI_Allgather(live.data(), 8, MPI_INT, data, 8, MPI_INT, world), MPI_ERR_BUFFER,
           {"MPI_Allgather", "recvbuf"});
    // Nothing is read where nothing is sent.
    CROSSLANE_MPI(MPI_Allreduce(live.data(), data, 0, MPI_INT, MPI_SUM, world));
    CROSSLANE_MPI(MPI_Bcast(data, 0, MPI_INT, 0, world));
  }

  void past_the_end() {
    CROSSLANE_STEP("buffers that are longer than their memory");
    const Allocation small(1000), large(megabytes);
    const MPI_Comm world = MPI_COMM_WORLD;
    // Far enough for an allocation to end under it, whatever the driver rounds to.
    const int count = 256 << 20;
    expect(MPI_Send(small.data(), count, MPI_BYTE, rank_, 1, world), MPI_ERR_BUFFER, {"MPI_Send", "buf"});
    expect(MPI_Recv(small.data(), count, MPI_BYTE, rank_, 1, world, MPI_STATUS_IGNORE), MPI_ERR_BUFFER,
           {"MPI_Recv", "buf"});
    expect(MPI_Allreduce(large.data(), small.data(), count, MPI_BYTE, MPI_BOR, world), MPI_ERR_BUFFER,
           {"MPI_Allreduce"});
    MPI_Datatype sparse = MPI_DATATYPE_NULL;  // two bytes, the second 256 MiB behind the first
    CROSSLANE_MPI(MPI_Type_vector(2, 1, count, MPI_BYTE, &sparse));
    CROSSLANE_MPI(MPI_Type_commit(&sparse));
    expect(MPI_Bcast(small.data(), 1, sparse, 0, world), MPI_ERR_BUFFER, {"MPI_Bcast", "buffer"});
    CROSSLANE_MPI(MPI_Type_free(&sparse));
    std::vector<int> counts(static_cast<std::size_t>(size_), 1), displacements(counts.size(), count);
    displacements[0] = 0;
    if (size_ > 1) {
      expect(
          MPI_Allgatherv(large.data(), 1, MPI_BYTE, small.data(), counts.data(), displacements.data(), MPI_BYTE, world),
          MPI_ERR_BUFFER, {"MPI_Allgatherv", "recvbuf"});
    }
  }

  void counts_and_types() {
    CROSSLANE_STEP("negative counts");
    const Allocation memory(megabytes);
    void* const data = memory.data();
    const MPI_Comm world = MPI_COMM_WORLD;
    expect(MPI_Send(data, -1, MPI_INT, rank_, 1, world), MPI_ERR_COUNT, {"MPI_Send", "count"});
    expect(MPI_Recv(data, -7, MPI_INT, rank_, 1, world, MPI_STATUS_IGNORE), MPI_ERR_COUNT, {"MPI_Recv", "count"});
    expect(MPI_Reduce(data, static_cast<char*>(data) + 4096, -1, MPI_INT, MPI_SUM, 0, world), MPI_ERR_COUNT,
           {"MPI_Reduce", "count"});
    std::vector<int> counts(static_cast<std::size_t>(size_), 1), displacements(counts.size(), 0);
    counts.back() = -3;
    expect(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INT, data, counts.data(), displacements.data(), MPI_INT, world),
           MPI_ERR_COUNT, {"MPI_Allgatherv", "recvcounts"});

    CROSSLANE_STEP("MPI_DATATYPE_NULL");
    expect(MPI_Send(data, 1, MPI_DATATYPE_NULL, rank_, 1, world), MPI_ERR_TYPE, {"MPI_Send", "buf"});
    expect(MPI_Bcast(data, 1, MPI_DATATYPE_NULL, 0, world), MPI_ERR_TYPE, {"MPI_Bcast", "buffer"});
    expect(MPI_Allreduce(MPI_IN_PLACE, data, 1, MPI_DATATYPE_NULL, MPI_SUM, world), MPI_ERR_TYPE,
           {"MPI_Allreduce", "recvbuf"});

    CROSSLANE_STEP("MPI_IN_PLACE where nothing is, of one rank");
    {
      int host = 1, by_host = MPI_SUCCESS, by_device = MPI_SUCCESS;
      MPI_Comm alone = MPI_COMM_NULL;
      CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_SELF, &alone));
      CROSSLANE_MPI(MPI_Comm_set_errhandler(alone, MPI_ERRORS_RETURN));
      MPI_Error_class(MPI_Allreduce(&host, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, alone), &by_host);
      MPI_Error_class(MPI_Allreduce(data, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, alone), &by_device);
      CROSSLANE_CHECK_EQUAL(by_device, by_host);
      CROSSLANE_MPI(MPI_Comm_free(&alone));
    }

    CROSSLANE_STEP("a datatype that is not committed");
    MPI_Datatype pair = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_contiguous(2, MPI_INT, &pair));
    std::array<int, 2> host{};
    // Whether an MPI checks this is its own affair; that it does must not depend on the memory.
    int by_host = MPI_SUCCESS, by_device = MPI_SUCCESS;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Error_class(MPI_Bsend(host.data(), 1, pair, MPI_PROC_NULL, 1, world), &by_host);
    MPI_Error_class(MPI_Bsend(data, 1, pair, MPI_PROC_NULL, 1, world), &by_device);
    CROSSLANE_CHECK_EQUAL(by_device, by_host);
    by_host = MPI_Isend(host.data(), 1, pair, MPI_PROC_NULL, 1, world, &request);
    if (by_host == MPI_SUCCESS) CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    by_device = MPI_Isend(data, 1, pair, MPI_PROC_NULL, 1, world, &request);
    if (by_device == MPI_SUCCESS) CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_Error_class(by_host, &by_host);
    MPI_Error_class(by_device, &by_device);
    CROSSLANE_CHECK_EQUAL(by_device, by_host);
    CROSSLANE_MPI(MPI_Type_free(&pair));
  }

  // Whose levels no stack holds: in host memory it is the MPI's affair.
  void deep_datatype() const {
    CROSSLANE_STEP("a datatype of 30,000 levels");
    const Allocation memory(megabytes);
    MPI_Datatype type = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_contiguous(1, MPI_INT, &type));
    for (int level = 1; level < 30'000; ++level) {
      MPI_Datatype next = MPI_DATATYPE_NULL;
      CROSSLANE_MPI(MPI_Type_contiguous(1, type, &next));
      CROSSLANE_MPI(MPI_Type_free(&type));
      type = next;
    }
    CROSSLANE_MPI(MPI_Type_commit(&type));
    const MPI_Comm world = MPI_COMM_WORLD;
    expect(MPI_Send(memory.data(), 1, type, rank_, 1, world), MPI_ERR_UNSUPPORTED_OPERATION, {"MPI_Send"});
    int sent = 7, received = 0;
    CROSSLANE_MPI(MPI_Sendrecv(&sent, 1, MPI_INT, rank_, 3, &received, 1, type, rank_, 3, world, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK_EQUAL(received, sent);
    CROSSLANE_MPI(MPI_Type_free(&type));
  }

  // Where collectives go direct, what MPI does not define is still for the MPI to refuse; and counts overflow nowhere.
  void reductions() const {
    CROSSLANE_STEP("operations that MPI does not define");
    const Allocation sent(megabytes), received(megabytes);
    const MPI_Comm world = MPI_COMM_WORLD;
    for (int call = 0; call < 4; ++call)
      CROSSLANE_MPI(MPI_Allreduce(sent.data(), received.data(), 16, MPI_C_BOOL, MPI_LOR, world));
    // Of truth values, bytes, and integers of Fortran and of all languages.
    for (const auto& [type, ops] : std::initializer_list<std::pair<MPI_Datatype, std::array<MPI_Op, 3>>>{
             {MPI_C_BOOL, {MPI_SUM, MPI_MAX, MPI_BAND}},
             {MPI_BYTE, {MPI_SUM, MPI_MAX, MPI_LAND}},
             {MPI_INTEGER, {MPI_LAND, MPI_LOR, MPI_LXOR}},
             {MPI_AINT, {MPI_LAND, MPI_LOR, MPI_LXOR}}}) {
      if (type == MPI_DATATYPE_NULL) continue;  // an MPI without Fortran
      for (const MPI_Op op : ops) {
        std::array<MPI_Aint, 16> host{}, host_sum{};
        // Whether an MPI checks this is its own affair; that it does must not depend on the memory.
        int by_host = MPI_SUCCESS, by_device = MPI_SUCCESS;
        MPI_Error_class(MPI_Allreduce(host.data(), host_sum.data(), 16, type, op, world), &by_host);
        MPI_Error_class(MPI_Allreduce(sent.data(), received.data(), 16, type, op, world), &by_device);
        CROSSLANE_CHECK_EQUAL(by_device, by_host);
      }
    }
#if MPI_VERSION >= 4
    CROSSLANE_STEP("counts whose bytes are more than 63 bits count");
    for (const MPI_Count count : {MPI_Count{1} << 61, MPI_Count{1} << 62, (MPI_Count{1} << 62) + 16}) {
      expect(MPI_Allreduce_c(sent.data(), received.data(), count, MPI_INT, MPI_SUM, world), MPI_ERR_COUNT,
             {"MPI_Allreduce_c"});
      expect(MPI_Reduce_scatter_block_c(sent.data(), received.data(), count, MPI_INT, MPI_SUM, world), MPI_ERR_COUNT,
             {"MPI_Reduce_scatter_block_c"});
    }
#endif
  }

  // What a rank sends to itself is not what it receives: what becomes of that is the MPI's affair, whatever the memory, and nothing is read or written
  // by the wrong one of the two sizes.
  void two_sizes() const {
    CROSSLANE_STEP("collectives whose two sides differ");
    const Allocation sent(megabytes), received(megabytes);
    std::vector<int> host(megabytes / sizeof(int)), host_received(host.size());
    const MPI_Comm world = MPI_COMM_WORLD;
    void* const to = received.data();
    const auto n = static_cast<std::size_t>(size_);
    constexpr int few = 8, many = 4096;
    const auto check = [&](const char* call, const char* collective, auto&& body) {
      for (int warm = 0; warm < 4; ++warm) CROSSLANE_MPI(body(sent.data(), few, to, few));
      for (const auto& [send, receive] : {std::pair{many, few}, std::pair{few, many}}) {
        CROSSLANE_STEP("{}: {} to send, {} to receive", call, send, receive);
        CROSSLANE_CUDA(cuMemsetD8(reinterpret_cast<CUdeviceptr>(to), 0x5a, megabytes));
        const std::int64_t before = direct_calls(collective);
        int by_host = MPI_SUCCESS, by_device = MPI_SUCCESS;
        MPI_Error_class(body(host.data(), send, host_received.data(), receive), &by_host);
        MPI_Error_class(body(sent.data(), send, to, receive), &by_device);
        CROSSLANE_CHECK_EQUAL(by_device, by_host);
        CROSSLANE_CHECK_EQUAL(direct_calls(collective), before);
        std::vector<std::uint8_t> bytes(megabytes);
        CROSSLANE_CUDA(cuMemcpyDtoH(bytes.data(), reinterpret_cast<CUdeviceptr>(to), megabytes));
        const auto room = static_cast<std::ptrdiff_t>(n * static_cast<std::size_t>(receive) * sizeof(int));
        CROSSLANE_CHECK(std::all_of(bytes.begin() + room, bytes.end(), [](std::uint8_t byte) { return byte == 0x5a; }),
                        "{} has written behind its blocks", call);
      }
      CROSSLANE_MPI(body(sent.data(), few, to, few));
    };
    const auto counts = [&](int count) { return std::vector<int>(n, count); };
    const auto places = [&](int count) {
      std::vector<int> all(n);
      for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<int>(i) * count;
      return all;
    };
    check("MPI_Alltoall", "alltoall", [&](const void* from, int send, void* into, int receive) {
      return MPI_Alltoall(from, send, MPI_INT, into, receive, MPI_INT, world);
    });
    check("MPI_Allgather", "allgather", [&](const void* from, int send, void* into, int receive) {
      return MPI_Allgather(from, send, MPI_INT, into, receive, MPI_INT, world);
    });
    check("MPI_Allgatherv", "allgatherv", [&](const void* from, int send, void* into, int receive) {
      return MPI_Allgatherv(from, send, MPI_INT, into, counts(receive).data(), places(receive).data(), MPI_INT, world);
    });
    check("MPI_Alltoallv", "alltoallv", [&](const void* from, int send, void* into, int receive) {
      return MPI_Alltoallv(from, counts(send).data(), places(send).data(), MPI_INT, into, counts(receive).data(),
                           places(receive).data(), MPI_INT, world);
    });
  }

  // One buffer, by absolute addresses, whose parts lie in several memories, where the MPI has to see the datatype; and parts that are no memory, or
  // run past theirs.
  void several_memories() const {
    CROSSLANE_STEP("parts in several memories");
    const Allocation first(megabytes), second(megabytes);
    std::vector<int> heap(1024);
    int on_the_stack = 0;
    const MPI_Comm world = MPI_COMM_WORLD;
    const auto type_at = [](std::initializer_list<std::pair<const void*, int>> parts) {
      std::vector<MPI_Aint> addresses;
      std::vector<int> lengths;
      for (const auto& [address, length] : parts) {
        CROSSLANE_MPI(MPI_Get_address(address, &addresses.emplace_back()));
        lengths.push_back(length);
      }
      MPI_Datatype type = MPI_DATATYPE_NULL;
      CROSSLANE_MPI(
          MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), addresses.data(), MPI_INT, &type));
      CROSSLANE_MPI(MPI_Type_commit(&type));
      return type;
    };
    std::array<char, 64> packed{};
    for (const auto& [one, other] : {std::pair<void*, void*>(first.data(), second.data()),
                                     {first.data(), heap.data()},
                                     {heap.data(), first.data()},
                                     {first.data(), &on_the_stack},
                                     {&on_the_stack, first.data()}}) {
      MPI_Datatype type = type_at({{one, 1}, {other, 1}});
      int position = 0;
      expect(MPI_Pack(MPI_BOTTOM, 1, type, packed.data(), 64, &position, world), MPI_ERR_BUFFER, {"MPI_Pack", "inbuf"});
      CROSSLANE_MPI(MPI_Type_free(&type));
    }
    const int beyond = static_cast<int>(megabytes);
    for (void* const beside : {second.data(), static_cast<void*>(heap.data())}) {
      MPI_Datatype type = type_at({{beside, 4}, {first.data(), beyond}});
      expect(MPI_Send(MPI_BOTTOM, 1, type, program_.rank, 1, world), MPI_ERR_BUFFER, {"MPI_Send", "buf"});
      expect(MPI_Bcast(MPI_BOTTOM, 1, type, 0, world), MPI_ERR_BUFFER, {"MPI_Bcast", "buffer"});
      CROSSLANE_MPI(MPI_Type_free(&type));
      type = type_at({{first.data(), 4}, {beside, 1}, {reinterpret_cast<const void*>(4096), 1}});
      expect(MPI_Send(MPI_BOTTOM, 1, type, program_.rank, 1, world), MPI_ERR_BUFFER, {"MPI_Send", "buf"});
      CROSSLANE_MPI(MPI_Type_free(&type));
    }
  }

  // Packed streams that are too short for what is asked of them, and positions outside of them.
  void packed() const {
    CROSSLANE_STEP("packed streams");
    const Allocation elements(megabytes), stream(megabytes);
    std::array<char, 64> host{};
    const MPI_Comm world = MPI_COMM_WORLD;
    for (void* const there : {stream.data(), static_cast<void*>(host.data())}) {
      int position = 4;
      expect(MPI_Pack(elements.data(), 8, MPI_INT, there, 35, &position, world), MPI_ERR_TRUNCATE,
             {"MPI_Pack", "outsize", "35"});
      expect(MPI_Unpack(there, 35, &position, elements.data(), 8, MPI_INT, world), MPI_ERR_TRUNCATE,
             {"MPI_Unpack", "insize", "35"});
      CROSSLANE_CHECK_EQUAL(position, 4);
      expect(MPI_Pack(elements.data(), 1, MPI_INT, there, -8, &position, world), MPI_ERR_ARG, {"MPI_Pack", "outsize"});
      expect(MPI_Unpack(there, -8, &position, elements.data(), 1, MPI_INT, world), MPI_ERR_ARG,
             {"MPI_Unpack", "insize"});
      for (const int outside : {-1, 37}) {
        position = outside;
        expect(MPI_Pack(elements.data(), 1, MPI_INT, there, 36, &position, world), MPI_ERR_ARG,
               {"MPI_Pack", "position"});
        expect(MPI_Unpack(there, 36, &position, elements.data(), 1, MPI_INT, world), MPI_ERR_ARG,
               {"MPI_Unpack", "position"});
        CROSSLANE_CHECK_EQUAL(position, outside);
      }
      expect(MPI_Pack(elements.data(), 1, MPI_INT, there, 36, nullptr, world), MPI_ERR_ARG, {"MPI_Pack", "position"});
      expect(MPI_Unpack(there, 36, nullptr, elements.data(), 1, MPI_INT, world), MPI_ERR_ARG,
             {"MPI_Unpack", "position"});
      MPI_Aint place = 4;
#ifdef CROSSLANE_TEST_MPI_OPENMPI
      const auto expect_external = [](int code, std::initializer_list<std::string_view>) {
        expect(code, MPI_ERR_TRUNCATE, {});  // it refuses that itself: what it says is needed is more than it needs
      };
#else
      const auto expect_external = [](int code, std::initializer_list<std::string_view> words) {
        expect(code, MPI_ERR_TRUNCATE, words);
      };
#endif
      expect_external(MPI_Pack_external("external32", elements.data(), 8, MPI_INT, there, 35, &place),
                      {"MPI_Pack_external", "outsize", "35"});
      expect_external(MPI_Unpack_external("external32", there, 35, &place, elements.data(), 8, MPI_INT),
                      {"MPI_Unpack_external", "insize", "35"});
      CROSSLANE_CHECK_EQUAL(place, MPI_Aint{4});
    }
    // No room at all, of which nothing tells where it lies.
    std::array<int, 8> on_host{};
    int position = 0;
    for (void* const from : {elements.data(), static_cast<void*>(on_host.data())}) {
      expect(MPI_Pack(from, 8, MPI_INT, stream.data(), 0, &position, world), MPI_ERR_TRUNCATE, {"MPI_Pack", "outsize"});
      expect(MPI_Unpack(stream.data(), 0, &position, from, 8, MPI_INT, world), MPI_ERR_TRUNCATE,
             {"MPI_Unpack", "insize"});
      MPI_Aint place = 0;
      expect(MPI_Pack_external("external32", from, 8, MPI_INT, stream.data(), 0, &place), MPI_ERR_TRUNCATE, {});
      expect(MPI_Unpack_external("external32", stream.data(), 0, &place, from, 8, MPI_INT), MPI_ERR_TRUNCATE, {});
      CROSSLANE_CHECK_EQUAL(position, 0);
      CROSSLANE_CHECK_EQUAL(place, MPI_Aint{0});
    }
    position = 4;
    CROSSLANE_MPI(MPI_Pack(elements.data(), 8, MPI_INT, stream.data(), 36, &position, world));
    CROSSLANE_CHECK_EQUAL(position, 36);
  }

  // The first half of a split collective, whose memory is no more; after that the file still works.
  void split_files() const {
    CROSSLANE_STEP("split collectives of files");
    const char* const folder = std::getenv("TMPDIR");
    const std::string path = fmt::format("{}/crosslane-split-{}", folder == nullptr ? "/tmp" : folder, getpid());
    MPI_File file = MPI_FILE_NULL;
    CROSSLANE_MPI(MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                                MPI_INFO_NULL, &file));
    Allocation memory(megabytes);
    void* const data = memory.data();
    memory.free();
    expect(MPI_File_write_all_begin(file, data, 1, MPI_INT), MPI_ERR_BUFFER, {"MPI_File_write_all_begin", "buf"});
    expect(MPI_File_read_at_all_begin(file, 0, data, 1, MPI_INT), MPI_ERR_BUFFER,
           {"MPI_File_read_at_all_begin", "buf"});
    const Allocation live(megabytes);
    CROSSLANE_MPI(MPI_File_write_all_begin(file, live.data(), 1, MPI_INT));
    CROSSLANE_MPI(MPI_File_write_all_end(file, live.data(), MPI_STATUS_IGNORE));
    CROSSLANE_MPI(MPI_File_close(&file));
  }

  // What of GPU memory a window cannot be, or an access to it touch.
  void windows() {
    CROSSLANE_STEP("windows");
    const Allocation memory(megabytes);
    void* const data = memory.data();
    if (!plain_mpi_has_windows(MPI_COMM_WORLD)) return;
    attached(data);
    nothing_of_it(data);
  }

  void attached(void* data) const {
    CROSSLANE_STEP("GPU memory attached to a dynamic window");
    MPI_Win dynamic = MPI_WIN_NULL;
    CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
    MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
    expect(MPI_Win_attach(dynamic, data, megabytes + 1), MPI_ERR_BUFFER, {"MPI_Win_attach", "base"});
    CROSSLANE_MPI(MPI_Win_attach(dynamic, data, 64));
    expect(MPI_Win_attach(dynamic, static_cast<char*>(data) + 32, 64), MPI_ERR_RMA_ATTACH,
           {"MPI_Win_attach", "base", "overlap"});
    CROSSLANE_MPI(MPI_Win_detach(dynamic, data));
    CROSSLANE_MPI(MPI_Win_attach(dynamic, static_cast<char*>(data) + 32, 64));
    // Not all bytes that an access touches lie there.
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::array<char, 64> bytes{};
    MPI_Aint place = 0;
    CROSSLANE_MPI(MPI_Get_address(static_cast<char*>(data) + 64, &place));
    CROSSLANE_MPI(MPI_Win_fence(0, dynamic));
    expect(MPI_Put(bytes.data(), 64, MPI_CHAR, rank, place, 64, MPI_CHAR, dynamic), MPI_ERR_ARG,
           {"MPI_Put", "target_disp", "one piece"});
    expect(MPI_Get(bytes.data(), 64, MPI_CHAR, rank, place - 64, 64, MPI_CHAR, dynamic), MPI_ERR_ARG,
           {"MPI_Get", "target_disp"});
    CROSSLANE_MPI(MPI_Put(bytes.data(), 32, MPI_CHAR, rank, place, 32, MPI_CHAR, dynamic));
    CROSSLANE_MPI(MPI_Win_fence(0, dynamic));
    CROSSLANE_MPI(MPI_Win_detach(dynamic, static_cast<char*>(data) + 32));
    CROSSLANE_MPI(MPI_Win_free(&dynamic));
  }

  // Where no byte is touched GPU memory is as good as any, and null and MPI's special addresses are none.
  void nothing_of_it(void* data) const {
    CROSSLANE_STEP("no element of GPU memory");
    MPI_Win window = MPI_WIN_NULL;
    CROSSLANE_MPI(MPI_Win_create(nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CROSSLANE_MPI(MPI_Win_fence(0, window));
    for (void* const origin : {data, static_cast<void*>(nullptr)}) {
      CROSSLANE_MPI(MPI_Put(origin, 0, MPI_INT, rank_, 0, 0, MPI_INT, window));
      CROSSLANE_MPI(MPI_Get(origin, 0, MPI_INT, rank_, 0, 0, MPI_INT, window));
    }
    CROSSLANE_MPI(MPI_Win_fence(0, window));
    CROSSLANE_MPI(MPI_Win_free(&window));
#ifdef MPI_BUFFER_AUTOMATIC
    CROSSLANE_MPI(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
    void* attached = nullptr;
    int bytes = 0;
    CROSSLANE_MPI(MPI_Buffer_detach(&attached, &bytes));
#endif
  }

  // One of the persistent operations that are started together cannot be. Those before it are under way, and not complete
  // at once.
  void started_with_bad_ones() {
    meet(program_);
    CROSSLANE_STEP("starting operations of which one has lost its memory");
    constexpr int bytes = static_cast<int>(megabytes);
    const int left = (rank_ + size_ - 1) % size_, right = (rank_ + 1) % size_;
    const MPI_Comm world = MPI_COMM_WORLD;
    Memory out(MemoryKind::device, megabytes), in(MemoryKind::device, megabytes);
    out.write(pattern(mix(rank_, 3), out.size()));
    Allocation lost(megabytes);
    std::array<MPI_Request, 2> requests{};
    CROSSLANE_MPI(MPI_Send_init(out.data(), bytes, MPI_BYTE, right, 3, world, &requests[0]));
    CROSSLANE_MPI(MPI_Send_init(lost.data(), 8, MPI_BYTE, right, 4, world, &requests[1]));
    lost.free();
    expect(MPI_Startall(2, requests.data()), MPI_ERR_BUFFER, {"MPI_Startall"});
    int flag = -1;
    CROSSLANE_MPI(MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(flag == 0, "a send that nobody has received is complete");
    CROSSLANE_MPI(MPI_Barrier(world));
    CROSSLANE_MPI(MPI_Recv(in.data(), bytes, MPI_BYTE, left, 3, world, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(in.read() == pattern(mix(left, 3), in.size()), "from rank {}", left);
    for (auto& request : requests) {
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Request_free(&request));
    }
  }

 private:
  const Program& program_;
  int rank_, size_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "bad_input_errors");
  Errors errors(program);
  errors.freed_memory(false);
  errors.freed_memory(true);
  errors.past_the_end();
  errors.counts_and_types();
  errors.deep_datatype();
  errors.reductions();
  errors.two_sizes();
  errors.several_memories();
  errors.packed();
  errors.split_files();
  errors.windows();
  errors.started_with_bad_ones();
  still_usable(program);
  return program.finish();
}
