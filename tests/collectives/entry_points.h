// The forms in which MPI offers a collective (blocking, nonblocking, persistent; with large counts), resolved by name at
// run time: which of them exist depends on the MPI, and where it lacks one a preloaded library may have it.
// It must not know CUDA or Crosslane.
#pragma once

#include <mpi.h>

#include <string>

namespace crosslane::tests {

enum class Form { blocking, nonblocking, persistent };

/// One procedure, such as MPI_Iallreduce_c.
struct EntryPoint {
  std::string name;
  Form form = Form::blocking;
  bool large = false;
  void* address = nullptr;  ///< null where neither the MPI nor a preloaded library has it

  /// `operation` is the blocking form's name without MPI_.
  static EntryPoint find(const std::string& operation, Form form, bool large);

  /// Calls it with the operation's arguments up to the communicator; `request` is written by the nonblocking and persistent forms.
  template <class... Arguments>
  int operator()(MPI_Request* request, Arguments... arguments) const {
    switch (form) {
      case Form::blocking:
        return reinterpret_cast<int (*)(Arguments...)>(address)(arguments...);
      case Form::nonblocking:
        return reinterpret_cast<int (*)(Arguments..., MPI_Request*)>(address)(arguments..., request);
      case Form::persistent:
        break;
    }
    return reinterpret_cast<int (*)(Arguments..., MPI_Info, MPI_Request*)>(address)(arguments..., MPI_INFO_NULL,
                                                                                    request);
  }
};

}  // namespace crosslane::tests
