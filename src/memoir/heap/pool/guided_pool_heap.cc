// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/guided_pool_heap.h"

namespace memoir {

namespace {
constexpr std::uint64_t kFew = 4, kEnough = 32;  // departures before anything is made of them
}

bool GuidedPoolHeap::follow(const PlannedLayout* layout) noexcept {
  layout_ = nullptr;
  cursor_.reset();
  pool_.treat_aside(Aside::kYield);
  if (layout == nullptr) return !pool_.aside().size || pool_.set_aside(0);
  if (!layout->ok() || !pool_.set_aside(layout->arena_size())) return false;
  cursor_.emplace(*layout, true);
  if (!cursor_->ok()) return follow(nullptr), false;
  layout_ = layout;
  begin_pass();
  passes_ = 0;
  pool_.treat_aside(Aside::kFill);
  return true;
}

void GuidedPoolHeap::begin_pass() noexcept {
  counters_ = {};
  if (layout_ == nullptr) return;
  cursor_->begin_pass();
  ++passes_;
  pool_.treat_aside(how());
}

/// How much the plan's memory is worth, as far as this pass tells.
GuidedPoolHeap::Aside GuidedPoolHeap::how() const noexcept {
  const std::uint64_t departed = counters_.unmatched + counters_.occupied;
  const std::uint64_t all = departed + counters_.planned + counters_.escaping;
  if (departed > kEnough && departed > all / 4) return Aside::kYield;
  if (departed > kFew && departed > all / 256) return Aside::kShare;
  return passes_ == 0 ? Aside::kFill : Aside::kKeep;
}

Offset GuidedPoolHeap::allocate(const Request& request) noexcept {
  if (layout_ == nullptr || request.plain || request.size == 0) return online_.allocate(request);
  const std::uint32_t index = cursor_->match(request);
  if (index == PlanCursor::kNone) {
    ++counters_.unmatched;
  } else if (const Offset planned = layout_->entries()[index].offset; planned == kNoOffset) {
    ++counters_.escaping;
    return online_.allocate(request);
  } else {
    const bool lost = pool_.treats_aside() == Aside::kYield;  // what is left of the plan would only scatter
    const Offset offset = lost ? kNoOffset : pool_.allocate_at(pool_.aside().begin + planned, request);
    if (offset != kNoOffset || lost) ++counters_.planned;
    if (offset != kNoOffset) return offset;
    if (!lost) ++counters_.occupied;
  }
  pool_.treat_aside(how());
  return online_.allocate(request);
}

}  // namespace memoir
