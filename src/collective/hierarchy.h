// COLL 4.2.1, `hierarchy(x,y)`: the members on one GPU combine by x with one of them, these leaders by y among the GPUs; the result comes
// down the same way. Each level has its own kind of tree, so that what links have in common decides who goes over them.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::hierarchy {

[[nodiscard]] bool supports(const Shape& shape, const TeamFacts& facts);

[[nodiscard]] engine::Task<> run_gsb_gsb(const DrivenCall& call);
[[nodiscard]] engine::Task<> run_gsb_btb(const DrivenCall& call);
[[nodiscard]] engine::Task<> run_btb_gsb(const DrivenCall& call);
[[nodiscard]] engine::Task<> run_btb_btb(const DrivenCall& call);

}  // namespace crosslane::collective::hierarchy
