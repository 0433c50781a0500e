// What comes in chunks, and the ways in which the others are fetched. See receiver.h.
#include "message/receiver.h"

#include "message/sides.h"
#include "mpi/status.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace crosslane::message {
namespace {

// One chunk on its way: where MPI puts it, and what comes after.
struct Slot {
  std::vector<std::byte> plain;  // memory for a buffer on the host
  lane::HostBlock pinned;        // memory for one on the GPU
  std::byte* bounce = nullptr;   // one of these, made at first need
  std::byte* target = nullptr;   // where the chunk under way goes: the buffer itself, or `bounce`
  MPI_Request request{};
  MPI_Status status{};
  engine::Completion arrived;
  engine::Completion copied;
};

}  // namespace

Receiver::Receiver(Means means)
    : mpi_(means.mpi),
      handles_(means.handles),
      world_(means.world),
      engine_(means.engine),
      copier_(means.copier),
      peers_(means.peers),
      put_bytes_(means.put_bytes),
      helper_(std::move(means.helper)),
      look_at_sends_(std::move(means.look_at_sends)) {}

engine::Task<> Receiver::pull(Header header, Buffer buffer, std::shared_ptr<Received> received, ReadingPointer reading,
                              engine::Watch watch) {
  if (reading != nullptr) {
    try {
      auto getting = ferried(reading) ? read_ferried(header, header.offer, 0, buffer, received, watch)
                                      : read(header, buffer, reading, watch);
      co_await std::move(getting);
      if (!ferried(reading)) *received = finish_reading(*reading);
    } catch (...) {
      fail(*reading, std::current_exception());  // where nothing of it has begun
      throw;
    }
    co_return;
  }
  if (header.pieces.blocks != 0) {
    const std::uint64_t piece = co_await read_packed(header, buffer, received, watch);
    if (piece == header.pieces.count(header.bytes)) co_return;
    const auto ticket = header.pieces.ticket(piece);
    std::exception_ptr failure;
    try {
      auto getting = read_ferried(header, ticket, header.pieces.begin(piece), buffer, received, watch);
      co_await std::move(getting);
    } catch (...) {
      failure = std::current_exception();
      peers_->offers().fail(peers_->owner(header), ticket);  // where it has not asked
    }
    end_unread(header, piece + 1);
    if (failure) std::rethrow_exception(failure);
    co_return;
  }
  const std::size_t chunks = header.chunks();
  const std::size_t room = buffer.bytes;
  received->truncated = header.bytes > room;
  std::vector<Slot> slots(std::min(chunk_window, chunks));
  lane::Batch batch(copier_, watch);  // waits for its copies before their slots go
  // An error is thrown behind the loop only: requests write to the slots until they are done, and the sender sends all chunks whatever becomes of
  // them.
  std::exception_ptr failure;
  std::unique_ptr<std::byte[]> waste;  // for chunks behind it
  const bool direct = !buffer.on_gpu && (room == 0 || buffer.layout->dense());
  std::byte* const flat = direct && room != 0 ? lane::byte_at(buffer.address, buffer.layout->true_lb()) : nullptr;
  const auto target_of = [&](Slot& slot, std::size_t chunk) {
    if (direct && header.end(chunk) <= room) return flat + header.begin(chunk);
    if (slot.bounce == nullptr && buffer.on_gpu) {
      slot.pinned = batch.lend(buffer.place, header.chunk_bytes);
      slot.bounce = slot.pinned.data();
    } else if (slot.bounce == nullptr) {
      slot.plain.resize(header.chunk_bytes);
      slot.bounce = slot.plain.data();
    }
    return slot.bounce;
  };
  const auto post = [&](std::size_t chunk) {
    Slot& slot = slots[chunk % chunk_window];
    try {
      slot.target = target_of(slot, chunk);
    } catch (...) {
      failure = std::current_exception();
      if (waste == nullptr) waste.reset(new (std::nothrow) std::byte[header.chunk_bytes]);
      slot.target = waste.get();
    }
    slot.request = handles_.request_null;
    try {
      if (slot.target != nullptr)
        team::check(mpi_,
                    mpi_.Irecv(slot.target, static_cast<int>(header.end(chunk) - header.begin(chunk)), handles_.byte,
                               header.sender, header.tag, world_.messenger().communicator(), &slot.request),
                    "MPI_Irecv");
    } catch (...) {
      failure = std::current_exception();
      slot.request = handles_.request_null;
    }
    slot.arrived = engine::Completion::of(&slot.request, &slot.status);
  };
  const auto deliver = [&](Slot& slot, std::size_t chunk) {
    const std::size_t begin = header.begin(chunk);
    const std::size_t end = std::min<std::size_t>(header.end(chunk), room);
    if (begin >= end || slot.target != slot.bounce) return;
    if (buffer.on_gpu) {
      batch.to_gpu(buffer.place, buffer.address, slot.bounce, *buffer.layout, buffer.count, begin, end,
                   lane::Form::packed);
      slot.copied = batch.completion();
    } else {
      unpack(buffer, slot.bounce, begin, end);
    }
  };
  std::size_t posted = 0;
  while (posted < slots.size()) post(posted++);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    Slot& slot = slots[chunk % chunk_window];
    const int code = co_await slot.arrived;
    const auto expected = static_cast<MPI_Count>(header.end(chunk) - header.begin(chunk));
    if (code != mpi::success || mpi::received_bytes(mpi_, slot.status) != expected) {
      received->failed = true;
    } else if (!failure && !received->failed) {
      try {
        deliver(slot, chunk);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    // The block of the chunk before: its copy ran while MPI moved this one.
    if (chunk == 0 || posted == chunks) continue;
    try {
      if (!failure) co_await written(slots[(chunk - 1) % chunk_window].copied, batch);
    } catch (...) {
      failure = std::current_exception();
    }
    post(posted++);
  }
  try {
    for (std::size_t i = 0; !failure && i < slots.size(); ++i) co_await written(slots[i].copied, batch);
  } catch (...) {
    failure = std::current_exception();
  }
  received->bytes = received->failed ? 0 : std::min<std::size_t>(header.bytes, room);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace crosslane::message
