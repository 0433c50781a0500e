// See machine.h.
#include "machine.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

namespace crosslane::test {
namespace {

void* real_library() {
  // Found by its soname, so before the emulated one is loaded, which has the same.
  static void* const library = [] {
    void* found = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return found != nullptr && dlsym(found, "crosslane_emulated_forbid") == nullptr ? found : nullptr;
  }();
  return library;
}

}  // namespace

const gpu::Driver* load(Emulated, std::string& reason) {
  static std::string failed;
  static const auto driver = []() -> std::unique_ptr<gpu::Driver> {
    real_library();
    void* const library = dlopen(CROSSLANE_EMULATED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    auto table = std::make_unique<gpu::Driver>(gpu::Driver::from_library(library));
    gpu::check(*table, table->initialize(0), "cuInit");
    return table;
  }();
  reason = failed;
  return driver.get();
}

const gpu::Driver* load(Real, std::string& reason) {
  static std::string failed;
  static const auto driver = []() -> std::unique_ptr<gpu::Driver> {
    void* const library = real_library();
    if (library == nullptr) {
      failed = "no GPU here: libcuda.so.1 is not installed";
      return nullptr;
    }
    auto table = std::make_unique<gpu::Driver>(gpu::Driver::from_library(library));
    if (const CUresult result = table->initialize(0); result != CUDA_SUCCESS) {
      const char* name = "an unknown error";
      table->get_error_name(result, &name);
      failed = std::string("no GPU here: cuInit says ") + name;
      return nullptr;
    }
    return table;
  }();
  reason = failed;
  return driver.get();
}

void finish(gpu::StreamView stream) {
  gpu::Event event(stream.driver());
  event.record(stream);
  while (!event.done()) std::this_thread::yield();
}

std::vector<std::byte> read(const gpu::Driver& driver, const void* device, std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  const gpu::Stream stream(driver);
  gpu::copy_async(result.data(), device, bytes, stream);
  finish(stream);
  return result;
}

void write(const gpu::Driver& driver, void* device, const std::vector<std::byte>& bytes) {
  const gpu::Stream stream(driver);
  gpu::copy_async(device, bytes.data(), bytes.size(), stream);
  finish(stream);
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed_value) {
  std::mt19937_64 random(seed_value);
  std::vector<std::byte> result(bytes);
  for (std::byte& one : result) one = static_cast<std::byte>(random() & 0xff);
  return result;
}

std::uint64_t seed() {
  const char* const given = std::getenv("CROSSLANE_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
}

Child::Child(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) throw std::runtime_error("pipe");
  std::vector<std::string> words{"gpu_test", "--child"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    for (const int end : {in[0], in[1], out[0], out[1]}) close(end);
    for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
}

Child::~Child() {
  if (pid_ > 0) {
    kill();
    wait();
  }
  close(to_);
  close(from_);
}

std::string Child::line() {
  std::string text;
  for (char one = 0; ::read(from_, &one, 1) == 1 && one != '\n';) text += one;
  return text;
}

void Child::say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("write to the child");
}

void Child::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

int Child::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string to_hex(const void* data, std::size_t bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (std::size_t at = 0; at < bytes; ++at) {
    const auto one = static_cast<const unsigned char*>(data)[at];
    text += digits[one >> 4];
    text += digits[one & 15];
  }
  return text;
}

void from_hex(const std::string& text, void* data, std::size_t bytes) {
  if (text.size() != 2 * bytes) throw std::runtime_error("a handle of another length: '" + text + "'");
  for (std::size_t at = 0; at < bytes; ++at) {
    static_cast<unsigned char*>(data)[at] = static_cast<unsigned char>(std::stoi(text.substr(2 * at, 2), nullptr, 16));
  }
}

}  // namespace crosslane::test
