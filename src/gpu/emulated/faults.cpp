// See faults.h.
#include "gpu/emulated/faults.h"

#include "gpu/emulated/state.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::gpu::emulated {
namespace {

struct Fault {
  std::string name;  // without a version suffix if it was given so
  std::uint64_t first = 0, last = std::numeric_limits<std::uint64_t>::max();  // which calls, from 1
  bool from_arming = false;                                                   // of those after arm()
  CUresult error = CUDA_ERROR_OUT_OF_MEMORY;
  std::atomic<std::uint64_t> calls{0};
};

std::atomic<bool> armed{false};

std::vector<std::unique_ptr<Fault>>& faults() {
  static auto& list = *new std::vector<std::unique_ptr<Fault>>();
  return list;
}

std::string_view without_version(std::string_view name) {
  const auto mark = name.rfind("_v");
  return mark != std::string_view::npos && mark + 3 == name.size() ? name.substr(0, mark) : name;
}

bool matches(std::string_view wanted, std::string_view called) {
  return wanted == called || (without_version(wanted) == wanted && wanted == without_version(called));
}

bool read_number(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0;
}

}  // namespace

CUresult fault(const char* name) noexcept {
  auto& list = faults();
  if (list.empty()) [[likely]]
    return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& entry : list) {
    if (!matches(entry->name, name) || (entry->from_arming && !armed.load(std::memory_order_relaxed))) continue;
    const auto call = entry->calls.fetch_add(1, std::memory_order_relaxed) + 1;
    if (call >= entry->first && call <= entry->last) result = entry->error;
  }
  return result;
}

void arm_faults() noexcept { armed.store(true, std::memory_order_relaxed); }

void read_faults() {
  const char* text = std::getenv("CROSSLANE_EMULATED_FAULTS");
  if (text == nullptr) return;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const auto colon = item.find(':');
    const auto equals = item.find('=');
    auto entry = std::make_unique<Fault>();
    entry->name = item.substr(0, colon);
    bool good = colon != std::string_view::npos && !entry->name.empty();
    if (good) {
      std::string_view which = item.substr(colon + 1, equals == std::string_view::npos ? equals : equals - colon - 1);
      entry->from_arming = which.starts_with('+');
      if (entry->from_arming) which.remove_prefix(1);
      if (which != "*") {
        const auto dash = which.find('-');
        good = read_number(which.substr(0, dash), entry->first);
        entry->last = entry->first;
        if (good && dash != std::string_view::npos)
          good = read_number(which.substr(dash + 1), entry->last) && entry->first <= entry->last;
      }
      if (good && equals != std::string_view::npos) {
        good = error_by_name(std::string(item.substr(equals + 1)).c_str(), entry->error);
      }
    }
    if (!good) {
      say("CROSSLANE_EMULATED_FAULTS has '" + std::string(item) +
          "'; write <function>:[+]<nth, first-last or *>[=CUDA_ERROR_...], e.g. cuMemAlloc:3");
      throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
    faults().push_back(std::move(entry));
  }
}

}  // namespace crosslane::gpu::emulated

// A test says that what it prepared is over: how many calls that took may differ from run to run.
extern "C" __attribute__((visibility("default"))) void crosslane_emulated_arm();
void crosslane_emulated_arm() { crosslane::gpu::emulated::arm_faults(); }
