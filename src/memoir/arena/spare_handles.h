// SPDX-License-Identifier: Apache-2.0
//
// Physical memory of a device that is mapped nowhere: handles of what was unmapped, to be mapped elsewhere.
// Memory that moves from one address to another never leaves the process that way, so no neighbour can take
// it in between, and a move costs neither a release nor a create.
//
//   by size   | 2 MiB | 2 MiB | 2 MiB | 16 MiB |      a handle is mapped whole: the largest that fits is next
//
// Not thread-safe; whose the memory is, and what it costs, is the owner's (CudaDevice).
#pragma once

#include <algorithm>

#include "memoir/arena/cuda_driver.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

class SpareHandles {
 public:
  struct Spare {
    cuda::Handle handle = 0;
    Size size = 0;  // bytes; 0: there is none
  };

  Size bytes() const noexcept { return bytes_; }
  bool empty() const noexcept { return spares_.empty(); }

  /// False when there is no metadata memory: nothing changed.
  bool put(Spare spare) noexcept {
    if (!spares_.push_back(spare)) return false;
    Spare* const at = after(spare.size, spares_.end() - 1);
    std::move_backward(at, spares_.end() - 1, spares_.end());
    *at = spare;
    bytes_ += spare.size;
    return true;
  }
  /// The largest of at most `size` bytes; of size 0 when there is none.
  Spare take(Size size) noexcept {
    Spare* const found = after(size, spares_.end());
    if (found == spares_.begin()) return {};
    const Spare spare = found[-1];
    std::move(found, spares_.end(), found - 1);
    spares_.pop_back();
    bytes_ -= spare.size;
    return spare;
  }
  Spare take_largest() noexcept { return take(~Size{0}); }

 private:
  /// Behind all of at most this size, before `end`.
  Spare* after(Size size, Spare* end) noexcept {
    return std::upper_bound(spares_.begin(), end, size,
                            [](Size wanted, const Spare& spare) { return wanted < spare.size; });
  }

  MetadataArray<Spare> spares_;  // by size; few, since the owner bounds them
  Size bytes_ = 0;
};

}  // namespace memoir
