// See contents.h.
#include "layout/contents.h"

#include "base/error.h"

#include <cstddef>
#include <stdexcept>

namespace crosslane::layout {
namespace {

void check_type(int code, const char* call) {
  if (code != mpi::success) {
    throw base::Error(base::ErrorClass::type, "{} failed with MPI error code {}: is the datatype's handle valid?", call,
                      code);
  }
}

// The next so many numbers of a list; there may be millions. Throws std::out_of_range where they are not there.
template <class Number, class From>
std::vector<Number> taken(const std::vector<From>& from, std::size_t& next, std::size_t how_many) {
  if (how_many > from.size() - next) throw std::out_of_range("a datatype's contents");
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(next);
  next += how_many;
  return {first, first + static_cast<std::ptrdiff_t>(how_many)};
}

}  // namespace

bool Envelope::predefined() const noexcept {
  switch (combiner) {
    case mpi::Combiner::named:
    case mpi::Combiner::f90_real:
    case mpi::Combiner::f90_complex:
    case mpi::Combiner::f90_integer:
    case mpi::Combiner::value_index:
      return true;
    default:
      return false;
  }
}

Envelope envelope_of(const mpi::Functions& below, MPI_Datatype type) {
  Envelope envelope;
  int combiner = 0;
  if (below.Type_get_envelope_c != nullptr) {
    // It answers for both forms; the plain procedure must not be asked about types made with large counts.
    check_type(below.Type_get_envelope_c(type, &envelope.integers, &envelope.addresses, &envelope.counts,
                                         &envelope.types, &combiner),
               "MPI_Type_get_envelope_c");
  } else {
    int integers = 0;
    int addresses = 0;
    int types = 0;
    check_type(below.Type_get_envelope(type, &integers, &addresses, &types, &combiner), "MPI_Type_get_envelope");
    envelope.integers = integers;
    envelope.addresses = addresses;
    envelope.types = types;
  }
  envelope.combiner = mpi::combiner(combiner);
  return envelope;
}

Contents::Contents(const mpi::Functions& below, MPI_Datatype type, const Envelope& envelope)
    : integers_(static_cast<std::size_t>(envelope.integers)),
      addresses_(static_cast<std::size_t>(envelope.addresses)),
      counts_(static_cast<std::size_t>(envelope.counts)),
      types_(static_cast<std::size_t>(envelope.types)) {
  if (below.Type_get_envelope_c != nullptr) {
    check_type(below.Type_get_contents_c(type, envelope.integers, envelope.addresses, envelope.counts, envelope.types,
                                         integers_.data(), addresses_.data(), counts_.data(), types_.data()),
               "MPI_Type_get_contents_c");
  } else {
    check_type(
        below.Type_get_contents(type, static_cast<int>(envelope.integers), static_cast<int>(envelope.addresses),
                                static_cast<int>(envelope.types), integers_.data(), addresses_.data(), types_.data()),
        "MPI_Type_get_contents");
  }
}

std::int64_t Contents::count() { return counts_.empty() ? integers_.at(next_integer_++) : counts_.at(next_count_++); }

std::int64_t Contents::address() {
  return counts_.empty() ? addresses_.at(next_address_++) : counts_.at(next_count_++);
}

std::vector<int> Contents::integers(std::size_t how_many) { return taken<int>(integers_, next_integer_, how_many); }

std::vector<std::int64_t> Contents::counts(std::size_t how_many) {
  return counts_.empty() ? taken<std::int64_t>(integers_, next_integer_, how_many)
                         : taken<std::int64_t>(counts_, next_count_, how_many);
}

std::vector<std::int64_t> Contents::addresses(std::size_t how_many) {
  return counts_.empty() ? taken<std::int64_t>(addresses_, next_address_, how_many)
                         : taken<std::int64_t>(counts_, next_count_, how_many);
}

}  // namespace crosslane::layout
