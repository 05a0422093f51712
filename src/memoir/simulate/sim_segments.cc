// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/sim_segments.h"

#include "memoir/base/check.h"

namespace memoir {

Offset SimSegments::take(Size size) noexcept {
  if (size == 0 || size > addresses_.capacity()) return kNoOffset;
  const Size bytes = cost(size);
  const bool fits = bytes <= memory_->left();
  const Offset offset = fits ? spans_.allocate({bytes, bytes < kPage ? kStep : kPage}) : kNoOffset;
  if (offset == kNoOffset) {
    ++calls_.refusals;
    return kNoOffset;
  }
  ++calls_.takes;
  held_ += bytes;
  memory_->taken += bytes;
  return offset;
}

void SimSegments::give_back(Range segment) noexcept {
  const Size bytes = cost(segment.size);
  MEMOIR_CHECK(spans_.size_of(segment.begin) == bytes && spans_.free(segment.begin),
               "a segment is given back once, and whole");
  ++calls_.give_backs;
  held_ -= bytes;
  memory_->taken -= bytes;
}

}  // namespace memoir
