// Many short accesses of one rank within an epoch, to a window of which there is one copy: those that touch the same bytes take effect in the order of
// the calls. It must not know Crosslane.
#include "one_sided/attribute.h"
#include "one_sided/parts.h"
#include "support/refused.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t window_bytes = std::size_t{1} << 20;

class Short {
 public:
  explicit Short(Program& program)
      : program_(program),
        right_((program.rank + 1) % program.size),
        left_((program.rank + program.size - 1) % program.size),
        memory_(MemoryKind::device, window_bytes) {
    memory_.write(content(program.rank));
    there_ = content(right_);
    CROSSLANE_MPI(MPI_Win_create(memory_.data(), window_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_));
    CROSSLANE_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    CROSSLANE_MPI(MPI_Win_lock_all(0, window_));
  }
  ~Short() {
    CROSSLANE_MPI(MPI_Win_unlock_all(window_));
    CROSSLANE_MPI(MPI_Win_free(&window_));
  }
  Short(const Short&) = delete;
  Short& operator=(const Short&) = delete;

  [[nodiscard]] bool unified() const { return is_unified(window_); }

  void round(int number) {
    Random random(mix(program_.seed, program_.rank, number));
    const auto accesses = random.between(1, 200);
    CROSSLANE_STEP("round {}: {} accesses", number, accesses);
    Memory out(program_.kind(random), window_bytes), in(program_.kind(random), 2 * window_bytes);
    const auto sent = pattern(mix(program_.seed, program_.rank, number, 1), window_bytes);
    out.write(sent);
    std::vector<std::byte> expected(in.size());
    in.write(expected);
    std::size_t got = 0;
    std::vector<MPI_Request> requests;
    for (int i = 0; i < accesses; ++i) {
      const Place place = choose(random);
      const MPI_Datatype type = type_of(place);
      const bool get = random.chance(40) && got + place.bytes() <= in.size();
      const bool requested = random.chance(10);
      MPI_Request request = MPI_REQUEST_NULL;
      const int bytes = static_cast<int>(place.bytes());
      const auto at = static_cast<MPI_Aint>(place.offset(0));
      if (get) {
        std::byte* const to = in.as<std::byte>() + got;
        if (requested)
          CROSSLANE_MPI(MPI_Rget(to, bytes, MPI_BYTE, right_, at, 1, type, window_, &request));
        else
          CROSSLANE_MPI(MPI_Get(to, bytes, MPI_BYTE, right_, at, 1, type, window_));
        for (int block = 0; block < place.blocks; ++block, got += place.length)
          std::memcpy(expected.data() + got, there_.data() + place.offset(block), place.length);
      } else {
        const std::size_t from = random.below(sent.size() - place.bytes() + 1);
        if (requested)
          CROSSLANE_MPI(MPI_Rput(out.as<std::byte>() + from, bytes, MPI_BYTE, right_, at, 1, type, window_, &request));
        else
          CROSSLANE_MPI(MPI_Put(out.as<std::byte>() + from, bytes, MPI_BYTE, right_, at, 1, type, window_));
        for (int block = 0; block < place.blocks; ++block)
          std::memcpy(there_.data() + place.offset(block),
                      sent.data() + from + static_cast<std::size_t>(block) * place.length, place.length);
      }
      if (requested) requests.push_back(request);
      if (random.chance(3)) flush(random);
      MPI_Datatype mine = type;
      CROSSLANE_MPI(MPI_Type_free(&mine));
    }
    CROSSLANE_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
    flush(random);
    CROSSLANE_CHECK(in.read() == expected, "what was got differs");
    compare();
  }

  // What is freed before its access is over is refused by the call that completes it, and nothing else suffers: neither what waits with it, nor what
  // comes behind, of which there is more than waits at once.
  void freed_too_soon() {
    CROSSLANE_STEP("memory that is freed before it was put");
    constexpr int bytes = 8, step = 64;
    constexpr std::size_t before = 10, behind = 100, gone_at = 0, got_at = 100'000, put_at = 200'000;
    constexpr std::byte sent{0x5a};
    Allocation kept(megabytes);
    Allocation gone(megabytes);
    CROSSLANE_CUDA(cuMemsetD8(reinterpret_cast<CUdeviceptr>(kept.data()), std::to_integer<unsigned char>(sent), bytes));
    CROSSLANE_CUDA(cuCtxSynchronize());
    const auto put = [&](const Allocation& from, std::size_t at) {
      CROSSLANE_MPI(MPI_Put(from.data(), bytes, MPI_BYTE, right_, static_cast<MPI_Aint>(at), bytes, MPI_BYTE, window_));
    };
    // Both are known from then on.
    put(kept, gone_at);
    put(gone, gone_at);
    CROSSLANE_MPI(MPI_Win_flush(right_, window_));
    std::vector<std::byte> got(before * step);
    put(kept, gone_at);
    for (std::size_t i = 0; i < before; ++i)
      CROSSLANE_MPI(MPI_Get(got.data() + i * step, step, MPI_BYTE, right_, static_cast<MPI_Aint>(got_at + i * step),
                            step, MPI_BYTE, window_));
    put(gone, gone_at + bytes);
    gone.free();
    for (std::size_t i = 0; i < behind; ++i) put(kept, put_at + i * step);
    expect(MPI_Win_flush(right_, window_), MPI_ERR_BUFFER, {"MPI_Win_flush", "freed"});
    CROSSLANE_MPI(MPI_Win_flush(right_, window_));
    CROSSLANE_CHECK(std::equal(got.begin(), got.end(), there_.begin() + got_at), "what was got before differs");
    polite_barrier();
    for (std::size_t i = 0; i < behind; ++i)
      CROSSLANE_CHECK(memory_.read(put_at + i * step, bytes) == std::vector(bytes, sent), "put {} behind it", i);
    // What the freed memory held is nobody's business.
    memory_.write(content(program_.rank));
    there_ = content(right_);
    polite_barrier();
    round(-1);
  }

 private:
  // Blocks of one length in the other rank's window.
  struct Place {
    std::size_t at = 0, length = 0, stride = 0;
    int blocks = 1;
    bool backwards = false;  // the last block comes first in memory
    [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(blocks) * length; }
    [[nodiscard]] std::size_t offset(int block) const {
      return at + static_cast<std::size_t>(backwards ? blocks - 1 - block : block) * stride;
    }
  };

  [[nodiscard]] std::vector<std::byte> content(int rank) const {
    return pattern(mix(program_.seed, rank, 99), window_bytes);
  }

  // Often near the last one, so that they overlap.
  Place choose(Random& random) {
    constexpr std::size_t lengths[] = {1, 3, 8, 16, 100, 256, 4000, 4096, 40'000, 300'000};
    Place place{.length = random.pick(lengths)};
    if (place.length <= 256 && random.chance(30)) place.blocks = random.between(2, 40);
    place.stride = place.length + random.below(64);
    place.backwards = random.chance(30);
    const std::size_t reach = static_cast<std::size_t>(place.blocks - 1) * place.stride + place.length;
    place.at = random.chance(50) ? std::min(last_ + random.below(64), window_bytes - reach)
                                 : random.below(window_bytes - reach + 1);
    last_ = place.at;
    return place;
  }
  static MPI_Datatype type_of(const Place& place) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    const int stride = static_cast<int>(place.stride);
    CROSSLANE_MPI(MPI_Type_vector(place.blocks, static_cast<int>(place.length), place.backwards ? -stride : stride,
                                  MPI_BYTE, &type));
    CROSSLANE_MPI(MPI_Type_commit(&type));
    return type;
  }

  void flush(Random& random) {
    CROSSLANE_MPI(random.chance(50) ? MPI_Win_flush(right_, window_) : MPI_Win_flush_all(window_));
  }

  // This rank's memory is what its left one has made of it.
  void compare() {
    std::vector<std::byte> expected(window_bytes);
    CROSSLANE_MPI(MPI_Sendrecv(there_.data(), window_bytes, MPI_BYTE, right_, 0, expected.data(), window_bytes,
                               MPI_BYTE, left_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(memory_.read() == expected, "what rank {} has put differs", left_);
    polite_barrier();
  }

  Program& program_;
  const int right_, left_;
  Memory memory_;
  std::vector<std::byte> there_;  // in the right one's memory
  std::size_t last_ = 0;
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

void one_sided_short(Program& program) {
  Short accesses(program);
  CROSSLANE_CHECK(accesses.unified(), "not one copy");
  const auto rounds = static_cast<int>(program.option("cases", 12));
  for (int number = 0; number < rounds; ++number) accesses.round(number);
  accesses.freed_too_soon();
}

}  // namespace crosslane::tests
