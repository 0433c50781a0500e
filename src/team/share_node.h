// How the ranks of a node come to share a directory: the leader makes a segment, tells the others, and either all have it
// or the next method is tried. It must not know what the directory is used for.
#pragma once

#include "share/directory.h"
#include "team/messenger.h"
#include "topology/node_map.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace crosslane::team {

struct NodeRequest {
  const Messenger& messenger;
  const topology::NodeMap& nodes;
  int rank;                             ///< In the world.
  std::array<std::uint64_t, 2> cookie;  ///< The job's.
  share::Shape shape;                   ///< `ranks` is set here.
  std::span<const share::Method> methods;
};

/// A task of every rank of the node. The directory that all of them have, with no name left anywhere; nothing, on all of
/// them, if no method works, and `reason` says why (on the leader: each method's own reason).
engine::Task<std::optional<share::Directory>> share_node(NodeRequest request, std::string& reason);

/// A directory of one rank's own, for a node that cannot share.
share::Directory private_directory(const NodeRequest& request);

}  // namespace crosslane::team
