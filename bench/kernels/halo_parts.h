// The boxes of an array that a halo exchange sends or receives, one behind the other in a buffer, and which cell of the array a place
// of that buffer is: one text for the GPU's kernels and for the host.
#pragma once

#ifdef __CUDACC__
#define CROSSLANE_BENCH_BOTH __host__ __device__
#else
#define CROSSLANE_BENCH_BOTH
#endif

namespace crosslane::bench {

/// A box of cells, rows last: where it starts in the array and in the buffer, and how far it reaches.
struct HaloBox {
  unsigned first[3], size[3];
  unsigned long long at;
};

/// At most 26 boxes, in the order of their places in the buffer, of an array of `edge` cells.
struct HaloParts {
  static constexpr int most = 26;
  HaloBox box[most];
  unsigned edge[3];
  int count;
  unsigned long long cells;  // of all boxes together
};

/// The cell of the array that place `i` of the buffer is.
CROSSLANE_BENCH_BOTH inline unsigned long long cell_of(const HaloParts& parts, unsigned long long i) {
  int which = 0;
  while (which + 1 < parts.count && parts.box[which + 1].at <= i) ++which;
  const HaloBox& box = parts.box[which];
  unsigned within = static_cast<unsigned>(i - box.at);
  const unsigned z = within % box.size[2];
  within /= box.size[2];
  const unsigned y = within % box.size[1], x = within / box.size[1];
  return (static_cast<unsigned long long>(box.first[0] + x) * parts.edge[1] + box.first[1] + y) * parts.edge[2] +
         box.first[2] + z;
}

}  // namespace crosslane::bench
