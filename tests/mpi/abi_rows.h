// One fact about an ABI, so that the translation unit with the real <mpi.h> and the one with ours can be compared.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>

using Facts = std::map<std::string, std::uint64_t>;

/// What the real header says.
Facts real_facts();

/// What src/mpi says.
Facts our_facts();

/// A handle or constant as bits: integers as int, pointers as they are.
template <class Value>
std::uint64_t bits_of(Value value) {
  if constexpr (sizeof(Value) == sizeof(std::uint32_t)) {
    return static_cast<std::uint32_t>(value);
  } else {
    static_assert(sizeof(Value) == sizeof(std::uint64_t));
    return std::bit_cast<std::uint64_t>(value);
  }
}
