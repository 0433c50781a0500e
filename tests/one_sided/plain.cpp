// See plain.h.
#include "one_sided/plain.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

LeftOut known() {
  LeftOut result;
#if defined(CROSSLANE_TEST_MPI_MPICH)
  result.early_posts = result.window_bases = result.rget_with_gaps = result.flush_local_of_gets = result.nocheck_locks =
      result.unsigned_as_signed = true;
#elif defined(CROSSLANE_TEST_MPI_OPENMPI)
  const char* const component = std::getenv("OMPI_MCA_osc");
  const bool messages = component != nullptr && std::string_view(component) == "pt2pt";
  result.get_accumulate_of_derived = result.accumulates_below_address = result.forgotten_windows =
      result.sums_saturate = result.unsigned_as_signed = true;
  result.nocheck_locks = result.flush_local = result.several_locks = result.proc_null_under_lock =
      result.accumulates_in_order = messages;
  result.get_accumulate_of_much = result.communicators_of_one = result.atomics_on_oneself = result.absolute_targets =
      !messages;
#endif
  return result;
}

LeftOut& value() {
  static LeftOut the_value = known();
  return the_value;
}

}  // namespace

void leave_out(const Program& program) {
  static const std::vector<std::pair<std::string_view, bool LeftOut::*>> all{
      {"early_posts", &LeftOut::early_posts},
      {"window_bases", &LeftOut::window_bases},
      {"rget_with_gaps", &LeftOut::rget_with_gaps},
      {"flush_local_of_gets", &LeftOut::flush_local_of_gets},
      {"unsigned_as_signed", &LeftOut::unsigned_as_signed},
      {"sums_saturate", &LeftOut::sums_saturate},
      {"nocheck_locks", &LeftOut::nocheck_locks},
      {"get_accumulate_of_derived", &LeftOut::get_accumulate_of_derived},
      {"accumulates_below_address", &LeftOut::accumulates_below_address},
      {"forgotten_windows", &LeftOut::forgotten_windows},
      {"flush_local", &LeftOut::flush_local},
      {"several_locks", &LeftOut::several_locks},
      {"proc_null_under_lock", &LeftOut::proc_null_under_lock},
      {"accumulates_in_order", &LeftOut::accumulates_in_order},
      {"get_accumulate_of_much", &LeftOut::get_accumulate_of_much},
      {"communicators_of_one", &LeftOut::communicators_of_one},
      {"atomics_on_oneself", &LeftOut::atomics_on_oneself},
      {"absolute_targets", &LeftOut::absolute_targets}};
  const std::string names = program.text_option("left-out", "");
  if (names.empty()) return;
  for (const auto& [name, member] : all)
    value().*member = ("," + names + ",").find("," + std::string(name) + ",") != std::string::npos;
}

const LeftOut& left_out() { return value(); }

}  // namespace crosslane::tests
