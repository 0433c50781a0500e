// Times the kernels of a team (src/kernel) on all GPUs of the machine, one member each, launched from one process as CUDA
// graphs: what the kernels themselves reach, for every choice of blocks and chunks. Each result is verified.
//   bench_team_kernels [--gpus N] [--algorithm ll,one_shot,two_shot,pipelined,all_gather] [--bytes N,N,...]
//                      [--blocks N,...] [--chunk N,...] [--runs N] [--most-launches N]
// Prints CSV: algorithm, bytes, blocks, chunk, run, microseconds, bus bandwidth in GB/s. Sum of float, out of place.
#include "common/driver_program.h"
#include "common/options.h"
#include "gpu/buffer.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "gpu/event.h"
#include "gpu/graph.h"
#include "gpu/pinned_buffer.h"
#include "kernel/launch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace crosslane;

constexpr std::size_t window_bytes = std::size_t{96} << 20;
constexpr std::size_t low_latency_bytes = std::size_t{256} << 10;  // of a slot: twice the payload
constexpr std::size_t control_bytes = (sizeof(kernel::Control) + 4095) / 4096 * 4096;

struct Options {
  int gpus;
  std::vector<std::string> algorithms;
  std::vector<std::size_t> bytes, blocks, chunks;
  int runs, most_launches;
};

// A member: its GPU, its arrays, its window.
struct Member {
  Member(const gpu::Driver& driver, int ordinal, std::uint32_t members, std::size_t bytes)
      : context(driver, ordinal),
        scope(std::in_place, driver, context.context()),
        kernels(driver),
        stream(driver),
        from(driver, bytes),
        to(driver, bytes * 1),
        window(driver, control_bytes + 2 * members * low_latency_bytes + 2 * window_bytes),
        words(driver, 4096),
        begin(driver, gpu::Event::Use::timing),
        end(driver, gpu::Event::Use::timing) {
    gpu::check(driver, driver.memset_d8_async(window.address(), 0, window.size(), stream.view().handle()), "cuMemset");
    std::memset(words.data(), 0, words.size());
    scope.reset();
  }
  gpu::PrimaryContext context;
  std::optional<gpu::ContextScope> scope;
  kernel::Kernels kernels;
  gpu::Stream stream;
  gpu::Buffer from, to, window;
  gpu::PinnedBuffer words;
  gpu::Event begin, end;

  [[nodiscard]] std::uint64_t low_latency() const { return window.address() + control_bytes; }
  [[nodiscard]] std::uint64_t area(std::uint32_t members) const {
    return low_latency() + 2 * members * low_latency_bytes;
  }
};

class Bench {
 public:
  Bench(const gpu::Driver& driver, const Options& options) : driver_(driver), options_(options) {
    int there = 0;
    gpu::check(driver, driver.device_get_count(&there), "cuDeviceGetCount");
    n_ = static_cast<std::uint32_t>(std::min(options.gpus, there));
    const std::size_t most = *std::max_element(options.bytes.begin(), options.bytes.end());
    for (std::uint32_t m = 0; m < n_; ++m)
      members_.push_back(std::make_unique<Member>(driver, static_cast<int>(m), n_, most / 16 * 16 + 16));
    for (std::uint32_t m = 0; m < n_; ++m) {
      const auto scope = enter(m);
      for (std::uint32_t p = 0; p < n_; ++p) {
        if (p != m)
          gpu::check(driver, driver.ctx_enable_peer_access(members_[p]->context.context(), 0), "cuCtxEnablePeerAccess");
      }
      wait(m);
      fill(m, most / 4);
    }
  }

  void run() {
    std::printf("algorithm,bytes,blocks,chunk,run,microseconds,bus_gb_s\n");
    for (const auto& algorithm : options_.algorithms) {
      for (const std::size_t bytes : options_.bytes) {
        for (const std::size_t blocks : options_.blocks) {
          if (algorithm != "pipelined") {
            run(algorithm, bytes, blocks, 0);
            continue;
          }
          for (const std::size_t chunk : options_.chunks) run(algorithm, bytes, blocks, chunk);
        }
      }
    }
  }

 private:
  gpu::ContextScope enter(std::uint32_t m) const { return {driver_, members_[m]->context.context()}; }
  void wait(std::uint32_t m) const {
    gpu::Event event(driver_);
    event.record(members_[m]->stream);
    while (!event.done()) std::this_thread::yield();
  }
  // Small whole numbers, so that sums are exact: member m has m + i % 13 in element i.
  static float value(std::uint32_t m, std::size_t i) { return static_cast<float>(m + i % 13); }
  void fill(std::uint32_t m, std::size_t count) const {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = value(m, i);
    gpu::copy_async(members_[m]->from.data(), data.data(), count * 4, members_[m]->stream);
    wait(m);
  }

  // False where the algorithm is not for this.
  bool launch(std::uint32_t m, const std::string& algorithm, std::size_t bytes, unsigned blocks, std::size_t chunk) {
    Member& mine = *members_[m];
    kernel::Frame frame{};
    frame.me = m;
    frame.members = n_;
    for (std::uint32_t p = 0; p < n_; ++p)
      frame.control[p] = reinterpret_cast<kernel::Control*>(members_[p]->window.address());
    frame.limit = {10'000'000'000, nullptr};
    frame.done = reinterpret_cast<std::uint64_t*>(mine.words.device_address());
    frame.done_value = 1;
    frame.failed = frame.done + 8;
    const std::size_t shard = ((bytes + n_ - 1) / n_ + 15) / 16 * 16;
    const auto start = [&](std::uint32_t p) { return std::min(bytes, p * shard); };
    constexpr auto op = kernel::Op::sum;
    constexpr auto element = kernel::Element::f32;
    if (algorithm == "ll") {
      if (bytes > low_latency_bytes / 2) return false;
      kernel::LowLatencyCombineParameters p{};
      p.frame = frame;
      p.slot_bytes = low_latency_bytes;
      for (std::uint32_t k = 0; k < n_; ++k) p.low_latency[k] = members_[k]->low_latency();
      p.from = mine.from.address();
      p.to = mine.to.address();
      p.send_to = p.receive_from = n_ == 32 ? ~0U : (1U << n_) - 1;
      p.count = bytes / 4;
      mine.kernels.low_latency_combine(mine.stream, op, element, p, blocks);
    } else if (algorithm == "one_shot" || algorithm == "two_shot") {
      kernel::ExchangeCombineParameters p{};
      p.frame = frame;
      p.sources = n_;
      if (algorithm == "one_shot") {
        if (bytes > window_bytes / 4) return false;
        p.parity = window_bytes;
        p.ins = p.destinations = 1;
        p.in[0] = {mine.from.address(), mine.area(n_), bytes};
        p.destination[0] = mine.to.address();
        p.count = bytes / 4;
        for (std::uint32_t k = 0; k < n_; ++k) p.source[k] = members_[k]->area(n_);
      } else {
        p.destinations = n_;
        p.second_barrier = true;
        p.count = (start(m + 1) - start(m)) / 4;
        for (std::uint32_t k = 0; k < n_; ++k) {
          p.source[k] = members_[k]->from.address() + start(m);
          p.destination[k] = members_[k]->to.address() + start(m);
        }
      }
      mine.kernels.exchange_combine(mine.stream, op, element, p, blocks);
    } else if (algorithm == "pipelined") {
      if (kernel::pipelined_window_bytes(blocks, n_, chunk) > 2 * window_bytes) return false;
      kernel::PipelinedReductionParameters p{};
      p.frame = frame;
      p.chunk_bytes = chunk;
      p.from = mine.from.address();
      p.results = n_;
      p.collector = kernel::most_members;
      for (std::uint32_t k = 0; k < n_; ++k) {
        p.shard_begin[k] = start(k);
        p.shard_bytes[k] = start(k + 1) - start(k);
        p.result[k] = members_[k]->to.address();
        p.window[k] = members_[k]->area(n_);
      }
      mine.kernels.pipelined_reduction(mine.stream, op, element, p, blocks);
    } else if (algorithm == "all_gather") {  // of `bytes` in all: the own shard pushed to everybody
      kernel::ExchangeMoveParameters p{};
      p.frame = frame;
      p.moves = n_;
      p.end_barrier = true;
      for (std::uint32_t k = 0; k < n_; ++k)
        p.move[k] = {mine.from.address() + start(m), members_[k]->to.address() + start(m), start(m + 1) - start(m)};
      mine.kernels.exchange_move(mine.stream, p, blocks);
    } else {
      throw std::runtime_error("no algorithm is called " + algorithm);
    }
    return true;
  }

  void run(const std::string& algorithm, std::size_t bytes, std::size_t blocks, std::size_t chunk) {
    const int launches = static_cast<int>(
        std::clamp<std::size_t>((64U << 20) / (bytes + 1), 3, static_cast<std::size_t>(options_.most_launches)));
    std::vector<gpu::GraphExec> graphs;
    for (std::uint32_t m = 0; m < n_; ++m) {
      const auto scope = enter(m);
      gpu::check(driver_,
                 driver_.memset_d8_async(members_[m]->to.address(), 0xff, members_[m]->to.size(),
                                         members_[m]->stream.view().handle()),
                 "cuMemset");
      wait(m);
      gpu::Capture capture(members_[m]->stream);
      for (int i = 0; i < launches; ++i)
        if (!launch(m, algorithm, bytes, static_cast<unsigned>(blocks), chunk)) return;
      graphs.push_back(capture.end());
    }
    for (int run = -1; run < options_.runs; ++run) {
      for (std::uint32_t m = 0; m < n_; ++m) {
        const auto scope = enter(m);
        graphs[m].launch(members_[m]->stream);  // all are under way when the clock starts
        members_[m]->begin.record(members_[m]->stream);
        graphs[m].launch(members_[m]->stream);
        members_[m]->end.record(members_[m]->stream);
      }
      double longest = 0;
      for (std::uint32_t m = 0; m < n_; ++m) {
        const auto scope = enter(m);
        wait(m);
        longest = std::max<double>(longest, gpu::milliseconds_between(driver_, members_[m]->begin, members_[m]->end));
      }
      const double microseconds = longest * 1e3 / launches;
      const double factor = (algorithm == "all_gather" ? 1.0 : 2.0) * (n_ - 1) / n_;
      if (run >= 0) {
        std::printf("%s,%zu,%zu,%zu,%d,%.2f,%.1f\n", algorithm.c_str(), bytes, blocks, chunk, run, microseconds,
                    factor * static_cast<double>(bytes) / microseconds / 1e3);
        std::fflush(stdout);
      }
    }
    verify(algorithm, bytes);
  }

  void verify(const std::string& algorithm, std::size_t bytes) const {
    const std::size_t count = bytes / 4, shard = ((bytes + n_ - 1) / n_ + 15) / 16 * 16;
    std::vector<float> found(count);
    for (std::uint32_t m = 0; m < n_; ++m) {
      const auto scope = enter(m);
      if (reinterpret_cast<const std::uint64_t*>(members_[m]->words.data())[8] != 0)
        throw std::runtime_error(algorithm + ": a member was not there in time");
      gpu::copy_async(found.data(), members_[m]->to.data(), count * 4, members_[m]->stream);
      wait(m);
      for (std::size_t i = 0; i < count; ++i) {
        float expected = 0;
        if (algorithm == "all_gather") {
          expected = value(static_cast<std::uint32_t>(i * 4 / shard), i);
        } else {
          for (std::uint32_t p = 0; p < n_; ++p) expected += value(p, i);
        }
        if (found[i] != expected) {
          throw std::runtime_error(algorithm + " of " + std::to_string(bytes) + " bytes: element " + std::to_string(i) +
                                   " at member " + std::to_string(m) + " is " + std::to_string(found[i]) +
                                   " instead of " + std::to_string(expected));
        }
      }
    }
  }

  const gpu::Driver& driver_;
  Options options_;
  std::uint32_t n_ = 0;
  std::vector<std::unique_ptr<Member>> members_;
};

Options chosen(const bench::Options& given) {
  const auto sizes = [&](const char* name) {
    const auto numbers = given.numbers(name);
    return std::vector<std::size_t>(numbers.begin(), numbers.end());
  };
  Options options{static_cast<int>(given.number("--gpus")),
                  given.words("--algorithm"),
                  sizes("--bytes"),
                  sizes("--blocks"),
                  sizes("--chunk"),
                  static_cast<int>(given.number("--runs")),
                  static_cast<int>(given.number("--most-launches"))};
  for (auto& bytes : options.bytes) bytes = bytes / 4 * 4;
  return options;
}

}  // namespace

int main(int count, char** words) {
  return bench::driver_program("bench_team_kernels", count, words, [](const gpu::Driver& driver, int n, char** given) {
    const bench::Options options(n, given,
                                 {{"--gpus", "32"},
                                  {"--algorithm", "ll,one_shot,two_shot,pipelined,all_gather"},
                                  {"--bytes", "8,512,4096,32768,262144,2097152,16777216,134217728,1073741824"},
                                  {"--blocks", "1,8,32,64,96,112,128"},
                                  {"--chunk", "8192,16384,32768"},
                                  {"--runs", "5"},
                                  {"--most-launches", "200"}});
    Bench(driver, chosen(options)).run();
  });
}
