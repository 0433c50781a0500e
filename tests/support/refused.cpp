// See refused.h.
#include "support/refused.h"

#include "support/check.h"

#include <mpi.h>

#include <array>
#include <cctype>
#include <utility>

namespace crosslane::tests {
namespace {

bool names(std::string_view text, std::string_view word) {
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const auto end = at + word.size();
    if ((at == 0 || !letter(text[at - 1])) && (end == text.size() || !letter(text[end]))) return true;
  }
  return false;
}

}  // namespace

Allocation::Allocation(std::size_t bytes) { CROSSLANE_CUDA(cuMemAlloc(&address_, bytes)); }

void Allocation::free() {
  if (std::exchange(live_, false)) CROSSLANE_CUDA(cuMemFree(address_));
}

void expect(int result, int error_class, std::initializer_list<std::string_view> words) {
  int got = MPI_SUCCESS, length = 0;
  MPI_Error_class(result, &got);
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  MPI_Error_string(result, text.data(), &length);
  const std::string_view message(text.data(), static_cast<std::size_t>(length));
  CROSSLANE_CHECK(got == error_class, "class {}, expected {}: {}", got, error_class, message);
  for (const auto word : words) CROSSLANE_CHECK(names(message, word), "\"{}\" is not named: {}", word, message);
}

void expect_refused(int result, std::initializer_list<std::string_view> words) {
  expect(result, MPI_ERR_BUFFER, words);
}

}  // namespace crosslane::tests
