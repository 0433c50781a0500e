// The exchange between a node's leader and its members:
//
//   leader                                             member
//   make a segment; send its token          ---->      open it
//   collect the answers                     <----      1 opened, 0 not
//   all 1: remove the name; verdict 1       ---->      1: keep it; 0: drop it and expect another token
//   a token of no method ends it            ---->      give up
#include "team/share_node.h"

#include "base/error.h"

#include <utility>

namespace crosslane::team {
namespace {

using share::Directory;
using share::Method;
using share::Segment;
using share::Token;

// One member after the other: the messages are small, so that MPI buffers them, and the slowest counts anyway.
engine::Task<> tell(const Messenger& messenger, std::span<const int> members, std::span<const std::byte> bytes,
                    Tag tag) {
  for (const int member : members) co_await messenger.send(bytes, member, tag);
}

engine::Task<bool> ask(const Messenger& messenger, std::span<const int> members) {
  bool all = true;
  for (const int member : members) {
    std::uint8_t answer = 0;
    co_await messenger.receive(bytes_of(answer), member, Tag::share_answer);
    all = all && answer == 1;
  }
  co_return all;
}

engine::Task<std::optional<Directory>> lead(NodeRequest request, std::span<const int> members, std::string& reason) {
  for (const Method method : request.methods) {
    std::optional<Directory> directory;
    std::optional<Segment> segment;
    try {
      segment.emplace(Segment::create(method, Directory::bytes_for(request.shape), request.cookie));
    } catch (const base::Error& problem) {
      reason += fmt::format("{}{}", reason.empty() ? "" : "; ", problem.what());
    }
    if (!segment) continue;
    const Token token = segment->token();
    directory.emplace(std::move(*segment), request.shape, 0);
    co_await tell(request.messenger, members, bytes_of(token), Tag::share_token);
    const bool all_have_it = co_await ask(request.messenger, members);
    directory->forget();
    const std::uint8_t verdict = all_have_it ? 1 : 0;
    co_await tell(request.messenger, members, bytes_of(verdict), Tag::share_verdict);
    if (all_have_it) co_return directory;
    reason += fmt::format("{}shared memory ({}): not every rank can open it", reason.empty() ? "" : "; ",
                          share::name_of(method));
  }
  const Token none{};
  co_await tell(request.messenger, members, bytes_of(none), Tag::share_token);
  co_return std::nullopt;
}

engine::Task<std::optional<Directory>> follow(NodeRequest request, int leader, int local_rank, std::string& reason) {
  for (;;) {
    Token token{};
    co_await request.messenger.receive(bytes_of(token), leader, Tag::share_token);
    if (token.method == Method::none) co_return std::nullopt;
    std::optional<Directory> directory;
    try {
      directory.emplace(Segment::open(token), request.shape, local_rank);
    } catch (const base::Error& problem) {
      reason += fmt::format("{}{}", reason.empty() ? "" : "; ", problem.what());
    }
    const std::uint8_t answer = directory ? 1 : 0;
    std::uint8_t verdict = 0;
    co_await request.messenger.send(bytes_of(answer), leader, Tag::share_answer);
    co_await request.messenger.receive(bytes_of(verdict), leader, Tag::share_verdict);
    if (verdict == 1) co_return directory;
  }
}

}  // namespace

engine::Task<std::optional<Directory>> share_node(NodeRequest request, std::string& reason) {
  const auto members = request.nodes.members(request.nodes.node_of(request.rank));
  request.shape.ranks = static_cast<int>(members.size());
  const int local_rank = request.nodes.local_rank(request.rank);
  std::optional<Directory> directory;
  if (local_rank == 0) {
    directory = co_await lead(request, members.subspan(1), reason);
  } else {
    directory = co_await follow(request, members.front(), local_rank, reason);
  }
  if (directory) directory->join(request.rank);
  co_return directory;
}

Directory private_directory(const NodeRequest& request) {
  share::Shape shape = request.shape;
  shape.ranks = 1;
  Directory directory{Segment::unshared(Directory::bytes_for(shape)), shape, 0};
  directory.join(request.rank);
  return directory;
}

}  // namespace crosslane::team
