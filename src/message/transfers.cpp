// The sender's side of transfers, and their end. See transfers.h.
#include "message/transfers.h"

#include "base/error.h"
#include "base/log.h"
#include "message/sides.h"
#include "mpi/status.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <utility>
#include <vector>

namespace crosslane::message {
namespace {

// Shorter ones cost more by themselves than their overlap gives.
constexpr std::size_t least_chunk = std::size_t{64} << 10;
// MPI counts a chunk by int.
constexpr std::size_t most_chunk = std::size_t{1} << 30;

base::Duration milliseconds(double value) {
  return std::chrono::duration_cast<base::Duration>(std::chrono::duration<double, std::milli>(value));
}

}  // namespace

// What a transfer holds until its last chunk is taken. The addresses of requests stay.
struct Transfers::Outgoing {
  struct Sent {
    MPI_Request request{};
    engine::Completion done;
  };
  int to = 0;
  int tag = 0;
  share::Offers::Ticket offer;  // a token's
  std::vector<lane::HostBlock> blocks;
  std::shared_ptr<void> owner;
  std::deque<Sent> sent;
};

Transfers::Transfers(const mpi::Functions& mpi, const mpi::Handles& handles, team::World& world, engine::Engine& engine,
                     lane::Copier& copier, const base::Settings& settings,
                     std::function<engine::HelperThread&()> helper)
    : mpi_(mpi),
      handles_(handles),
      world_(world),
      engine_(engine),
      copier_(copier),
      chunk_bytes_(std::min(settings.chunk_bytes, most_chunk)),
      patience_(milliseconds(settings.patience_ms)),
      peers_(world.directory().ranks() > 1 && world.node_looks() && settings.direct_bytes != 0
                 ? std::make_unique<PeerMemory>(world, engine, copier, settings)
                 : nullptr),
      start_helper_(std::move(helper)),
      ferrying_(peers_.get(), [this]() -> engine::HelperThread& { return this->helper(); }),
      lookout_(peers_.get(), copier, ferrying_, [this]() -> engine::HelperThread& { return this->helper(); }),
      receiver_({.mpi = mpi,
                 .handles = handles,
                 .world = world,
                 .engine = engine,
                 .copier = copier,
                 .peers = peers_.get(),
                 .put_bytes = settings.put_bytes,
                 .helper = [this]() -> engine::HelperThread& { return this->helper(); },
                 .look_at_sends = [this] { look_if_asked(); }}) {}

engine::HelperThread& Transfers::helper() {
  engine::HelperThread* helper = helper_.load(std::memory_order_acquire);
  if (helper == nullptr) helper_.store(helper = &start_helper_(), std::memory_order_release);
  return *helper;
}

bool Transfers::has_helper() noexcept {
  try {
    [[maybe_unused]] const engine::HelperThread& started = helper();
    return true;
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "messages are not offered, as no helper thread would look after them: {}",
              error.what());
    return false;
  }
}

std::optional<Header> Transfers::open(std::size_t bytes) {
  const auto tag = tags_.take();
  if (!tag) return std::nullopt;
  std::optional<Header> opened(std::in_place);  // it is long: nobody shall move it
  Header& header = *opened;
  header.cookie = world_.cookie();
  header.bytes = bytes;
  header.chunk_bytes = std::min(chunk_bytes_, std::max(least_chunk, bytes / chunk_window));
  header.sender = world_.rank();
  header.tag = *tag;
  return opened;
}

void Transfers::close(const Header& header) {
  if (header.offer) close_offer(header.offer);
  if (header.pieces.blocks != 0) peers_->parcels().release(header.pieces, header.bytes, 0, true);
  tags_.give_back(header.tag);
}

void Transfers::post(Outgoing& outgoing, const std::byte* data, std::size_t bytes) const {
  auto& sent = outgoing.sent.emplace_back();
  team::check(mpi_,
              mpi_.Issend(data, static_cast<int>(bytes), handles_.byte, outgoing.to, outgoing.tag,
                          world_.messenger().communicator(), &sent.request),
              "MPI_Issend");
  sent.done = engine::Completion::of(&sent.request);
}

// False if the receiver, which has the header, let us wait too long. Before that any wait is the application's own.
engine::Task<bool> Transfers::moved(engine::Completion completion, engine::Completion matched) const {
  if (!matched.done()) co_await either(completion, matched);
  if (!completion.done()) co_await completion.or_after(patience_);
  co_return completion.done();
}

engine::Task<> Transfers::send(Buffer buffer, Header header, int to, engine::Completion matched, engine::Watch watch,
                               std::shared_ptr<void> alive) {
  return send_chunks(std::move(buffer), std::move(header), to, std::move(matched), {}, watch, std::move(alive));
}

engine::Task<> Transfers::send_chunks(Buffer buffer, Header header, int to, engine::Completion matched, Manner manner,
                                      engine::Watch watch, std::shared_ptr<void> alive) {
  struct Slot {
    std::byte* data = nullptr;
    engine::Completion copied;
    std::size_t sent = 0;  // 1 + its last message in outgoing.sent; 0: none
  };
  const auto outgoing = std::make_shared<Outgoing>();
  outgoing->to = to;
  outgoing->tag = header.tag;
  if (header.token != 0) outgoing->offer = header.offer;
  outgoing->owner = buffer.owner;
  const std::size_t chunks = header.chunks();
  std::size_t copied = 0;  // chunks whose copies are enqueued
  bool patient = manner.patient;
  bool is_short = false;  // of host memory for the rest at once: then block by block, however long that takes
  std::exception_ptr failure;
  engine::Completion last_copy;
  lane::Batch batch(copier_, watch);
  const auto length = [&](std::size_t chunk) { return header.end(chunk) - header.begin(chunk); };
  const auto copy = [&](std::byte* to_host, std::size_t begin, std::size_t end) {
    batch.to_host(buffer.place, to_host, buffer.address, *buffer.layout, buffer.count, begin, end, lane::Form::packed);
    return last_copy = batch.completion();
  };
  try {
    std::vector<Slot> slots;
    const auto is_free = [&](const Slot& slot) { return slot.sent == 0 || outgoing->sent[slot.sent - 1].done.done(); };
    while (outgoing->sent.size() < chunks) {
      if (!patient && !is_short && buffer.on_gpu) {
        const std::size_t begin = header.begin(copied);
        try {
          outgoing->blocks.push_back(batch.lend(buffer.place, header.bytes - begin));
        } catch (const std::exception& error) {
          is_short = base::is_shortage(error);
          if (!is_short) throw;
          continue;
        }
        std::byte* const rest = outgoing->blocks.back().data();
        co_await written(copy(rest, begin, header.bytes), batch);
        while (outgoing->sent.size() < chunks) {
          const std::size_t chunk = outgoing->sent.size();
          post(*outgoing, rest + (header.begin(chunk) - begin), length(chunk));
        }
        break;
      }
      const std::size_t posted = outgoing->sent.size();
      if (!buffer.on_gpu) {  // a host copy needs no patience: MPI is given all of it
        post(*outgoing, buffer.address + header.begin(posted), length(posted));
        continue;
      }
      // Copies run ahead of the messages as far as blocks are free.
      while (copied < chunks && copied < posted + chunk_window) {
        if (copied == slots.size() && slots.size() < chunk_window) {
          outgoing->blocks.push_back(batch.lend(buffer.place, header.chunk_bytes));
          slots.push_back({outgoing->blocks.back().data(), {}, 0});
        }
        Slot& slot = slots[copied % chunk_window];
        if (!is_free(slot)) break;
        slot.copied = copy(slot.data, header.begin(copied), header.end(copied));
        ++copied;
      }
      Slot& slot = slots[posted % chunk_window];
      if (copied == posted) {
        const engine::Completion before = outgoing->sent[slot.sent - 1].done;
        if (is_short)
          co_await before;
        else
          patient = co_await moved(before, matched);
        continue;
      }
      co_await written(slot.copied, batch);
      post(*outgoing, slot.data, length(posted));
      slot.sent = outgoing->sent.size();
    }
    for (std::size_t i = 0; patient && i < outgoing->sent.size(); ++i)
      patient = co_await moved(outgoing->sent[i].done, matched);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    // Copies under way still write to the blocks; a broken GPU may never end them.
    co_await last_copy.or_after(std::chrono::seconds{1});
    while (outgoing->sent.size() < chunks) post(*outgoing, nullptr, 0);
    patient = false;
  }
  if (manner.matched) co_await matched;
  if (patient) {
    close(*outgoing);
  } else {
    outstanding_.fetch_add(1, std::memory_order_relaxed);
    engine_.spawn(finish_sending(outgoing, matched, std::move(alive)));
  }
  if (failure) std::rethrow_exception(failure);
}

engine::Task<> Transfers::finish_sending(std::shared_ptr<Outgoing> outgoing, engine::Completion matched,
                                         [[maybe_unused]] std::shared_ptr<void> alive) {
  for (auto& sent : outgoing->sent) co_await sent.done;
  co_await matched;
  close(*outgoing);
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
}

void Transfers::close(const Outgoing& outgoing) {
  if (outgoing.offer) close_offer(outgoing.offer);
  tags_.give_back(outgoing.tag);
}

// Every rank is here once the first barrier is done, and has completed its receives: what is still under way nobody will
// ask for. Each rank takes such chunks until all ranks' own are gone, which the second barrier tells (Hoefler, Siebert,
// Lumsdaine: "Scalable communication protocols for dynamic sparse data exchange", PPoPP 2010). A rank that has died comes to neither: those of its
// node go on once all of them that live are here. What others still receive MPI has by then, which needs nothing of this but the memory.
engine::Task<> Transfers::drain() {
  const MPI_Comm communicator = world_.messenger().communicator();
  MPI_Request barrier{};
  team::check(mpi_, mpi_.Ibarrier(communicator, &barrier), "MPI_Ibarrier");
  const engine::Completion all_here = engine::Completion::of(&barrier);
  world_.directory().have_received();
  while (!all_here.done()) {
    co_await all_here.or_after(between_questions);
    if (!all_here.done() && bereaved()) co_return;
  }
  ferrying_.all_received();
  std::vector<std::byte> scratch;
  bool told = false;
  engine::Completion all_gone;
  base::Time question = base::now() + between_questions;
  while (!told || !all_gone.done()) {
    if (base::now() >= question) {
      if (bereaved()) co_return;
      question = base::now() + between_questions;
    }
    if (!told && outstanding_.load(std::memory_order_relaxed) == 0) {
      team::check(mpi_, mpi_.Ibarrier(communicator, &barrier), "MPI_Ibarrier");
      all_gone = engine::Completion::of(&barrier);
      told = true;
    }
    int there = 0;
    MPI_Message message{};
    MPI_Status status{};
    team::check(mpi_, mpi_.Improbe(mpi::any_source, mpi::any_tag, communicator, &there, &message, &status),
                "MPI_Improbe");
    if (there != 0) {
      scratch.resize(static_cast<std::size_t>(mpi::received_bytes(mpi_, status)));
      MPI_Request request{};
      team::check(mpi_,
                  mpi_.Imrecv(scratch.data(), static_cast<int>(scratch.size()), handles_.byte, &message, &request),
                  "MPI_Imrecv");
      co_await engine::Completion::of(&request);
      continue;
    }
    const auto pause = engine::Completion::after(std::chrono::microseconds{20});
    if (told) {
      co_await either(all_gone, pause);
    } else {
      co_await pause;
    }
  }
}

bool Transfers::bereaved() {
  const auto& directory = world_.directory();
  const auto dead = directory.only_dead();
  if (!dead) return false;
  bereaved_ = true;
  base::log(base::Topic::warning,
            "MPI_Finalize: the process of rank {} of MPI_COMM_WORLD has ended: what is on its way to it is left there",
            directory.record(*dead).world_rank);
  return true;
}

bool Transfers::finish() {
  int looking = 0;
  for (int rank = 0; rank < world_.size(); ++rank) looking += world_.looks_at_receives(rank) ? 1 : 0;
  // Elsewhere nobody was ever sent a header.
  if (looking != 0 && world_.size() >= 2) engine_.run(drain(), {.call = "MPI_Finalize"});
  stop_looking();
  return !bereaved_;
}

}  // namespace crosslane::message
