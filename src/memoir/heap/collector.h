// SPDX-License-Identifier: Apache-2.0
//
// The collector of a language with one (Julia, or PyTorch's FreeMemory callbacks): a pool that ran out asks
// it to let go of what is dead before it asks the device again.
#pragma once

namespace memoir {

class Collector {
 public:
  virtual ~Collector() = default;

  /// Frees what is dead by calling free() of the heap that asks, before it returns: heaps that take a
  /// collector allow that. `full`: look at everything (gc(true)), else at the young (gc(false)).
  virtual void collect(bool full) noexcept = 0;
};

}  // namespace memoir
