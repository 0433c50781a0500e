// See direct_buffers.h.
#include "interpose/direct_buffers.h"

#include "gpu/context.h"
#include "gpu/copy.h"

#include <utility>

namespace crosslane::interpose {

using collective::Collective;

DirectBuffers::DirectBuffers(Process& process, team::Team& team, const CollectiveCall& call, const Role& role,
                             bool shows)
    : home_(*team.connection().home),
      // The root of a broadcast only gives: its buffer may be read by others meanwhile, or not be writable.
      gives_(role.shape.collective == Collective::broadcast && team.me() == role.shape.root) {
  const bool blocks = uneven(role.shape.collective);
  const bool show =
      shows && collective::worth_showing(role.shape, team.size(), role.receive ? role.receive->extent.bytes() : 0);
  // What others may read has to be there when this rank arrives.
  const auto lift = [&](Lifted& buffer) {
    side_.lifts = !show && buffer.enqueues();
    if (side_.lifts) {
      buffer.lift(team.connection().queue());
    } else {
      buffer.lift();
    }
  };
  if (role.receive)
    receive_.emplace(process, home_, call.call, role.receive->argument, role.receive->base, role.receive->extent);
  if (role.send) send_.emplace(process, home_, call.call, role.send->argument, role.send->base, role.send->extent);
  if (receive_) {
    receive_->make_room();
    side_.buffers.receive = receive_->data();
    // In place of what is sent nobody may write before it is.
    const bool sent = role.in_place && role.shape.collective == Collective::alltoallv;
    if (show && !sent) side_.receive = receive_->show();
  }
  if (send_) {
    send_->make_room();
    lift(*send_);
    side_.buffers.send = send_->data();
    if (show && (!blocks || combines(role.shape.collective))) side_.send = send_->show();
    // MPI_IN_PLACE at the root of a scatter: its block stays where it is.
    if (!receive_) {
      const auto own = static_cast<std::size_t>(team.me()) * role.shape.bytes;
      if (role.shape.collective == Collective::scatter) side_.buffers.receive = send_->data() + own;
      if (role.shape.collective == Collective::scatterv) side_.buffers.receive = send_->data();
    }
  } else if (role.in_place && receive_) {
    lift(*receive_);
    if (role.is_saved()) {
      const std::size_t bytes = role.receive->extent.bytes();
      kept_.emplace(process, home_, call.call, bytes);
      const gpu::ContextScope scope(home_.driver(), home_.context());
      gpu::copy_async(kept_->data(), receive_->data(), bytes, team.connection().queue());
      side_.buffers.send = kept_->data();
    } else {
      side_.buffers.send = receive_->data() + role.in_place_offset;
      side_.send = side_.receive;
      side_.send.offset += role.in_place_offset;
    }
  }
  if (blocks) {
    side_.pieces =
        pieces_of(role, {team.size(), team.me()}, send_ && send_->is_buffer(), receive_ && receive_->is_buffer());
  }
  if (receive_ && !gives_ && receive_->enqueues()) {
    side_.lower = [this](gpu::StreamView stream) {
      receive_->lower(stream);
      lowered_ = true;
    };
  }
}

DirectBuffers::~DirectBuffers() {
  if (!over_) return;  // the copies are freed: others, or this GPU, may still use them
  if (send_) send_->give_back();
  if (receive_) receive_->give_back();
  if (kept_) kept_->give_back();
}

void DirectBuffers::lower() {
  over_ = true;
  if (receive_ && !gives_ && !lowered_) receive_->lower();
}

}  // namespace crosslane::interpose
