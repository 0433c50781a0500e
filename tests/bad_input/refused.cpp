// See refused.h.
#include "bad_input/refused.h"

#include "support/plain_mpi.h"

#include <array>
#include <cctype>

namespace crosslane::tests {
namespace {

// True if `word` stands in `text` by itself: "buf" does not stand in "sendbuf".
bool names(std::string_view text, std::string_view word) {
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const auto end = at + word.size();
    if ((at == 0 || !letter(text[at - 1])) && (end == text.size() || !letter(text[end]))) return true;
  }
  return false;
}

}  // namespace

void expect(int result, int error_class, std::initializer_list<std::string_view> words) {
  int got = MPI_SUCCESS;
  MPI_Error_class(result, &got);
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  const std::string_view message(text.data(), static_cast<std::size_t>(length));
  CROSSLANE_CHECK(got == error_class, "class {}, expected {}: {}", got, error_class, message);
  for (const auto word : words) CROSSLANE_CHECK(names(message, word), "\"{}\" is not named: {}", word, message);
}

void still_usable(const Program& program) {
  CROSSLANE_STEP("communication after the errors");
  constexpr int bytes = 100000;
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  Memory out(MemoryKind::device, bytes), in(MemoryKind::device, bytes);
  out.write(pattern(mix(program.rank), out.size()));
  CROSSLANE_MPI(MPI_Sendrecv(out.data(), bytes, MPI_BYTE, right, 2, in.data(), bytes, MPI_BYTE, left, 2, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.read() == pattern(mix(left), in.size()), "from rank {}", left);
}

void meet(const Program& program) {
  for (int round = 0; round < 4; ++round) still_usable(program);
}

}  // namespace crosslane::tests
