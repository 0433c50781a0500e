// What windows over GPU memory say of themselves, several of them over one memory, and GPU buffers with windows whose memory is the
// MPI's or is attached. It must not know Crosslane.
#include "one_sided/attribute.h"
#include "one_sided/parts.h"
#include "one_sided/plain.h"
#include "support/beneath.h"
#include "support/plain_mpi.h"

#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

/// A window that goes with its scope. Collective.
class Window {
 public:
  Window(void* base, std::size_t bytes, int unit) {
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_create(base, static_cast<MPI_Aint>(bytes), unit, MPI_INFO_NULL, MPI_COMM_WORLD, &handle_));
  }
  ~Window() {
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_free(&handle_));
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  [[nodiscard]] MPI_Win handle() const { return handle_; }
  void fence() const {
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_fence(0, handle_));
  }

 private:
  MPI_Win handle_ = MPI_WIN_NULL;
};

void* base_of(MPI_Win window) {
  void* value = nullptr;
  int found = 0;
  CROSSLANE_MPI(MPI_Win_get_attr(window, MPI_WIN_BASE, static_cast<void*>(&value), &found));
  CROSSLANE_CHECK(found != 0, "MPI_WIN_BASE is not set");
  return value;
}

/// What the MPI itself says of windows over host memory, by calls that nothing wraps.
int plain_model() {
  int exposed = 0, found = 0;
  MPI_Win window = MPI_WIN_NULL;
  void* value = nullptr;
  CROSSLANE_MPI(
      beneath(&MPI_Win_create, "PMPI_Win_create")(&exposed, sizeof exposed, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CROSSLANE_MPI(
      beneath(&MPI_Win_get_attr, "PMPI_Win_get_attr")(window, MPI_WIN_MODEL, static_cast<void*>(&value), &found));
  const int model = found == 0 ? -1 : *static_cast<int*>(value);
  CROSSLANE_MPI(beneath(&MPI_Win_free, "PMPI_Win_free")(&window));
  return model;
}

void check_attributes(const Window& window, void* base, std::size_t bytes, int unit, MemoryKind kind, int plain) {
  const MPI_Win handle = window.handle();
  CROSSLANE_CHECK_EQUAL(base_of(handle), base);
  CROSSLANE_CHECK_EQUAL(attribute<MPI_Aint>(handle, MPI_WIN_SIZE, "MPI_WIN_SIZE"), static_cast<MPI_Aint>(bytes));
  CROSSLANE_CHECK_EQUAL(attribute<int>(handle, MPI_WIN_DISP_UNIT, "MPI_WIN_DISP_UNIT"), unit);
  const int made_by = attribute<int>(handle, MPI_WIN_CREATE_FLAVOR, "MPI_WIN_CREATE_FLAVOR");
  CROSSLANE_CHECK(made_by == MPI_WIN_FLAVOR_CREATE, "MPI_WIN_CREATE_FLAVOR is {}", made_by);
  const int model = attribute<int>(handle, MPI_WIN_MODEL, "MPI_WIN_MODEL");
  if (kind == MemoryKind::device)
    CROSSLANE_CHECK(model == MPI_WIN_SEPARATE || model == MPI_WIN_UNIFIED, "MPI_WIN_MODEL is {}", model);
  if (kind == MemoryKind::host) CROSSLANE_CHECK(model == plain, "MPI_WIN_MODEL is {}, the MPI says {}", model, plain);
}

class Attributes {
 public:
  explicit Attributes(Program& program)
      : program_(program),
        right_((program.rank + 1) % program.size),
        left_((program.rank + program.size - 1) % program.size) {}

  void of_windows() {
    const int plain = plain_model();
    constexpr std::size_t bytes = 10000;
    for (const int unit : {1, 4, 8, 40}) {
      CROSSLANE_STEP("attributes, units of {} bytes", unit);
      const MemoryKind kind = program_.kind(), other_kind = program_.kind();
      Memory memory(kind, bytes), other(other_kind, bytes, anywhere(other_kind) ? 3 : 0);
      auto* const base = memory.as<char>();
      auto* const inside = base + (anywhere(kind) ? 1001 : 0);
      const Window whole(base, bytes, unit), again(base, bytes, 1), part(inside, 77, unit), nothing(base, 0, unit),
          second(other.data(), bytes, unit);
      check_attributes(whole, base, bytes, unit, kind, plain);
      check_attributes(again, base, bytes, 1, kind, plain);
      check_attributes(part, inside, 77, unit, kind, plain);
      check_attributes(second, other.data(), bytes, unit, other_kind, plain);
      CROSSLANE_CHECK_EQUAL(attribute<MPI_Aint>(nothing.handle(), MPI_WIN_SIZE, "MPI_WIN_SIZE"), MPI_Aint{0});
      MPI_Group group = MPI_GROUP_NULL;
      CROSSLANE_MPI(MPI_Win_get_group(whole.handle(), &group));
      int ranks = 0;
      CROSSLANE_MPI(MPI_Group_size(group, &ranks));
      CROSSLANE_CHECK_EQUAL(ranks, program_.size);
      CROSSLANE_MPI(MPI_Group_free(&group));
    }
  }

  static bool anywhere(MemoryKind kind) { return kind == MemoryKind::device || !left_out().window_bases; }

  // What arrives through one is seen through the other, once each has been told.
  void over_one_memory() {
    constexpr int bytes = 5000, behind = 301;
    CROSSLANE_STEP("two windows over one memory");
    // Of all ranks, or of none.
    if (left_out().window_bases && program_.device() == nullptr) return;
    Memory memory(left_out().window_bases ? MemoryKind::device : program_.kind(), bytes + behind);
    memory.write(pattern(mix(program_.seed, program_.rank), bytes + behind));
    const Window first(memory.data(), bytes, 1), second(memory.as<char>() + behind, bytes, 1);
    Memory out(program_.kind(), bytes), in(program_.kind(), bytes);
    out.write(pattern(mix(program_.seed, program_.rank, 7), bytes));
    first.fence();
    CROSSLANE_MPI(MPI_Put(out.data(), bytes, MPI_BYTE, right_, 0, bytes, MPI_BYTE, first.handle()));
    first.fence();
    second.fence();
    CROSSLANE_MPI(MPI_Get(in.data(), bytes - behind, MPI_BYTE, right_, 0, bytes - behind, MPI_BYTE, second.handle()));
    second.fence();
    const auto mine = pattern(mix(program_.seed, program_.rank, 7), bytes);
    const auto from_left = pattern(mix(program_.seed, left_, 7), bytes);
    CROSSLANE_CHECK(in.read(0, bytes - behind) == std::vector<std::byte>(mine.begin() + behind, mine.end()),
                    "through the other window in {} memory", name(memory.kind()));
    CROSSLANE_CHECK(memory.read(0, bytes) == from_left, "the window in {} memory", name(memory.kind()));
    CROSSLANE_MPI(MPI_Put(in.data(), 1, MPI_BYTE, right_, bytes - 1, 1, MPI_BYTE, second.handle()));
    second.fence();
    first.fence();
    CROSSLANE_CHECK(memory.read(0, bytes) == from_left, "the first window, after the second changed what is behind it");
    CROSSLANE_CHECK(memory.read(bytes + behind - 1, 1)[0] == from_left[behind], "the last byte of the second window");
  }

  // Memory that the MPI has made, and the program's buffers anywhere.
  void of_the_mpi() {
    constexpr std::size_t bytes = 40000;
    void* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    CROSSLANE_STEP("MPI_Win_allocate");
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&base), &window));
    there_and_back(window, base, bytes, 0, "MPI_Win_allocate");
    CROSSLANE_MPI(MPI_Win_free(&window));

    MPI_Comm node = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    int ranks = 0;
    MPI_Comm_size(node, &ranks);
    if (ranks == program_.size) {
      CROSSLANE_STEP("MPI_Win_allocate_shared");
      polite_barrier();
      CROSSLANE_MPI(
          MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&base), &window));
      there_and_back(window, base, bytes, 0, "MPI_Win_allocate_shared");
      CROSSLANE_MPI(MPI_Win_free(&window));
    }
    CROSSLANE_MPI(MPI_Comm_free(&node));
  }

  void attached() {
    constexpr std::size_t bytes = 40000;
    CROSSLANE_STEP("MPI_Win_create_dynamic");
    MPI_Win window = MPI_WIN_NULL;
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CROSSLANE_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    std::vector<std::byte> memory(bytes);
    CROSSLANE_MPI(MPI_Win_attach(window, memory.data(), bytes));
    MPI_Aint mine = 0;
    CROSSLANE_MPI(MPI_Get_address(memory.data(), &mine));
    std::vector<MPI_Aint> addresses(static_cast<std::size_t>(program_.size));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Iallgather(&mine, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD, &request));
    polite_wait(request);
    there_and_back(window, memory.data(), bytes, addresses[static_cast<std::size_t>(right_)], "MPI_Win_attach");
    CROSSLANE_MPI(MPI_Win_detach(window, memory.data()));
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_free(&window));
  }

 private:
  // Puts into the right rank's memory, and gets it back.
  void there_and_back(MPI_Win window, void* base, std::size_t bytes, MPI_Aint place, const std::string& what) {
    const int count = static_cast<int>(bytes);
    Memory out(program_.kind(), bytes), in(program_.kind(), bytes);
    out.write(pattern(mix(program_.seed, program_.rank, bytes), bytes));
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_fence(0, window));
    CROSSLANE_MPI(MPI_Put(out.data(), count, MPI_BYTE, right_, place, count, MPI_BYTE, window));
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_fence(0, window));
    const auto expected = pattern(mix(program_.seed, left_, bytes), bytes);
    CROSSLANE_CHECK(std::memcmp(base, expected.data(), bytes) == 0, "{}: MPI_Put from {} memory", what,
                    name(out.kind()));
    CROSSLANE_MPI(MPI_Get(in.data(), count, MPI_BYTE, right_, place, count, MPI_BYTE, window));
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_fence(0, window));
    CROSSLANE_CHECK(in.read() == out.read(), "{}: MPI_Get into {} memory", what, name(in.kind()));
    polite_barrier();
  }

  Program& program_;
  int right_, left_;
};

}  // namespace

void one_sided_attributes(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) {
    program.skip("MPI_Win_create of host memory fails");
    return;
  }
  Attributes attributes(program);
  attributes.of_windows();
  attributes.over_one_memory();
  attributes.of_the_mpi();
  attributes.attached();
}

}  // namespace crosslane::tests
