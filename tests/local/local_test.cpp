// MPI_Reduce_local, MPI_Pack, MPI_Unpack and their external and large-count forms, in every combination of memory, against
// plain MPI on host copies. Options beside Program's: --only <MPI procedure>, --cases <number a procedure>.
#include "collectives/argument.h"
#include "support/program.h"

#include <dlfcn.h>

#include <array>

using namespace crosslane::tests;

namespace {

template <class Function>
Function* resolve(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

constexpr const char* representation = "external32";

// The four calls that pack and unpack, in the large-count form where the process has it.
class Packer {
 public:
  Packer(bool external, bool large) : external_(external), large_(large) {}

  MPI_Count size(const Argument& in) const {
    if (external_) {
      MPI_Aint bytes = 0;
      CROSSLANE_MPI(MPI_Pack_external_size(representation, in.count, in.type, &bytes));
      return bytes;
    }
    int bytes = 0;
    CROSSLANE_MPI(MPI_Pack_size(in.count, in.type, MPI_COMM_WORLD, &bytes));
    return bytes;
  }

  void pack(const void* in, int count, MPI_Datatype type, void* out, MPI_Count size, MPI_Count& position) const {
    if (external_) {
      if (auto* const large = large_ ? resolve<LargePackExternal>("MPI_Pack_external_c") : nullptr) {
        CROSSLANE_MPI(large(representation, in, count, type, out, size, &position));
        return;
      }
      auto at = static_cast<MPI_Aint>(position);
      CROSSLANE_MPI(MPI_Pack_external(representation, in, count, type, out, static_cast<MPI_Aint>(size), &at));
      position = at;
      return;
    }
    if (auto* const large = large_ ? resolve<LargePack>("MPI_Pack_c") : nullptr) {
      CROSSLANE_MPI(large(in, count, type, out, size, &position, MPI_COMM_WORLD));
      return;
    }
    auto at = static_cast<int>(position);
    CROSSLANE_MPI(MPI_Pack(in, count, type, out, static_cast<int>(size), &at, MPI_COMM_WORLD));
    position = at;
  }

  void unpack(const void* in, MPI_Count size, MPI_Count& position, void* out, int count, MPI_Datatype type) const {
    if (external_) {
      if (auto* const large = large_ ? resolve<LargeUnpackExternal>("MPI_Unpack_external_c") : nullptr) {
        CROSSLANE_MPI(large(representation, in, size, &position, out, count, type));
        return;
      }
      auto at = static_cast<MPI_Aint>(position);
      CROSSLANE_MPI(MPI_Unpack_external(representation, in, static_cast<MPI_Aint>(size), &at, out, count, type));
      position = at;
      return;
    }
    if (auto* const large = large_ ? resolve<LargeUnpack>("MPI_Unpack_c") : nullptr) {
      CROSSLANE_MPI(large(in, size, &position, out, count, type, MPI_COMM_WORLD));
      return;
    }
    auto at = static_cast<int>(position);
    CROSSLANE_MPI(MPI_Unpack(in, static_cast<int>(size), &at, out, count, type, MPI_COMM_WORLD));
    position = at;
  }

 private:
  using LargePack = int(const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Count*, MPI_Comm);
  using LargePackExternal = int(const char*, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Count*);
  using LargeUnpack = int(const void*, MPI_Count, MPI_Count*, void*, MPI_Count, MPI_Datatype, MPI_Comm);
  using LargeUnpackExternal = int(const char*, const void*, MPI_Count, MPI_Count*, void*, MPI_Count, MPI_Datatype);

  bool external_, large_;
};

const Base& bytes() {
  static const Base base{"MPI_BYTE", MPI_BYTE, 1, {0}};
  return base;
}

// Where both MPIs have an external form that is as large as ours.
const Base& packed_base(Random& random, bool external) {
  for (;;) {
    const Base& base = random.pick(bases());
    const bool portable = base.type == MPI_INT || base.type == MPI_SHORT || base.type == MPI_DOUBLE ||
                          base.type == MPI_FLOAT || base.type == MPI_CHAR || base.type == MPI_INT8_T;
    if (!external || portable) return base;
  }
}

// Packs two messages behind each other from some position on, and unpacks them elsewhere.
void pack_case(Program& program, bool external, bool unpacks, const std::string& what) {
  auto& random = program.local();
  const Draw draw{random, program};
  const bool large = random.chance(40);
  const Packer packer(external, large);
  const Base& base = packed_base(random, external);
  const int elements = static_cast<int>(random.bytes(40000) / base.extent);
  auto first = Argument::single(draw, base, elements, 1, 0), second = Argument::single(draw, base, elements, 1, 0);
  // MPICH refuses null even of no elements.
  if (first.address() == nullptr) first.give_memory(draw);
  if (second.address() == nullptr) second.give_memory(draw);
  const MPI_Count start = random.between(0, 40);
  const MPI_Count size = start + packer.size(first) + packer.size(second) + random.between(0, 40);
  auto packed = Argument::single(draw, bytes(), static_cast<int>(size), 1, Argument::base_type);
  if (packed.address() == nullptr) packed.give_memory(draw);
  CROSSLANE_STEP("{}{} {} and {} in {}", what, large ? "_c" : "", first.text(), second.text(), packed.text());

  MPI_Count position = start, expected = start;
  for (auto* const in : {&first, &second}) {
    // A test of unpacking alone packs on the host only, and brings the result over by hand.
    packer.pack(in->reference_address(), in->count, in->type, packed.reference_address(), size, expected);
    if (!unpacks) packer.pack(in->address(), in->count, in->type, packed.address(), size, position);
  }
  if (!unpacks) {
    CROSSLANE_CHECK_EQUAL(position, expected);
    first.check(what);
    second.check(what);
    packed.check(what);
    return;
  }
  packed.copy_reference();
  auto to_first = Argument::single(draw, base, elements, 1, 0),
       to_second = Argument::single(draw, base, elements, 1, 0);
  if (to_first.address() == nullptr) to_first.give_memory(draw);
  if (to_second.address() == nullptr) to_second.give_memory(draw);
  position = expected = start;
  for (auto* const out : {&to_first, &to_second}) {
    packer.unpack(packed.reference_address(), size, expected, out->reference_address(), out->count, out->type);
    packer.unpack(packed.address(), size, position, out->address(), out->count, out->type);
  }
  CROSSLANE_CHECK_EQUAL(position, expected);
  to_first.check(what);
  to_second.check(what);
  packed.check(what);
}

void reduce_case(Program& program, const Reductions& reductions) {
  auto& random = program.local();
  const Draw draw{random, program};
  const auto reduction = reductions.pick(random, true);
  const int count = static_cast<int>(random.bytes(60000)) / 8;
  auto in = Argument::operand(draw, *reduction, count), inout = Argument::operand(draw, *reduction, count);
  if (in.address() == nullptr) in.give_memory(draw);
  if (inout.address() == nullptr) inout.give_memory(draw);
  inout.ignore_padding(*reduction);
  CROSSLANE_STEP("MPI_Reduce_local {} of {} and {}", reduction->text, in.text(), inout.text());
  CROSSLANE_MPI(MPI_Reduce_local(in.reference_address(), inout.reference_address(), count, reduction->type.handle,
                                 reduction->op));
  using Large = int(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op);
  auto* const large = random.chance(40) ? resolve<Large>("MPI_Reduce_local_c") : nullptr;
  if (large != nullptr)
    CROSSLANE_MPI(large(in.address(), inout.address(), count, reduction->type.handle, reduction->op));
  else
    CROSSLANE_MPI(MPI_Reduce_local(in.address(), inout.address(), count, reduction->type.handle, reduction->op));
  in.check("MPI_Reduce_local");
  inout.check("MPI_Reduce_local");
}

}  // namespace

int main(int argc, char** argv) {
  Program program(argc, argv, "local_test");
  const auto only = program.text_option("only", "");
  const auto cases = program.option("cases", 60);
  const auto wanted = [&only](const char* name) { return only.empty() || only == name; };
  {
    const Reductions reductions;
    for (std::int64_t i = 0; i < cases; ++i) {
      if (wanted("MPI_Reduce_local")) reduce_case(program, reductions);
      if (wanted("MPI_Pack")) pack_case(program, false, false, "MPI_Pack");
      if (wanted("MPI_Unpack")) pack_case(program, false, true, "MPI_Unpack");
      if (wanted("MPI_Pack_external")) pack_case(program, true, false, "MPI_Pack_external");
      if (wanted("MPI_Unpack_external")) pack_case(program, true, true, "MPI_Unpack_external");
    }
  }
  return program.finish();
}
