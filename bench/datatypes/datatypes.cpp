// Times the datatype engine (src/lane/mover.h) on one GPU: TYPES' figures 6 to 9. Packing and unpacking of vectors,
// sub-matrices, triangles, stairs, blocks at random displacements and transpositions beside a contiguous copy of the same
// bytes and cuMemcpy2DAsync, in turns; first use of a list; and bandwidth by number of thread blocks.
//   bench_datatypes [--n N] [--vector-bytes N] [--blocks N,...] [--grids N,...] [--runs N] [--iterations N]
// N is the edge of the matrices of doubles (transposition: twice that). Prints CSV, a row a run, and a table of medians and
// ratios as comments behind it. GB/s are payload bytes a second, which are read once and written once. Every case's bytes
// are verified.
#include "common/driver_program.h"
#include "common/options.h"
#include "gpu/buffer.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "gpu/event.h"
#include "lane/mover.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace crosslane;
using Clock = std::chrono::steady_clock;

// A datatype, and what it is called in the table.
struct Case {
  std::string name;
  std::size_t block;
  layout::Layout layout;
  std::optional<gpu::Rows> rows;  // of cuMemcpy2DAsync: the pitch of what is not packed is source_pitch
};

layout::Layout laid_out(layout::NodePointer node) {
  const std::int64_t extent = node->high;
  return {std::move(node), 0, extent};
}

layout::NodePointer columns(std::int64_t n, std::int64_t (*first)(std::int64_t column, std::int64_t n)) {
  std::vector<layout::Placed> placed;
  for (std::int64_t j = 0; j < n; ++j) {
    const std::int64_t row = first(j, n);
    placed.push_back({(j * n + row) * 8, layout::block(0, static_cast<std::size_t>(n - row) * 8)});
  }
  return layout::join(placed);
}

Case vector(std::size_t block, std::size_t bytes) {
  const std::size_t count = std::max<std::size_t>(bytes / block, 2);
  return {"vector", block,
          laid_out(layout::repeat(layout::block(0, block), count, static_cast<std::int64_t>(2 * block))),
          gpu::Rows{block, count, block, 2 * block}};
}
Case sub_matrix(std::size_t n) {
  return {"sub-matrix", n * 8, laid_out(layout::repeat(layout::block(0, n * 8), n, static_cast<std::int64_t>(16 * n))),
          gpu::Rows{n * 8, n, n * 8, 16 * n}};
}
Case lower_triangle(std::size_t n) {
  return {"lower triangle", 8,
          laid_out(columns(static_cast<std::int64_t>(n), [](std::int64_t j, std::int64_t) { return j; })),
          std::nullopt};
}
Case stair(std::size_t n) {
  return {"stair", 128 * 8,
          laid_out(columns(static_cast<std::int64_t>(n), [](std::int64_t j, std::int64_t) { return j / 128 * 128; })),
          std::nullopt};
}
Case random_blocks(std::size_t bytes) {
  std::vector<std::int64_t> places(std::max<std::size_t>(bytes / 32, 4));
  std::iota(places.begin(), places.end(), 0);
  std::mt19937_64 engine(1);
  std::shuffle(places.begin(), places.end(), engine);
  places.resize(places.size() / 2);
  std::vector<layout::Placed> placed;
  const auto block = layout::block(0, 64);
  for (const auto place : places) placed.push_back({place * 64, block});
  return {"random blocks", 64, laid_out(layout::join(placed)), std::nullopt};
}
Case transposition(std::size_t n) {
  const auto row = static_cast<std::int64_t>(n) * 8;
  return {"transposition", 8, laid_out(layout::repeat(layout::repeat(layout::block(0, 8), n, row), n, 8)),
          std::nullopt};
}

class Bench {
 public:
  Bench(const gpu::Driver& driver, const bench::Options& options)
      : driver_(driver),
        options_(options),
        context_(driver, 0),
        scope_(driver, context_.context()),
        source_([this]() -> const gpu::Driver& { return driver_; }),
        pool_(source_, std::size_t{1} << 30),
        stream_(driver),
        begin_(driver, gpu::Event::Use::timing),
        end_(driver, gpu::Event::Use::timing) {}

  void run() {
    std::printf("case,block,bytes,side,run,microseconds,gb_s\n");
    const auto n = static_cast<std::size_t>(options_.number("--n"));
    const auto bytes = static_cast<std::size_t>(options_.number("--vector-bytes"));
    make_mover(0);
    for (const long block : options_.numbers("--blocks"))
      steady([&](std::size_t all) { return vector(static_cast<std::size_t>(block), all); }, bytes);
    steady(sub_matrix, n);
    steady(lower_triangle, n);
    steady(stair, n);
    steady(random_blocks, bytes);
    steady(transposition, 2 * n);
    first_use(lower_triangle(n));
    first_use(stair(n));
    first_use(random_blocks(bytes));
    for (const long blocks : options_.numbers("--grids")) {
      make_mover(static_cast<unsigned>(blocks));
      grids(sub_matrix(n), static_cast<std::size_t>(blocks));
    }
    summary();
  }

 private:
  using Enqueue = std::function<void()>;
  struct Sides {
    std::string name;
    Enqueue enqueue;
  };

  void make_mover(unsigned blocks) {
    mover_.reset();
    settings_.copy_blocks = blocks;
    mover_.emplace(source_, pool_, settings_);
    mover_->prepare(context_.context());
  }
  void copy(const lane::Side& to, const lane::Side& from, std::size_t bytes) {
    mover_->copy(context_.context(), stream_, to, from, 0, bytes);
  }
  void finish() {
    end_.record(stream_);
    while (!end_.done()) std::this_thread::yield();
  }

  // Microseconds of one of `iterations`, by the GPU's clock.
  double timed(const Enqueue& enqueue, int iterations) {
    begin_.record(stream_);
    for (int i = 0; i < iterations; ++i) enqueue();
    end_.record(stream_);
    while (!end_.done()) std::this_thread::yield();
    return 1e3 * static_cast<double>(gpu::milliseconds_between(driver_, begin_, end_)) / iterations;
  }

  void verify(const Case& one) {
    const std::size_t bytes = one.layout.size(), room = static_cast<std::size_t>(one.layout.extent());
    std::vector<std::byte> host(room), packed(bytes), got(bytes), unpacked(room), expected(room);
    std::mt19937 engine(7);
    for (auto& byte : host) byte = static_cast<std::byte>(engine());
    const gpu::Buffer matrix(driver_, room), stream(driver_, bytes), back(driver_, room);
    gpu::copy_async(matrix.data(), host.data(), room, stream_);
    gpu::fill_async(back.data(), 0, room, stream_);
    copy(lane::Side::packed(stream.data()), lane::Side::of(matrix.data(), one.layout, 1), bytes);
    copy(lane::Side::of(back.data(), one.layout, 1), lane::Side::packed(stream.data()), bytes);
    gpu::copy_async(got.data(), stream.data(), bytes, stream_);
    gpu::copy_async(unpacked.data(), back.data(), room, stream_);
    finish();
    one.layout.pack(packed.data(), host.data(), 1, 0, bytes);
    one.layout.unpack(expected.data(), packed.data(), 1, 0, bytes);
    if (got != packed || unpacked != expected) throw std::runtime_error(one.name + " is packed or unpacked wrongly");
  }

  // `make` for a small size first, whose bytes are verified.
  template <class Make>
  void steady(Make make, std::size_t size) {
    verify(make(std::max<std::size_t>(size / 16, 24)));
    const Case one = make(size);
    const std::size_t bytes = one.layout.size(), room = static_cast<std::size_t>(one.layout.extent());
    const gpu::Buffer matrix(driver_, room), stream(driver_, bytes), other(driver_, bytes);
    fill(matrix);
    fill(stream);
    const auto elements = lane::Side::of(matrix.data(), one.layout, 1);
    const auto packed = lane::Side::packed(stream.data());
    std::vector<Sides> sides{
        {"contiguous", [&] { gpu::copy_async(stream.data(), other.data(), bytes, stream_); }},
        {"pack", [&] { copy(packed, elements, bytes); }},
        {"unpack", [&] { copy(elements, packed, bytes); }},
    };
    if (one.rows) {
      sides.push_back({"pack 2D", [&] { gpu::copy_2d_async(stream.data(), matrix.data(), *one.rows, stream_); }});
      sides.push_back({"unpack 2D", [&] {
                         gpu::Rows rows = *one.rows;
                         std::swap(rows.source_pitch, rows.destination_pitch);
                         gpu::copy_2d_async(matrix.data(), stream.data(), rows, stream_);
                       }});
    }
    in_turns(one, sides, static_cast<int>(options_.number("--iterations")));
    if (one.name == "transposition") on_host(make(std::max<std::size_t>(size / 4, 24)));
  }

  void grids(const Case& one, std::size_t blocks) {
    const std::size_t bytes = one.layout.size();
    const gpu::Buffer matrix(driver_, static_cast<std::size_t>(one.layout.extent())), stream(driver_, bytes),
        other(driver_, bytes);
    const Case named{"thread blocks", blocks, one.layout, std::nullopt};
    const std::vector<Sides> sides{
        {"contiguous", [&] { gpu::copy_async(stream.data(), other.data(), bytes, stream_); }},
        {"pack",
         [&] { copy(lane::Side::packed(stream.data()), lane::Side::of(matrix.data(), one.layout, 1), bytes); }}};
    in_turns(named, sides, 2);
  }

  // Who goes first changes from run to run.
  void in_turns(const Case& one, const std::vector<Sides>& sides, int iterations) {
    for (const auto& side : sides) side.enqueue();  // lists, code, clocks
    finish();
    for (long run = 0; run < options_.number("--runs"); ++run) {
      for (std::size_t i = 0; i < sides.size(); ++i) {
        const auto& side = sides[(i + static_cast<std::size_t>(run)) % sides.size()];
        record(one, side.name, run, timed(side.enqueue, iterations));
      }
    }
  }

  // From the call to the stream's end, by the host's clock: lists are made on the CPU.
  void first_use(const Case& one) {
    const std::size_t bytes = one.layout.size();
    const gpu::Buffer matrix(driver_, static_cast<std::size_t>(one.layout.extent())), stream(driver_, bytes),
        other(driver_, bytes);
    const Case named{"first use, " + one.name, one.block, one.layout, std::nullopt};
    const auto by_host = [&](const Enqueue& enqueue) {
      finish();
      const auto start = Clock::now();
      enqueue();
      finish();
      return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    };
    const Enqueue contiguous = [&] { gpu::copy_async(stream.data(), other.data(), bytes, stream_); };
    const Enqueue pack = [&] {
      copy(lane::Side::packed(stream.data()), lane::Side::of(matrix.data(), one.layout, 1), bytes);
    };
    const Case warm_up = stair(300);
    const gpu::Buffer warm_matrix(driver_, static_cast<std::size_t>(warm_up.layout.extent())),
        warm_stream(driver_, warm_up.layout.size());
    for (long run = 0; run < options_.number("--runs"); ++run) {
      // A mover that has another type's list, so that all else is ready: kernels, pinned memory, events.
      make_mover(0);
      copy(lane::Side::packed(warm_stream.data()), lane::Side::of(warm_matrix.data(), warm_up.layout, 1),
           warm_up.layout.size());
      record(named, "contiguous", run, by_host(contiguous));
      record(named, "first", run, by_host(pack));
      record(named, "cached", run, by_host(pack));
    }
  }
  void on_host(const Case& one) {
    std::vector<std::byte> matrix(static_cast<std::size_t>(one.layout.extent()), std::byte{1}),
        packed(one.layout.size());
    const Case named{"transposition on the host", one.block, one.layout, std::nullopt};
    for (long run = 0; run < options_.number("--runs"); ++run) {
      const auto start = Clock::now();
      one.layout.pack(packed.data(), matrix.data(), 1, 0, packed.size());
      record(named, "pack", run, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
  }

  void fill(const gpu::Buffer& buffer) { gpu::fill_async(buffer.data(), 1, buffer.size(), stream_); }

  void record(const Case& one, const std::string& side, long run, double microseconds) {
    const std::size_t bytes = one.layout.size();
    const double rate = static_cast<double>(bytes) / microseconds / 1e3;
    std::printf("%s,%zu,%zu,%s,%ld,%.3f,%.2f\n", one.name.c_str(), one.block, bytes, side.c_str(), run, microseconds,
                rate);
    std::fflush(stdout);
    const std::string key = one.name + " " + std::to_string(one.block);
    if (rates_.find(key) == rates_.end()) order_.push_back(key);
    rates_[key][side].push_back(rate);
  }

  void summary() {
    std::printf("#\n# %-34s %-12s %10s %14s %8s\n", "case and block", "side", "GB/s", "of contiguous", "of 2D");
    for (const auto& key : order_) {
      auto& sides = rates_[key];
      const auto median = [&](const std::string& side) {
        auto found = sides.find(side);
        if (found == sides.end()) return 0.0;
        std::sort(found->second.begin(), found->second.end());
        return found->second[found->second.size() / 2];
      };
      for (const auto& [side, rates] : sides) {
        const double rate = median(side), contiguous = median("contiguous"), rows = median(side + " 2D");
        std::printf("# %-34s %-12s %10.1f", key.c_str(), side.c_str(), rate);
        if (contiguous > 0) std::printf(" %14.3f", rate / contiguous);
        if (rows > 0) std::printf(" %8.3f", rate / rows);
        std::printf("\n");
      }
    }
  }

  const gpu::Driver& driver_;
  const bench::Options& options_;
  gpu::PrimaryContext context_;
  gpu::ContextScope scope_;
  lane::DriverSource source_;
  lane::PinnedPool pool_;
  base::Settings settings_;
  gpu::Stream stream_;
  gpu::Event begin_, end_;
  std::optional<lane::Mover> mover_;
  std::map<std::string, std::map<std::string, std::vector<double>>> rates_;
  std::vector<std::string> order_;
};

}  // namespace

int main(int count, char** words) {
  return bench::driver_program("bench_datatypes", count, words, [](const gpu::Driver& driver, int n, char** given) {
    const bench::Options options(n, given,
                                 {{"--n", "4096"},
                                  {"--vector-bytes", "134217728"},
                                  {"--blocks", "8,16,24,32,48,64,72,96,128,200,256,520,1024,4096,16384,65536"},
                                  {"--grids", "1,2,4,8,16,32,64,128,256,512,1024,2112,4224"},
                                  {"--runs", "7"},
                                  {"--iterations", "5"}});
    Bench(driver, options).run();
  });
}
