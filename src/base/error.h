// What goes wrong inside Crosslane, as a C++ exception that names its MPI error class.
// Every extern "C" entry turns it into an MPI error through the handler that the standard names (interpose/), and
// never exits. This file must not know MPI's constants: the classes are ours, mpi/ maps them.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace crosslane::base {

/// The MPI error classes that Crosslane raises (MPI 5.0, section 9.4).
enum class ErrorClass {
  buffer,
  count,
  type,
  tag,
  comm,
  rank,
  root,
  op,
  topology,
  argument,
  truncate,
  request,
  group,
  displacement,  ///< or its unit
  size,
  lock_type,
  assertion,
  rma_sync,
  rma_range,
  rma_attach,
  rma_flavor,
  no_memory,
  unsupported,
  other,
  intern
};

/// An error with its class and a message that names the call, the argument and the remedy.
class Error : public std::runtime_error {
 public:
  Error(ErrorClass error_class, const std::string& message) : std::runtime_error(message), class_(error_class) {}

  template <class... Arguments>
  Error(ErrorClass error_class, fmt::format_string<Arguments...> format, Arguments&&... arguments)
    requires(sizeof...(Arguments) > 0)
      : Error(error_class, fmt::format(format, std::forward<Arguments>(arguments)...)) {}

  [[nodiscard]] ErrorClass error_class() const noexcept { return class_; }

 private:
  ErrorClass class_;
};

/// It may go well another time: memory was short.
[[nodiscard]] inline bool is_shortage(const std::exception& error) noexcept {
  const auto* const known = dynamic_cast<const Error*>(&error);
  return known != nullptr ? known->error_class() == ErrorClass::no_memory
                          : dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
}

}  // namespace crosslane::base
