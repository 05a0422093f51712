// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/finalizer_model.h"

#include <algorithm>

#include "memoir/base/check.h"

namespace memoir {

void FinalizerModel::died(Offset offset, Tick born, Tick now) {
  MEMOIR_CHECK(heap_ != nullptr, "a finalizer model is attached to its heap before anything dies");
  dead_.push_back({offset, now, now - born <= options_.young});
}

void FinalizerModel::advance(Tick now) noexcept {
  while (!dead_.empty() && now - dead_.front().died >= options_.delay) {
    MEMOIR_CHECK(heap_->free(dead_.front().offset), "what dies is live in the heap");
    dead_.pop_front();
  }
}

void FinalizerModel::collect(bool full) noexcept {
  ++collections_[full];
  const auto freed = std::remove_if(dead_.begin(), dead_.end(), [&](const Dead& dead) {
    if (!full && !dead.young) return false;
    MEMOIR_CHECK(heap_->free(dead.offset), "what dies is live in the heap");
    return true;
  });
  dead_.erase(freed, dead_.end());
}

}  // namespace memoir
