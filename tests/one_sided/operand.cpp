// See operand.h.
#include "one_sided/operand.h"

#include <fmt/core.h>

#include <utility>

namespace crosslane::tests {

Operand::Operand(MemoryKind kind, Type type, int count, std::size_t offset)
    : type_(std::move(type)),
      count_(count),
      low_(type_.begin(count)),
      memory_(std::make_unique<Memory>(kind, static_cast<std::size_t>(type_.end(count) - low_), offset)) {}

void Operand::write(std::vector<std::byte> contents) {
  contents_ = std::move(contents);
  memory_->write(contents_);
}

std::string Operand::text() const {
  return empty() ? "nothing" : fmt::format("{} x {} in {} memory", count_, type_.text, name(memory_->kind()));
}

}  // namespace crosslane::tests
