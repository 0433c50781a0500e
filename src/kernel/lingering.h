// Kernels of a team that stay for a while when their call is over, and carry out the next ones without a launch: a launch, and the way from
// it to a kernel's first instruction, are half of what a short blocking call takes. The host tells them what to do by ringing: through pinned
// memory. Members that linger and members that launch may meet in a call. It must not know when staying pays.
//
// Who rings and who leaves may miss each other, so both write, then look at what the other one has written: one of them at least sees it. Rings
// are counted, and no two launches wait for the same one (a launch counts as one); `state` only grows.
//
//   state                written by   what the host that has rung r, and looks behind that, however late, knows
//   less than leaving(r) -            the kernel has not said that it leaves: it will hear
//   leaving(r)           kernel       it is about to leave, and looks once more: what it says next tells if it has heard
//   left(r)              kernel       it is gone, or going, and has not heard
//   heard(r), or more    kernel       it has heard: it says so where it was about to leave, or it has waited for a later ring since
//
// A ring is written whole, in packets as those of wire.h, whose flag tells its number. Block 0 alone looks at host memory, where looks of
// several would queue, and passes on what it hears, or that it leaves, through the GPU's, in packets, too. It does so only when the call before
// is over, as the host that has rung knows, and who leaves sees by `launches`: so all blocks have read what it passed on before. (Behind a
// launch's own call nothing was passed on before.)
//
//   own told[k], flag of ring r     word k of what it heard by ring r; or the value for `done` is 0: it has left, heard or not
//   any other flag                  of rings before: who leaves writes all
//
// What a call brings beyond the words that each one brings (told_also()) comes in packets, too, which are looked at only where those tell of
// them: so no look takes longer for it.
//
// Calls of one launch follow each other as launches do: each tells the host when it is over, so `done` must not be null, and by that releases
// what its blocks did. None acquires what was stored since the one before, which takes a way to memory and back: calls load past the
// multiprocessor's cache instead.
#pragma once

#include "kernel/team.h"
#include "kernel/told.h"
#include "kernel/wire.h"

#include <cstddef>
#include <cstdint>

namespace crosslane::kernel {

/// Pinned host memory, zeroed at its making.
struct Bell {
  /// Never 0, which is what new memory holds; neighbours differ.
  CROSSLANE_DEVICE static constexpr Packets::Flag flag_of(std::uint64_t ring) {
    return static_cast<Packets::Flag>(1 + ring % 0xffffffffU);
  }
  CROSSLANE_DEVICE static constexpr std::uint64_t leaving(std::uint64_t ring) { return ring << 2 | 1; }
  CROSSLANE_DEVICE static constexpr std::uint64_t left(std::uint64_t ring) { return ring << 2 | 2; }
  CROSSLANE_DEVICE static constexpr std::uint64_t heard(std::uint64_t ring) { return ring << 2 | 3; }

  /// Written by the host: the value for `done`, 0 to leave at once; and the words of told.h.
  alignas(128) Word16 request[told_room(most_members)];
  alignas(128) std::uint64_t state;  ///< Written by kernels.
};

struct Stay {
  Bell* bell;                 ///< As the GPU knows it.
  std::uint64_t rung;         ///< The last ring before.
  std::uint64_t nanoseconds;  ///< For how long, after each call.
  /// Not 0: the launch's own call has nothing to do, and the kernel is rung only once that is over. Block 0 leaves in its time whether the
  /// others run or not: what fits on the GPU in part only must not stay for ever.
  std::uint64_t idle;
};

template <class First>
struct LingeringParameters {
  First first;  ///< Its call, and what is alike in all.
  Stay stay;
};

template <class F>
struct Lingering {
  using Mine = typename F::Parameters;
  using Parameters = LingeringParameters<Mine>;
  static_assert(sizeof(Mine) % 8 == 0);
  static_assert(1 + told_words<Mine>(1) <= told_room(1) &&
                1 + told_words<Mine>(most_members) + most_told_also<Mine> <= told_room(most_members));

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    // In shared memory, where those of each call take their place.
    auto& mine = *block.template shared<Mine>();
    auto* const words = reinterpret_cast<std::uint64_t*>(&mine);
    const auto* const first = reinterpret_cast<const std::uint64_t*>(&p.first);
    block.for_each(sizeof(Mine) / 8, [&](std::uint64_t k) { words[k] = first[k]; });
    const std::uint32_t members = p.first.frame.members, told = 1 + told_words<Mine>(members);
    Control& own = *p.first.frame.control[p.first.frame.me];
    constexpr std::uint32_t done_value = offsetof(Frame, done_value) / 8;
    const auto place = [&](std::uint64_t k) {
      return &words[k == 0 ? done_value : told_place<Mine>(static_cast<std::uint32_t>(k) - 1, members)];
    };
    for (std::uint64_t ring = p.stay.rung + 1;; ++ring) {
      block.barrier();
      const std::uint64_t launches = block.load_now(&own.launches);
      // Its threads meet before its last one ends it, by words that stay as they are until then: see hear().
      F{}(block.uncached(), mine);
      const Packets::Flag flag = Bell::flag_of(ring);
      if (block.index() != 0) {
        // For as long as block 0 stays, which tells when it leaves.
        const bool heard = block.all_of(told, [&](std::uint64_t k) {
          auto patience = block.patience({~std::uint64_t{0}, nullptr});
          Word16 packet = block.load_packet(&own.told[k]);
          while (!Packets::complete(block, packet, flag)) {
            if (patience.over()) return false;
            packet = block.load_packet(&own.told[k]);
          }
          *place(k) = Packets::word(packet, 0);
          return true;
        });
        if (!heard || words[done_value] == 0) return;
        hear_also(block, &own.told[told], flag, mine);
      } else {
        const bool idle = p.stay.idle != 0 && ring == p.stay.rung + 1;
        const bool stays =
            hear(block, p.stay, ring, told, place, [&] { return idle || block.load_now(&own.launches) != launches; }) &&
            words[done_value] != 0;
        if (stays) hear_also(block, &p.stay.bell->request[told], flag, mine);
        if (block.count() != 1 || !stays) {
          const ToldAlso also = told_also(mine);
          block.for_each(stays ? told + also.words : told_room(most_members), [&](std::uint64_t k) {
            const std::uint64_t word = !stays ? 0 : k < told ? *place(k) : words[also.begin + k - told];
            Packets::store(block, &own.told[k], 0, &word, flag);
          });
        }
        if (!stays) return;
      }
    }
  }

 private:
  // False when its time is over, which begins when the call before `is_over` for all blocks.
  template <class B, class Place, class Over>
  CROSSLANE_DEVICE static bool hear(const B& block, const Stay& stay, std::uint64_t ring, std::uint32_t told,
                                    Place place, Over is_over) {
    const Packets::Flag flag = Bell::flag_of(ring);
    const auto heard = [&] {
      return block.all_of(told, [&](std::uint64_t k) {
        const Word16 packet = block.load_packet(&stay.bell->request[k]);
        const bool whole = Packets::complete(block, packet, flag);
        // Not before: another thread may still be ending the call by the words of now. Who has rung knows that it is over.
        if (whole) *place(k) = Packets::word(packet, 0);
        return whole;
      });
    };
    auto time = block.alarm(stay.nanoseconds);
    bool over = false;  // known to the thread that looks
    do {
      if (heard()) return true;
    } while (block.all_of(1, [&](std::uint64_t) {
      over = over || is_over();
      return !over || !time.rings();
    }));
    say(block, stay, Bell::leaving(ring));
    const bool late = heard();
    say(block, stay, late ? Bell::heard(ring) : Bell::left(ring));
    return late;
  }

  // They come without fail: who writes the words that tell of them writes these just before or behind.
  template <class B>
  CROSSLANE_DEVICE static void hear_also(const B& block, const Word16* packets, Packets::Flag flag, Mine& mine) {
    if constexpr (most_told_also<Mine> != 0) {
      const ToldAlso also = told_also(mine);
      if (also.words == 0) return;
      auto* const words = reinterpret_cast<std::uint64_t*>(&mine) + also.begin;
      static_cast<void>(block.all_of(also.words, [&](std::uint64_t k) {
        auto patience = block.patience({~std::uint64_t{0}, nullptr});
        Word16 packet = block.load_packet(&packets[k]);
        while (!Packets::complete(block, packet, flag) && !patience.over()) packet = block.load_packet(&packets[k]);
        words[k] = Packets::word(packet, 0);
        return true;
      }));
    }
  }

  // By one thread, before whatever others of the block look at behind it.
  template <class B>
  CROSSLANE_DEVICE static void say(const B& block, const Stay& stay, std::uint64_t state) {
    block.for_each(1, [&](std::uint64_t) { block.store_and_fence(&stay.bell->state, state); });
    block.barrier();
  }
};

}  // namespace crosslane::kernel
