// Steps that all have their turn whatever becomes of the others, and the first failure among them, which is told at the end. It must not know what
// the steps do.
#pragma once

#include <exception>

namespace crosslane::base {

/// Runs `step`; what it throws is kept, if it is the first.
template <class F>
void attempt(std::exception_ptr& failure, const F& step) noexcept {
  try {
    step();
  } catch (...) {
    if (!failure) failure = std::current_exception();
  }
}

}  // namespace crosslane::base
