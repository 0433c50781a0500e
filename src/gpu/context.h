// CUDA contexts: making one current for a while, and holding a GPU's primary one.
// This file must not know which context a buffer needs: inspect() says it.
#pragma once

#include "gpu/driver.h"
#include "gpu/life.h"

#include <array>
#include <cstdint>

namespace crosslane::gpu {

/// Keeps a GPU's primary context (the one that the CUDA runtime uses) alive. Move-only. Retaining it creates it where
/// nobody did yet, which takes long: only for GPUs that a device pointer pointed to.
class PrimaryContext {
 public:
  PrimaryContext(const Driver& driver, int ordinal);
  PrimaryContext(PrimaryContext&& other) noexcept;
  PrimaryContext& operator=(PrimaryContext&& other) noexcept;
  ~PrimaryContext();

  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  [[nodiscard]] int ordinal() const noexcept { return device_; }

  /// True if the context exists already, so that retaining creates none.
  [[nodiscard]] static bool active(const Driver& driver, int ordinal);

  /// The same of a device as the driver numbers it; false where it does not tell.
  [[nodiscard]] static bool stands(const Driver& driver, CUdevice device) noexcept;

  /// True if `context`, which is of that device, is its primary one.
  [[nodiscard]] static bool is(const Driver& driver, CUdevice device, CUcontext context) noexcept;

 private:
  const Driver* driver_;
  CUdevice device_;
  CUcontext context_ = nullptr;
};

/// Makes a context current on this thread from construction to destruction; throws Error where it has ended, before any handle of it is
/// used. Neither copied nor moved: it is a scope.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext context) : driver_(driver) {
    check(driver, driver.ctx_push_current(context), "cuCtxPushCurrent");
  }
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (!driver_.unloading()) driver_.ctx_pop_current(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
};

/// The same for an owner's destructor: not on a thread where no context is current, or one of another GPU, is freed what belongs to this one. False,
/// with nothing done, where that has ended.
class OwnerScope {
 public:
  OwnerScope(const Driver& driver, const Life& life) noexcept
      : driver_(driver), entered_(!life.over() && driver.ctx_push_current(life.context()) == CUDA_SUCCESS) {}
  ~OwnerScope() {
    CUcontext popped = nullptr;
    if (entered_) driver_.ctx_pop_current(&popped);
  }
  OwnerScope(const OwnerScope&) = delete;
  OwnerScope& operator=(const OwnerScope&) = delete;
  explicit operator bool() const noexcept { return entered_; }

 private:
  const Driver& driver_;
  const bool entered_;
};

/// While one lives, this thread's calls are not held to what a graph's capture by another thread allows: for questions
/// (is an event done), and for what allocates, maps and frees, which would end such a capture. The owners and views of gpu/ do so by
/// themselves. For calls that touch no captured stream. Neither copied nor moved.
class OutsideCaptures {
 public:
  explicit OutsideCaptures(const Driver& driver) noexcept;
  ~OutsideCaptures();
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool changed_;
};

/// From now on this thread's calls are not held to what a graph's capture by another thread allows; for threads of ours, which touch
/// no captured stream.
void ignore_captures_of_other_threads(const Driver& driver);

/// An attribute of a GPU; throws Error for an ordinal that does not exist.
[[nodiscard]] int device_attribute(const Driver& driver, CUdevice_attribute attribute, int ordinal);

/// Names a GPU for all processes, whatever each of them sees of the machine; throws Error for an ordinal that does not exist.
[[nodiscard]] std::array<std::uint8_t, 16> device_uuid(const Driver& driver, int ordinal);

/// The ordinal of the current context's GPU; throws Error when no context is current.
[[nodiscard]] int current_device(const Driver& driver);

}  // namespace crosslane::gpu
