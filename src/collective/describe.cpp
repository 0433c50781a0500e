// See describe.h.
#include "collective/describe.h"

#include "kernel/launch.h"
#include "share/board.h"

#include <array>

namespace crosslane::collective {
namespace {

constexpr std::size_t least_bytes = 16;  // a whole number of any element
constexpr std::size_t many_bytes = std::size_t{1} << 50;

constexpr std::array<std::string_view, kernel::element_count> elements{
    "i8",  "u8",  "i16",  "u16",     "i32",     "u32",     "i64",     "u64",     "f16",     "bf16",   "f32",
    "f64", "c64", "c128", "i16_i32", "i32_i32", "i64_i32", "f32_i32", "f64_i32", "f32_f32", "f64_f64"};
constexpr std::array<std::string_view, kernel::op_count> ops{"sum",  "prod", "min", "max",  "land",   "lor",
                                                             "lxor", "band", "bor", "bxor", "minloc", "maxloc"};

template <class Value, std::size_t count>
std::optional<Value> named(const std::array<std::string_view, count>& names, std::string_view name) {
  for (std::size_t index = 0; index < count; ++index)
    if (names[index] == name) return static_cast<Value>(index);
  return std::nullopt;
}

// Asks one algorithm.
class Asked {
 public:
  explicit Asked(const Algorithm& algorithm) : algorithm_(algorithm) {
    shape_.collective = algorithm.collective;
    shape_.element = combines(algorithm.collective) ? kernel::Element::f32 : kernel::Element::u8;
    // On GPUs of their own, mapped, with events for one another: what most algorithms support at some size.
    facts_ = {.members = 2, .exposed = true, .large_windows = true, .told = true, .driven = true};
  }

  [[nodiscard]] bool takes(std::size_t bytes, const TeamFacts& facts) const {
    Shape shape = shape_;
    shape.bytes = bytes;
    return algorithm_.supports(shape, facts);
  }
  [[nodiscard]] bool combines_as(kernel::Op op, kernel::Element element, std::size_t bytes) const {
    Shape shape = shape_;
    shape.op = op;
    shape.element = element;
    shape.bytes = bytes;
    return algorithm_.supports(shape, facts_);
  }
  /// A size that it takes among the powers of two, for such a team.
  [[nodiscard]] std::optional<std::size_t> some_size(const TeamFacts& facts) const {
    for (std::size_t bytes = least_bytes; bytes <= many_bytes; bytes *= 2)
      if (takes(bytes, facts)) return bytes;
    return std::nullopt;
  }
  /// The first kind of team that it takes calls of.
  [[nodiscard]] bool find_team() {
    for (int members = 2; members <= share::Board::most_members; ++members) {
      for (const int sharing : {1, 2}) {
        facts_.members = members;
        facts_.most_on_one_gpu = sharing;
        if (some_size(facts_)) return true;
      }
    }
    return false;
  }
  [[nodiscard]] const TeamFacts& facts() const noexcept { return facts_; }

 private:
  const Algorithm& algorithm_;
  Shape shape_;
  TeamFacts facts_;
};

// The largest size that it takes of such a team, where it takes `from`; 0 for no limit.
std::size_t limit(const Asked& asked, const TeamFacts& facts, std::size_t from) {
  if (asked.takes(many_bytes, facts)) return 0;
  std::size_t yes = from, no = many_bytes;
  while (yes * 2 < no && asked.takes(yes * 2, facts)) yes *= 2;
  no = yes * 2;
  while (no - yes > 1) {
    const std::size_t middle = yes + (no - yes) / 2;
    (asked.takes(middle, facts) ? yes : no) = middle;
  }
  return yes;
}

}  // namespace

std::optional<Support> support_of(const Algorithm& algorithm) {
  Asked asked(algorithm);
  if (!asked.find_team()) return std::nullopt;
  const std::size_t bytes = *asked.some_size(asked.facts());
  Support support;
  support.most_bytes = limit(asked, asked.facts(), bytes);
  support.least_members = support.most_members = asked.facts().members;
  TeamFacts facts = asked.facts();
  for (const int members : {2, 4, 8}) {
    facts.members = members;
    const auto some = support.most_bytes == 0 ? std::nullopt : asked.some_size(facts);
    if (some) support.limits.push_back({members, limit(asked, facts, *some)});
  }
  for (facts.members = share::Board::most_members; facts.members > support.least_members; --facts.members) {
    if (!asked.some_size(facts)) continue;
    support.most_members = facts.members;
    break;
  }
  facts = asked.facts();
  facts.exposed = false;
  support.needs_mapped_buffers = !asked.some_size(facts);
  facts = asked.facts();
  facts.most_on_one_gpu = 2;
  for (facts.members = 2; facts.members <= share::Board::most_members && !support.several_ranks_a_gpu; ++facts.members)
    support.several_ranks_a_gpu = asked.some_size(facts).has_value();
  if (!combines(algorithm.collective)) return support;
  for (std::size_t op = 0; op < kernel::op_count; ++op) {
    for (std::size_t element = 0; element < kernel::element_count; ++element) {
      const auto the_op = static_cast<kernel::Op>(op);
      const auto the_element = static_cast<kernel::Element>(element);
      if (kernel::Kernels::combines(the_op, the_element) && !asked.combines_as(the_op, the_element, bytes))
        support.cannot_combine.push_back(name_of(the_op) + "_" + name_of(the_element));
    }
  }
  return support;
}

std::string name_of(kernel::Element element) { return std::string(elements[static_cast<std::size_t>(element)]); }
std::string name_of(kernel::Op op) { return std::string(ops[static_cast<std::size_t>(op)]); }
std::optional<kernel::Element> element_named(std::string_view name) { return named<kernel::Element>(elements, name); }
std::optional<kernel::Op> op_named(std::string_view name) { return named<kernel::Op>(ops, name); }

std::optional<Collective> collective_named(std::string_view name) {
  if (name == "bcast") return Collective::broadcast;  // MPI's word
  for (std::size_t index = 0; index < collective_count; ++index)
    if (const auto collective = static_cast<Collective>(index); name_of(collective) == name) return collective;
  return std::nullopt;
}

}  // namespace crosslane::collective
