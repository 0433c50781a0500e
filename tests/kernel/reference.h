// What reductions give, by plain loops on the host in C++'s own types: what kernels are compared with, bit for bit.
#pragma once

#include "kernel/catalogue.h"

#include <cstddef>
#include <random>
#include <vector>

namespace crosslane::test {

using Bytes = std::vector<std::byte>;

/// True where MPI defines the operation for the element.
bool defined(kernel::Op op, kernel::Element element);

/// Random elements: integers of any bits and small ones, reals (sums of which round), some infinite or NaN, pairs with
/// many equal values. Padding is random, too.
Bytes random_elements(kernel::Element element, std::size_t count, std::mt19937_64& engine);

/// inout = in op inout.
void combine(kernel::Op op, kernel::Element element, const Bytes& in, Bytes& inout);

/// The elements with zeros for padding, and one NaN for all: what must be equal bit for bit.
Bytes significant(kernel::Element element, Bytes bytes);

std::vector<kernel::Element> all_elements();
std::vector<kernel::Op> all_ops();

/// "sum of f32", for messages.
const char* name_of(kernel::Op op, kernel::Element element);

}  // namespace crosslane::test
