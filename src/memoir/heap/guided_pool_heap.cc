// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/guided_pool_heap.h"

namespace memoir {

namespace {
constexpr std::uint32_t kLost =
    64;  // requests in a row without a planned place: the plan's memory is up for use
}

bool GuidedPoolHeap::follow(const PlannedLayout* layout) noexcept {
  layout_ = nullptr;
  cursor_.reset();
  pool_.keep_aside(false);
  if (layout == nullptr) return !pool_.aside().size || pool_.set_aside(0);
  if (!layout->ok() || !pool_.set_aside(layout->arena_size())) return false;
  cursor_.emplace(*layout, true);
  if (!cursor_->ok()) return follow(nullptr), false;
  layout_ = layout;
  begin_pass();
  return true;
}

void GuidedPoolHeap::begin_pass() noexcept {
  counters_ = {};
  lost_ = 0;
  if (layout_ == nullptr) return;
  cursor_->begin_pass();
  pool_.keep_aside(true);
}

Offset GuidedPoolHeap::allocate(const Request& request) noexcept {
  if (layout_ == nullptr || request.plain) return pool_.allocate(request);
  const std::uint32_t index = request.size == 0 ? PlanCursor::kNone : cursor_->match(request);
  if (index == PlanCursor::kNone) {
    ++counters_.unmatched;
  } else if (const Offset planned = layout_->entries()[index].offset; planned == kNoOffset) {
    ++counters_.escaping;
  } else {
    const Offset offset = pool_.allocate_at(pool_.aside().begin + planned, request);
    if (offset != kNoOffset) {
      ++counters_.planned;
      if (lost_ >= kLost) pool_.keep_aside(true);
      lost_ = 0;
      return offset;
    }
    ++counters_.occupied;
  }
  if (++lost_ == kLost) pool_.keep_aside(false);
  return pool_.allocate(request);
}

}  // namespace memoir
