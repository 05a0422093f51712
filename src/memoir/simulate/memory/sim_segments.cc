// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/memory/sim_segments.h"

#include <algorithm>

#include "memoir/base/check.h"

namespace memoir {

Offset SimSegments::take(Size size) noexcept {
  if (size == 0 || size > addresses_.capacity()) return kNoOffset;
  const auto kept =
      std::find_if(kept_.begin(), kept_.end(), [&](const Range& range) { return range.size == size; });
  if (kept != kept_.end()) {
    const Offset offset = kept->begin;
    kept_.erase(kept);
    return offset;
  }
  const Size bytes = cost(size);
  const bool fits = memory_->allows(bytes);
  const Offset offset = fits ? spans_.allocate({bytes, bytes < kPage ? kStep : kPage}) : kNoOffset;
  if (offset == kNoOffset) {
    ++calls_.refusals;
    return kNoOffset;
  }
  ++calls_.takes;
  held_ += bytes;
  memory_->taken += bytes;
  options_.watch.hold({options_.shift + offset, bytes});
  return options_.shift + offset;
}

void SimSegments::give_back(Range segment) noexcept {
  if (options_.keeps) {
    const auto by_address = [](const Range& a, const Range& b) { return a.begin < b.begin; };
    kept_.insert(std::upper_bound(kept_.begin(), kept_.end(), segment, by_address), segment);
    return;
  }
  const Size bytes = cost(segment.size);
  const Offset address = segment.begin - options_.shift;
  MEMOIR_CHECK(spans_.size_of(address) == bytes && spans_.free(address),
               "a segment is given back once, and whole");
  ++calls_.give_backs;
  held_ -= bytes;
  memory_->taken -= bytes;
  options_.watch.release({segment.begin, bytes});
  if (options_.clock != nullptr) options_.clock->quiet();
}

}  // namespace memoir
