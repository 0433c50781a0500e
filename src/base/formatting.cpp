// The one place where fmt's engine is compiled: this file alone sees fmt header-only (src/base/CMakeLists.txt), everywhere
// else its functions are declarations. Header-only everywhere cost two thirds of the whole build's time.
// A file that formats containers (fmt/ranges.h) needs the engine itself: give it COMPILE_DEFINITIONS FMT_HEADER_ONLY=1.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace {

// Addresses of inline functions, so that the compiler puts them into this object for the others to find.
[[gnu::used]] std::string (*const vformat)(fmt::string_view, fmt::format_args) = &fmt::vformat;
[[gnu::used]] void (*const vprint)(std::FILE*, fmt::string_view, fmt::format_args) = &fmt::vprint;
[[gnu::used]] auto* const assert_fail = &fmt::detail::assert_fail;
#if FMT_VERSION >= 90000
[[gnu::used]] bool (*const is_printable)(std::uint32_t) =
    &fmt::detail::is_printable;  // where GCC keeps what "{:?}" would need
#endif
#if FMT_VERSION >= 110000
[[gnu::used]] void (*const vprint_buffered)(std::FILE*, fmt::string_view, fmt::format_args) = &fmt::vprint_buffered;
#endif

}  // namespace
