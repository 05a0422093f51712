// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/loop/press.h"

#include <algorithm>
#include <chrono>

namespace memoir {
namespace {

constexpr double kMostPressed = 0.5, kLeastPressed = 0.01, kMore = 1.3, kLess = 0.6;

}  // namespace

bool is_over(const SearchLimits& limits) {
  return (limits.stop && limits.stop->load(std::memory_order_relaxed)) ||
         (limits.enough && limits.enough->load(std::memory_order_relaxed)) ||
         std::chrono::steady_clock::now() >= limits.deadline;
}

void Press::run(std::vector<Offset>& offsets, Size& height, Size target, std::uint64_t last,
                const SearchLimits& limits, std::uint64_t& work,
                const std::function<Size(std::vector<Offset>&)>& lower) {
  while (height > target && work < last && !is_over(limits)) {
    if (!pressed_) {
      const double excess = static_cast<double>(height - target);
      const Size less = std::max(unit_, static_cast<Size>(share_ * excess) / unit_ * unit_);
      const Size to = std::max({target, least_, height - std::min(less, height)});
      const Size pressed = (to + unit_ - 1) / unit_ * unit_;
      if (pressed >= height) return;
      squeeze_.start(offsets, pressed);
      pressed_ = true;
      since_ = 0;
    }
    const std::uint64_t before = work;
    const bool through = squeeze_.run(last - work, limits, work);
    since_ += work - before;
    if (through) {
      std::vector<Offset> found = squeeze_.offsets();
      const Size reached = lower(found);
      if (reached < height) height = reached, offsets = std::move(found);
      share_ = std::min(kMostPressed, kMore * share_);
      pressed_ = false;
      ++work;
    } else if (since_ >= patience_) {
      share_ = std::max(kLeastPressed, kLess * share_);
      pressed_ = false;
    }
  }
}

}  // namespace memoir
