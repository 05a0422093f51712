// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/finalized_heap.h"

namespace memoir {

Offset FinalizedHeap::allocate(const Request& request) noexcept {
  finalizers_->advance(++clock_);
  const Offset offset = inner_->allocate(request);
  if (offset == kNoOffset) return kNoOffset;
  objects_[offset] = {request.size, clock_};
  live_ += request.size;
  return offset;
}

bool FinalizedHeap::free(Offset offset) noexcept {
  finalizers_->advance(++clock_);
  const auto found = objects_.find(offset);
  if (found == objects_.end()) return false;
  const Object object = found->second;
  objects_.erase(found);
  live_ -= object.size;
  finalizers_->died(offset, object.born, clock_);
  return true;
}

}  // namespace memoir
