// See access.h.
#include "one_sided/access.h"
#include "one_sided/plain.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <utility>

// In one of the two forms that MPI 4 has of a call: counts as int, or as MPI_Count.
#if MPI_VERSION >= 4
#define CROSSLANE_EITHER(large, name, ...) ((large) ? MPI_##name##_c(__VA_ARGS__) : MPI_##name(__VA_ARGS__))
#else
#define CROSSLANE_EITHER(large, name, ...) (static_cast<void>(large), MPI_##name(__VA_ARGS__))
#endif

namespace crosslane::tests {
namespace {

constexpr int most_elements_a_type = 64;

// Where the elements are, for reports.
std::string target_text(const Side& side, int to, MPI_Aint displacement, const Type& type, int count) {
  if (to == MPI_PROC_NULL) return fmt::format("{} x {} of MPI_PROC_NULL", count, type.text);
  const MPI_Aint at = displacement * side.shape(to).unit;
  return fmt::format("{} x {} in bytes {} to {} of rank {}", count, type.text, at + type.begin(count),
                     at + type.end(count), to);
}

// Those that may lie at any address.
const Base& any_base(Random& random, bool aligned) {
  static const std::vector<Base> of_one_byte = [] {
    std::vector<Base> result;
    for (const Base& base : bases())
      if (base.extent == 1) result.push_back(base);
    return result;
  }();
  return random.pick(aligned ? bases() : of_one_byte);
}

}  // namespace

Agreed::Agreed(Random& shared)
    : whole_(shared.pick(int_number().commuting())), real_(shared.pick(double_number().commuting())) {}

const Operator& Agreed::operator()(const Number& number) const {
  static const Operator largest{"MPI_MAX", MPI_MAX};
  const bool saturates = number.bytes == 1 && whole_.op == MPI_SUM && left_out().sums_saturate;
  return number.kind == Number::Kind::real ? real_ : saturates ? largest : whole_;
}

Access::Access(Side& side, const Agreed& agreed, bool passive, std::string where)
    : side_(side),
      agreed_(agreed),
      passive_(passive),
      where_(std::move(where)),
      chains_(static_cast<std::size_t>(side.ranks())) {
  for (int rank = 0; rank < side_.ranks(); ++rank) {
    reached_.emplace_back();
    for (const Area& each : side_.shape(rank).areas) reached_.back().push_back(each.begin);
  }
}

void Access::issue(Random& random, int to, bool only_read) {
  if (random.chance(4) && !(passive_ && left_out().proc_null_under_lock)) to = MPI_PROC_NULL;
  if (random.chance(12) && !only_read && from_window(random, to)) return;
  if (to == side_.rank()) {
    if (window_is_origin_) return;
    side_.own_changed = side_.own_changed || !only_read;
  }
  const auto choice = random.below(100);
  const bool atomics = to != side_.rank() || !left_out().atomics_on_oneself;
  if (only_read || choice < 28 || (choice >= 87 && !atomics))
    put_or_get(random, to, false);
  else if (choice < 56)
    put_or_get(random, to, true);
  else if (choice < 76)
    accumulate(random, to, false);
  else if (choice < 87)
    accumulate(random, to, true);
  else if (choice < 94)
    fetch_anywhere(random, to);
  else
    compare_and_swap_anywhere(random, to);
}

// One that this rank may reach, or all.
std::optional<std::size_t> Access::area(Random& random, int to, bool shared, bool numbers) const {
  const auto choice = random.next();
  if (to == MPI_PROC_NULL) return std::nullopt;
  const auto& areas = side_.shape(to).areas;
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < areas.size(); ++i) {
    if (areas[i].owner != (shared ? Area::everybody : side_.rank())) continue;
    if (shared || (areas[i].number != nullptr) == numbers) candidates.push_back(i);
  }
  if (candidates.empty()) return std::nullopt;
  return candidates[choice % candidates.size()];
}

std::optional<MPI_Aint> Access::fit(int to, std::size_t area, const Type& type, int count) {
  const Shape& shape = side_.shape(to);
  std::size_t& reached = reached_[static_cast<std::size_t>(to)][area];
  const auto step = static_cast<MPI_Aint>(std::max<std::size_t>(shape.step(), static_cast<std::size_t>(shape.unit)));
  const MPI_Aint least = std::max<MPI_Aint>(static_cast<MPI_Aint>(reached) - type.begin(count), 0);
  const MPI_Aint at = (least + step - 1) / step * step, end = at + type.end(count);
  if (end > static_cast<MPI_Aint>(shape.areas[area].end)) return std::nullopt;
  reached = static_cast<std::size_t>(end);
  return at / shape.unit;
}

// No elements where there is no room.
Access::Place Access::place(Random& random, int to, std::optional<std::size_t> area, const Base& base, bool plain,
                            bool accumulated) {
  const auto size = random.below(100);
  const auto wish = random.next();
  constexpr std::size_t few = 64, many = 2000;
  std::size_t room = to == MPI_PROC_NULL ? many : 0;
  if (area) {
    const std::size_t end = side_.shape(to).areas[*area].end, reached = reached_[static_cast<std::size_t>(to)][*area];
    room = (end - std::min(end, reached)) / base.extent;
  }
  std::size_t wanted = room / (1 + wish % 2);  // now and then all there is
  if (size < 5)
    wanted = 0;
  else if (size < 80)
    wanted = 1 + wish % few;
  else if (size < 94)
    wanted = 1 + wish % many;
  else
    plain = true;
  for (int elements = static_cast<int>(std::min(wanted, room)); elements > 0; elements /= 2) {
    const int each = plain ? 1 : random_divisor(random, elements, most_elements_a_type);
    Type type = plain ? base_type_of(base) : random_type(random, base, each);
    const int count = elements / each;
    if (count > type.most) continue;
    if (accumulated && type.lb < 0 && left_out().accumulates_below_address) continue;
    if (to == MPI_PROC_NULL) return {0, std::move(type), count, elements};
    if (const auto displacement = fit(to, *area, type, count)) return {*displacement, std::move(type), count, elements};
  }
  return {0, base_type_of(base), 0, 0};
}

Access::Place Access::single(int to, std::optional<std::size_t> area, const Number& number) {
  Place result{0, base_type_of(number.base()), 1, 1};
  if (to == MPI_PROC_NULL) return result;
  const auto displacement = area ? fit(to, *area, result.type, 1) : std::nullopt;
  if (displacement)
    result.displacement = *displacement;
  else
    result.count = result.elements = 0;
  return result;
}

// `number`: it holds small ones of this type; nullptr: any bytes.
Operand Access::operand(Random& random, const Base& base, int elements, const Number* number, bool predefined) {
  const MemoryKind kind = side_.kind(random);
  const auto seed = random.next();
  if (elements == 0 && seed % 4 == 0) return Operand(base.type);
  int each = elements == 0 || predefined ? 1 : random_divisor(random, elements, most_elements_a_type);
  Type type = predefined ? base_type_of(base) : random_type(random, base, each);
  if (elements / each > type.most) {
    each = 1;
    type = base_type_of(base);
  }
  Operand result(kind, std::move(type), elements / each, base.extent == 1 ? seed % 9 : 16 * (seed % 5));
  result.write(number != nullptr ? number->small(seed, result.bytes() / number->bytes) : pattern(seed, result.bytes()));
  return result;
}

Operand Access::one(Random& random, const Number& number) {
  Operand result(side_.kind(random), base_type_of(number.base()), 1, 16 * random.below(5));
  result.write(number.small(random.next(), 1));
  return result;
}

bool Access::may_flush_locally() const {
  return !left_out().flush_local && !(left_out().flush_local_of_gets && got_before_others_);
}

// `get`: MPI_Get, and nothing else.
Access::Pending& Access::begin(Operand origin, Operand result, int to, std::string text, bool get) {
  got_before_others_ = got_before_others_ || (got_ && !get);
  got_ = got_ || get;
  side_.step(fmt::format("{}: {}", where_, text));
  pending_.push_back({std::move(text), to, std::move(origin), std::move(result), Operand(), Type()});
  return pending_.back();
}

void Access::put_or_get(Random& random, int to, bool put) {
  const auto where = area(random, to, false, random.chance(25));
  const Number* const number = where ? side_.shape(to).areas[*where].number : nullptr;
  const bool aligned = to == MPI_PROC_NULL || side_.shape(to).aligned();
  const Base base = number != nullptr ? number->base() : any_base(random, aligned);
  Place target = place(random, to, where, base, random.chance(40), false);
  const bool wished = passive_ && random.chance(30), large = random.chance(15), freed = random.chance(50);
  Operand buffer = operand(random, base, target.elements, put ? number : nullptr);
  const bool gaps = buffer.type() != base.type || target.type.handle != base.type ||
                    std::ranges::find(base.padding, 1) != base.padding.end();
  const bool request = wished && (put || !gaps || !left_out().rget_with_gaps);
  auto text = fmt::format("MPI_{}{}{} of {}, {}", request ? "R" : "", put ? "put" : "get", large ? "_c" : "",
                          buffer.text(), target_text(side_, to, target.displacement, target.type, target.count));
  Pending& call = put ? begin(std::move(buffer), Operand(), to, std::move(text))
                      : begin(Operand(), std::move(buffer), to, std::move(text), !request);
  Operand& mine = put ? call.origin : call.result;
  const MPI_Datatype type = target.type.handle;
  const MPI_Win window = side_.window();
  if (put && request)
    CROSSLANE_MPI(CROSSLANE_EITHER(large, Rput, mine.address(), mine.count(), mine.type(), to, target.displacement,
                                   target.count, type, window, &call.request));
  else if (put)
    CROSSLANE_MPI(CROSSLANE_EITHER(large, Put, mine.address(), mine.count(), mine.type(), to, target.displacement,
                                   target.count, type, window));
  else if (request)
    CROSSLANE_MPI(CROSSLANE_EITHER(large, Rget, mine.address(), mine.count(), mine.type(), to, target.displacement,
                                   target.count, type, window, &call.request));
  else
    CROSSLANE_MPI(CROSSLANE_EITHER(large, Get, mine.address(), mine.count(), mine.type(), to, target.displacement,
                                   target.count, type, window));
  if (freed)
    mine.free_type();
  else
    call.target = std::move(target.type);
}

// Programs exchange the borders of a window that way. A rank's own part of its window is its own to load from, once what it has done to
// that itself is there.
bool Access::from_window(Random& random, int to) {
  if (to == side_.rank() || side_.own_changed) return false;
  window_is_origin_ = true;
  put_own(random, to);
  return true;
}

void Access::put_own(Random& random, int to) {
  const bool numbers = random.chance(25);
  const auto theirs = area(random, to, false, numbers), mine = area(random, side_.rank(), false, numbers);
  if (!mine) return;
  const Base base = numbers ? double_number().base() : any_base(random, false);
  const Area& own = side_.own().areas[*mine];
  const std::size_t room = (own.end - own.begin) / base.extent;
  Place target = place(random, to, theirs, base, random.chance(50), false);
  const bool fits = static_cast<std::size_t>(target.elements) <= room;
  const int count = fits ? target.elements : 0;
  if (!fits) target.count = 0;
  auto text = fmt::format("MPI_Put of {} x {} in bytes from {} of the rank's own window, {}", count, base.name,
                          own.begin, target_text(side_, to, target.displacement, target.type, target.count));
  Pending& call = begin(Operand(), Operand(), to, std::move(text));
  void* const address = side_.address(own.begin);
  CROSSLANE_MPI(
      MPI_Put(address, count, base.type, to, target.displacement, target.count, target.type.handle, side_.window()));
  call.target = std::move(target.type);
}

void Access::accumulate(Random& random, int to, bool get) {
  const auto* const chain = to == MPI_PROC_NULL ? nullptr : &chains_[static_cast<std::size_t>(to)];
  const bool follow = chain != nullptr && chain->has_value() && random.chance(35);
  const bool predefined = get && left_out().get_accumulate_of_derived;
  Number number;
  Operator op;
  Place target;
  if (follow) {
    number = (*chain)->number;
    op = get && random.chance(30) ? no_operation() : (*chain)->op;
    target = {(*chain)->displacement, base_type_of(number.base()), (*chain)->elements, (*chain)->elements};
  } else {
    const bool shared = !get && random.chance(40), plain = random.chance(60) || predefined;
    const auto where = area(random, to, shared, random.chance(30));
    const Number* const fixed = where ? side_.shape(to).areas[*where].number : nullptr;
    const Number& any = any_whole(random, to == MPI_PROC_NULL || side_.shape(to).aligned() ? 8 : 1);
    number = fixed != nullptr ? *fixed : shared ? byte_number() : any;
    op = shared ? agreed_(number) : get && random.chance(20) ? no_operation() : random.pick(number.ordered());
    target = place(random, to, where, number.base(), plain, true);
    if (plain && !shared) start_chain(to, number, op, target);
  }
  constexpr std::size_t much = 4096;
  if (get && left_out().get_accumulate_of_much &&
      static_cast<std::size_t>(target.elements) * number.base().extent > much)
    op = no_operation();
  const bool request = passive_ && random.chance(30), large = random.chance(15), freed = random.chance(50);
  // What is ignored may be missing.
  const bool missing = op.op == MPI_NO_OP && random.chance(50);
  const Number* const small = number.kind == Number::Kind::pair ? nullptr : &number;
  const Base base = number.base();
  Operand origin = missing ? Operand(number.type) : operand(random, base, target.elements, small, predefined);
  Operand result = get ? operand(random, base, target.elements, nullptr, predefined) : Operand();
  auto text =
      fmt::format("MPI_{}{}{} by {} of {}{}, {}{}", request ? "R" : "", get ? "get_accumulate" : "accumulate",
                  large ? "_c" : "", op.name, origin.text(), get ? " into " + result.text() : "",
                  target_text(side_, to, target.displacement, target.type, target.count), follow ? ", again" : "");
  Pending& call = begin(std::move(origin), std::move(result), to, std::move(text));
  Operand& from = call.origin;
  Operand& into = call.result;
  const MPI_Datatype type = target.type.handle;
  const MPI_Win window = side_.window();
  if (get && request)
    CROSSLANE_MPI(CROSSLANE_EITHER(large, Rget_accumulate, from.address(), from.count(), from.type(), into.address(),
                                   into.count(), into.type(), to, target.displacement, target.count, type, op.op,
                                   window, &call.request));
  else if (get)
    CROSSLANE_MPI(CROSSLANE_EITHER(large, Get_accumulate, from.address(), from.count(), from.type(), into.address(),
                                   into.count(), into.type(), to, target.displacement, target.count, type, op.op,
                                   window));
  else if (request)
    CROSSLANE_MPI(CROSSLANE_EITHER(large, Raccumulate, from.address(), from.count(), from.type(), to,
                                   target.displacement, target.count, type, op.op, window, &call.request));
  else
    CROSSLANE_MPI(CROSSLANE_EITHER(large, Accumulate, from.address(), from.count(), from.type(), to,
                                   target.displacement, target.count, type, op.op, window));
  if (freed) {
    from.free_type();
    into.free_type();
  } else {
    call.target = std::move(target.type);
  }
}

void Access::start_chain(int to, const Number& number, const Operator& op, const Place& target) {
  if (to == MPI_PROC_NULL || target.elements == 0 || op.op == MPI_NO_OP || left_out().accumulates_in_order) return;
  chains_[static_cast<std::size_t>(to)] = Chain{number, op, target.displacement, target.elements};
}

void Access::fetch(Random& random, int to, const Number& number, const Operator& op, MPI_Aint displacement) {
  const bool missing = op.op == MPI_NO_OP && random.chance(50);
  Operand origin = missing ? Operand(number.type) : one(random, number);
  Operand result = one(random, number);
  auto text = fmt::format("MPI_Fetch_and_op by {} of {} into {}, {}", op.name, origin.text(), result.text(),
                          target_text(side_, to, displacement, base_type_of(number.base()), 1));
  Pending& call = begin(std::move(origin), std::move(result), to, std::move(text));
  CROSSLANE_MPI(MPI_Fetch_and_op(call.origin.address(), call.result.address(), number.type, to, displacement, op.op,
                                 side_.window()));
}

void Access::fetch_anywhere(Random& random, int to) {
  const auto* const chain = to == MPI_PROC_NULL ? nullptr : &chains_[static_cast<std::size_t>(to)];
  if (chain != nullptr && chain->has_value() && random.chance(40)) {
    fetch(random, to, (*chain)->number, random.chance(30) ? no_operation() : (*chain)->op, (*chain)->displacement);
    return;
  }
  const auto where = area(random, to, false, random.chance(30));
  const Number* const fixed = where ? side_.shape(to).areas[*where].number : nullptr;
  const Number& any = any_whole(random, to == MPI_PROC_NULL || side_.shape(to).aligned() ? 8 : 1);
  const Number& number = fixed != nullptr ? *fixed : any;
  const Place target = single(to, where, number);
  const Operator& op = random.chance(20) ? no_operation() : random.pick(number.ordered());
  if (target.elements > 0) fetch(random, to, number, op, target.displacement);
}

void Access::compare_and_swap_anywhere(Random& random, int to) {
  const Number& any = any_whole(random, to == MPI_PROC_NULL || side_.shape(to).aligned() ? 8 : 1);
  const Number& number = any.kind == Number::Kind::pair ? int_number() : any;
  const Place target = single(to, area(random, to, false, false), number);
  if (target.elements == 0) return;
  Pending& call =
      begin(one(random, number), one(random, number), to,
            fmt::format("MPI_Compare_and_swap, {}", target_text(side_, to, target.displacement, target.type, 1)));
  call.compare = one(random, number);
  CROSSLANE_MPI(MPI_Compare_and_swap(call.origin.address(), call.compare.address(), call.result.address(), number.type,
                                     to, target.displacement, side_.window()));
}

void Access::swap(Random& random, int to) {
  if (to == side_.rank()) {
    if (left_out().atomics_on_oneself || window_is_origin_) return;
    side_.own_changed = true;
  }
  const Number& any = any_whole(random, side_.shape(to).aligned() ? 8 : 1);
  const Number& number = any.kind == Number::Kind::pair ? int_number() : any;
  const Place target = single(to, area(random, to, false, false), number);
  if (target.elements == 0) return;
  fetch(random, to, number, replace(), target.displacement);
  const auto there = pending_.back().origin.read();
  CROSSLANE_MPI(MPI_Win_flush(to, side_.window()));
  completed_locally(to);
  const bool holds = random.chance(70);
  Pending& call = begin(one(random, number), one(random, number), to,
                        fmt::format("MPI_Compare_and_swap that {}, {}", holds ? "swaps" : "may not swap",
                                    target_text(side_, to, target.displacement, target.type, 1)));
  call.compare = one(random, number);
  if (holds) call.compare.write(there);
  CROSSLANE_MPI(MPI_Compare_and_swap(call.origin.address(), call.compare.address(), call.result.address(), number.type,
                                     to, target.displacement, side_.window()));
  CROSSLANE_MPI(MPI_Win_flush(to, side_.window()));
  completed(to);
}

// What it reads depends on who came before: only the end is compared.
void Access::change(Random& random, int to) {
  const auto where = area(random, to, true, true);
  if (!where) return;
  const Area& numbers = side_.shape(to).areas[*where];
  const Number& number = *numbers.number;
  const auto most = (numbers.end - numbers.begin) / number.bytes;
  const int count = static_cast<int>(1 + random.below(most));
  const MPI_Win window = side_.window();
  Operand buffer(side_.kind(random), base_type_of(number.base()), count, 0);
  const auto mine = number.small(random.next(), static_cast<std::size_t>(count));
  CROSSLANE_MPI(MPI_Win_flush(to, window));
  completed(to);
  side_.step(
      fmt::format("{}: MPI_Get and MPI_Put of {}, bytes from {} of rank {}", where_, buffer.text(), numbers.begin, to));
  const auto step = static_cast<std::size_t>(side_.shape(to).unit);
  const auto displacement = static_cast<MPI_Aint>(numbers.begin / step);
  if (numbers.begin % step != 0) return;
  CROSSLANE_MPI(MPI_Get(buffer.address(), count, number.type, to, displacement, count, number.type, window));
  CROSSLANE_MPI(MPI_Win_flush(to, window));
  auto values = buffer.read();
  CROSSLANE_MPI(MPI_Reduce_local(mine.data(), values.data(), count, number.type, agreed_(number).op));
  buffer.write(std::move(values));
  CROSSLANE_MPI(MPI_Put(buffer.address(), count, number.type, to, displacement, count, number.type, window));
  CROSSLANE_MPI(MPI_Win_flush(to, window));
}

// The program may use the buffers again: what was received is noted, and another thing written.
void Access::settle(Pending& pending) {
  if (pending.settled) {
    CROSSLANE_CHECK(pending.result.unchanged(), "{}: {} was written again once it was complete", where_, pending.text);
    return;
  }
  CROSSLANE_CHECK(pending.origin.unchanged(), "{}: {}: the origin's buffer was written", where_, pending.text);
  CROSSLANE_CHECK(pending.compare.unchanged(), "{}: {}: what is compared with was written", where_, pending.text);
  if (!pending.origin.empty()) pending.origin.write(pattern(pending.text.size() + 1, pending.origin.bytes()));
  if (!pending.result.empty()) {
    side_.note(fmt::format("{}: {}: the result", where_, pending.text), pending.result.read());
    pending.result.write(pattern(pending.text.size(), pending.result.bytes()));
  }
  pending.settled = true;
}

void Access::drop_settled() {
  std::erase_if(pending_, [](const Pending& each) { return each.settled && each.request == MPI_REQUEST_NULL; });
}

void Access::completed_locally(int to) {
  for (Pending& each : pending_)
    if (!each.settled && (to == any_target || each.to == to)) settle(each);
  drop_settled();
}

void Access::completed(int to) {
  completed_locally(to);
  for (int rank = 0; rank < side_.ranks(); ++rank) {
    if (to != any_target && to != rank) continue;
    const auto target = static_cast<std::size_t>(rank);
    chains_[target].reset();
    for (std::size_t i = 0; i < reached_[target].size(); ++i) reached_[target][i] = side_.shape(rank).areas[i].begin;
  }
}

void Access::complete_some(Random& random) {
  std::vector<std::size_t> with_request;
  for (std::size_t i = 0; i < pending_.size(); ++i)
    if (pending_[i].request != MPI_REQUEST_NULL) with_request.push_back(i);
  const auto way = random.below(4), choice = random.next();
  if (with_request.empty()) return;
  if (way < 2) with_request = {with_request[choice % with_request.size()]};
  std::vector<MPI_Request> requests;
  for (const auto i : with_request) requests.push_back(pending_[i].request);
  const int count = static_cast<int>(requests.size());
  side_.step(fmt::format("{}: {} of {} requests", where_,
                         std::array{"MPI_Wait", "MPI_Test", "MPI_Waitall", "MPI_Testall"}.at(way), count));
  int done = 0;
  switch (way) {
    case 0:
      CROSSLANE_MPI(MPI_Wait(requests.data(), MPI_STATUS_IGNORE));
      break;
    case 1:
      polite_wait(requests[0]);
      break;
    case 2:
      CROSSLANE_MPI(MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE));
      break;
    default:
      for (; done == 0; sched_yield()) CROSSLANE_MPI(MPI_Testall(count, requests.data(), &done, MPI_STATUSES_IGNORE));
      break;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Pending& each = pending_[with_request[i]];
    each.request = requests[i];
    CROSSLANE_CHECK(each.request == MPI_REQUEST_NULL, "{}: {}: the request stays", where_, each.text);
    each.request = MPI_REQUEST_NULL;
    settle(each);
  }
  drop_settled();
}

void Access::end(Random& random) {
  completed(any_target);
  while (!pending_.empty()) complete_some(random);
}

}  // namespace crosslane::tests
