// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/planned/plan_cursor.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr std::uint32_t kNear = 32;     // entries: a skipped operator and what it holds are within this
constexpr std::uint32_t kPatience = 3;  // requests that find nothing near before a far match is believed
}  // namespace

PlanCursor::PlanCursor(const PlannedLayout& layout, bool by_size) noexcept
    : layout_(&layout), by_size_(by_size) {
  follow(layout);
}

void PlanCursor::follow(const PlannedLayout& layout) noexcept {
  layout_ = &layout;
  takes_smaller_ = layout.fit() == PlannedFit::kSmallerToo;
  ok_ = used_.assign((layout.entries().size() + 63) / 64, 0);
  begin_pass();
}

void PlanCursor::begin_pass(std::uint32_t at) noexcept {
  next_ = at;
  misses_ = 0;
  in_step_ = true;
}

void PlanCursor::leave_step() noexcept {
  if (!in_step_) return;
  in_step_ = false;  // everything before the place was matched in order
  for (std::uint32_t word = 0; word < used_.size(); ++word) {
    const std::uint32_t begin = word * 64;
    used_[word] = next_ >= begin + 64 ? ~std::uint64_t{0}
                  : next_ <= begin    ? 0
                                      : (std::uint64_t{1} << (next_ - begin)) - 1;
  }
}

std::uint32_t PlanCursor::match_out_of_step(const Request& request) noexcept {
  if (request.site == kNoSite && !by_size_) return kNone;
  const auto entries = layout_->entries();
  const bool is_next = next_ < entries.size() && is_like(entries[next_], request) && !is_used(next_);
  std::uint32_t index = is_next ? next_ : find(request);
  if (index == kNone && takes_smaller_) index = find_larger(request);
  if (index == kNone) return kNone;
  used_[index / 64] |= std::uint64_t{1} << (index % 64);
  next_ = index + 1;
  misses_ = 0;
  return index;
}

/// The nearest that is not used yet, or kNone.
std::uint32_t PlanCursor::find(const Request& request) noexcept {
  const auto candidates = layout_->occurrences(request.site, request.size);
  const auto* const begin = candidates.data();
  const auto* const end = begin + candidates.size();
  const auto* ahead = std::lower_bound(begin, end, next_);
  const auto* behind = ahead;
  std::uint32_t best = kNone, distance = kNone;
  while (ahead != end && is_used(*ahead)) ++ahead;
  if (ahead != end) {
    best = *ahead;
    distance = *ahead - next_;
  }
  while (behind != begin && next_ - behind[-1] < distance) {
    --behind;
    if (is_used(*behind)) continue;
    best = *behind;
    distance = next_ - *behind;
    break;
  }
  if (distance > kNear && ++misses_ < kPatience) return kNone;
  return best;
}

/// The next one near that was planned for at least as much; or kNone.
std::uint32_t PlanCursor::find_larger(const Request& request) const noexcept {
  const auto entries = layout_->entries();
  const auto end = static_cast<std::uint32_t>(std::min<size_t>(entries.size(), size_t{next_} + kNear));
  for (std::uint32_t at = next_; at < end; ++at) {
    if (is_like(entries[at], request) && !is_used(at)) return at;
  }
  return kNone;
}

}  // namespace memoir
