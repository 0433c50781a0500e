// The datatype engine where another thread finds that a context has ended, and the kernels that were prepared there cannot be loaded anew: who has
// counted on them hears of it.
#include "mover_fixture.h"

#include "base/error.h"

#include <cstddef>
#include <cstdint>

namespace crosslane::test {
namespace {

template <class Kind>
class ForgottenTest : public MoverTest<Kind> {
 protected:
  void SetUp() override {
    MoverTest<Kind>::SetUp();
    if (this->IsSkipped()) return;
    table_.emplace(this->driver());
    const auto driver = [this]() -> const gpu::Driver& { return *table_; };
    this->mover_.reset();
    this->mover_.emplace(driver, *this->pool_, this->settings_);
    words_.emplace(this->driver(), std::size_t{4096});
  }
  void forget() {
    this->mover().forget(this->context());
    table_->module_load_data = [](CUmodule*, const void*) { return CUDA_ERROR_OUT_OF_MEMORY; };
  }
  [[nodiscard]] std::uint64_t* word() const { return static_cast<std::uint64_t*>(static_cast<void*>(words_->data())); }
  template <class Enqueue>
  void expect_refused(const Enqueue& enqueue) {
    ASSERT_TRUE(this->mover().prepare(this->context()));
    forget();
    EXPECT_THROW(enqueue(), base::Error);
  }

 private:
  std::optional<gpu::Driver> table_;
  std::optional<gpu::Buffer> words_;
};
TYPED_TEST_SUITE(ForgottenTest, Machines, MachineNames);

TYPED_TEST(ForgottenTest, Swaps) {
  kernel::SwapParameters parameters{};
  parameters.value = parameters.next = parameters.before = reinterpret_cast<std::uintptr_t>(this->word());
  parameters.bytes = 8;
  this->expect_refused([&] { this->mover().swap(this->context(), this->stream(), parameters); });
}

TYPED_TEST(ForgottenTest, Pushes) {
  const gpu::Buffer control(this->driver(), sizeof(kernel::PushControl));
  std::byte* const bytes = static_cast<std::byte*>(static_cast<void*>(this->word()));
  const gpu::WordWrite word{nullptr, reinterpret_cast<CUdeviceptr>(this->word() + 100), 1};
  const kernel::Revocation revocation{this->word() + 200, this->word() + 201, 4};
  this->expect_refused(
      [&] { this->mover().push(this->context(), this->stream(), bytes, bytes + 64, 64, revocation, word, control); });
}

TYPED_TEST(ForgottenTest, PartsWithLoops) {
  const gpu::Buffer counter(this->driver(), 8);
  const Layout rows(layout::repeat(layout::block(0, 8), 10, 16), 0, 160);
  ASSERT_TRUE(this->mover().prepare(this->context()));
  const auto part = this->mover().part_of(this->context(), Side::packed(this->word() + 256),
                                          Side::of(this->word(), rows, 1), 80, Memory::gpu);
  ASSERT_TRUE(part.has_value());
  this->expect_refused(
      [&] { this->mover().copy_all(this->context(), this->stream(), std::span(&*part, 1), {}, counter, Memory::gpu); });
}

}  // namespace
}  // namespace crosslane::test
