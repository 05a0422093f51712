// SPDX-License-Identifier: Apache-2.0
//
// The observer of Mode::kSampled. Whether an allocation is sampled is asked before the call (due()), and so
// is whether a block may be a sample (maybe()): most calls then jump straight on to the real function.
#pragma once

#include "memoir/record/preload/control.h"
#include "memoir/record/preload/real.h"
#include "memoir/record/sample/sampler.h"

namespace memoir::record {

extern MEMOIR_HIDDEN Sampler sampler;
extern __thread SamplerThread sampler_thread __attribute__((tls_model("initial-exec")));

struct Sampled {
  using Entry = stacks::StackWalker::Entry;

  static bool due(std::size_t size) noexcept { return Sampler::due(sampler_thread, size); }
  static bool maybe(const void* block) noexcept { return sampler.maybe_sampled(block); }

  /// After the real call; due() was asked before.
  static void allocated(const void* block, std::size_t size, unsigned, Family, const Entry& entry) noexcept {
    if (sampler_thread.remaining < 0) sample(block, size, entry);
  }
  /// The real call gave no memory.
  static void not_allocated(std::size_t size) noexcept { Sampler::not_allocated(sampler_thread, size); }
  /// Before the real call.
  static void freed(const void* block) noexcept {
    if (maybe(block) && thread_state.inside == 0) sampler.freed(sampler_thread, block);
  }
  static void modules_changed() noexcept;
  static void* reallocated(void* block, std::size_t size, const Entry& entry) noexcept;

 private:
  static void sample(const void* block, std::size_t size, const Entry& entry) noexcept;
};

/// Samples from now on, one in `every` bytes on average. 0, or an errno.
int start_sampling(Size every) noexcept;
void stop_sampling() noexcept;
/// The program ends, or becomes another one if that succeeds: its last figures.
void tell_samples(bool last) noexcept;
/// In a forked child: what its parent samples is not its own.
void forget_samples() noexcept;
}  // namespace memoir::record
