// SPDX-License-Identifier: Apache-2.0
//
// The observer of Mode::kSampled.
#pragma once

#include "memoir/shim/record/control.h"
#include "memoir/shim/record/real.h"

namespace memoir::record {

struct Sampled {
  using Entry = stacks::StackWalker::Entry;
  static void allocated(void*, std::size_t, unsigned, Family, const Entry&) noexcept {}
  static void freed(void*) noexcept {}
  static void* reallocated(void* block, std::size_t size, const Entry&) noexcept {
    return real.realloc(block, size);
  }
};

}  // namespace memoir::record
