// See bundle.h.
#include "lane/bundle.h"

#include <algorithm>

namespace crosslane::lane {
namespace {

std::size_t bytes_of(const kernel::Part& part) noexcept { return static_cast<std::size_t>(part.items) * part.word; }

// What one side of a copy touches lies in the first `bytes` of periods of so many, counted from `start`; 0: of one.
struct Comb {
  std::uint64_t start, bytes, period;
};

Comb comb_of(const kernel::Part& part, std::uint64_t address, const std::int64_t* stride) noexcept {
  if (part.loops_used == 0) return {address, bytes_of(part), 0};
  Comb comb{address, std::uint64_t{part.divisor[0]} * part.word, 0};
  for (std::uint32_t d = 0; d + 1U < part.loops_used; ++d) {
    const std::int64_t last = (static_cast<std::int64_t>(part.divisor[d + 1]) - 1) * stride[d];
    if (last < 0) comb.start += static_cast<std::uint64_t>(last);
    comb.bytes += static_cast<std::uint64_t>(last < 0 ? -last : last);
  }
  const std::int64_t outer = stride[part.loops_used - 1];
  comb.period = static_cast<std::uint64_t>(outer < 0 ? -outer : outer);
  return comb;
}
Comb written_by(const kernel::Part& part) noexcept { return comb_of(part, part.to, part.to_stride); }
Comb read_by(const kernel::Part& part) noexcept { return comb_of(part, part.from, part.from_stride); }

// Interleaved, such as columns of one matrix: no byte is in both, though each reaches from before the other's end to behind its begin.
bool interleaved(const Comb& a, const Comb& b) noexcept {
  const std::uint64_t period = std::max(a.period, b.period);
  if (std::min(a.period, b.period) != 0 && a.period != b.period) return false;
  if (period == 0 || a.bytes > period || b.bytes > period) return false;
  const std::uint64_t distance =
      b.start >= a.start ? (b.start - a.start) % period : (period - (a.start - b.start) % period) % period;
  return distance >= a.bytes && distance + b.bytes <= period;
}

}  // namespace

bool Bundle::precedes(const kernel::Part& part, const Touched& touched) const noexcept {
  if (parts_.empty()) return false;
  if (parts_.size() == kernel::TogetherParameters::limit || bytes_ + bytes_of(part) > most_bytes_together) return true;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const kernel::Part& before = parts_[i];
    const Touched& other = touched_[i];
    if ((touched.written.meets(other.written) && !interleaved(written_by(part), written_by(before))) ||
        (touched.written.meets(other.read) && !interleaved(written_by(part), read_by(before))) ||
        (touched.read.meets(other.written) && !interleaved(read_by(part), written_by(before))))
      return true;
  }
  return false;
}

void Bundle::add(const kernel::Part& part, const Touched& touched) {
  parts_.push_back(part);
  touched_.push_back(touched);
  bytes_ += bytes_of(part);
}

}  // namespace crosslane::lane
