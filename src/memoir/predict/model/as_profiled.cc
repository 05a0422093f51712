// SPDX-License-Identifier: Apache-2.0
//
// What one build inlines, another one calls, and a call in tail position leaves no frame. So stacks of two
// builds differ in frames that say nothing. The calls that the training saw tell which: where a frame never
// called the next one, but called it through others, those others are put between them; where it called the
// one behind the next one, the next one is left out. Of all ways to make each call one that was seen, the
// cheapest is taken.
#include <algorithm>

#include "memoir/predict/model/lifetime_model.h"

namespace memoir {

namespace {

using namespace model_format;

// A frame that is put in is one that had to be there; one that is left out loses what it says.
constexpr unsigned kPutIn = 1, kGap = 1, kLeftOut = 6, kLeftOutInside = 10, kNever = ~0u / 2;

}  // namespace

const Call* LifetimeModel::find_call(std::uint16_t callee, std::uint16_t caller) const noexcept {
  const auto before = [](const Call& call, std::uint32_t wanted) {
    return (std::uint32_t{call.callee} << 16 | call.caller) < wanted;
  };
  const auto found =
      std::lower_bound(calls_.begin(), calls_.end(), std::uint32_t{callee} << 16 | caller, before);
  return found != calls_.end() && found->callee == callee && found->caller == caller ? &*found : nullptr;
}

bool LifetimeModel::as_profiled(const Reduced& stack, Reduced& repaired) const noexcept {
  if (calls_.empty() || stack.count < 2) return false;
  // Frames between two that follow each other; more than kMostBetween: no way was seen.
  const auto between = [&](std::uint16_t callee, std::uint16_t caller) {
    unsigned count = 0;
    for (; count <= kMostBetween; ++count) {
      const Call* const call = find_call(callee, caller);
      if (call == nullptr) return kMostBetween + 1;
      if (call->next == caller) return count;
      callee = call->next;
    }
    return count;
  };
  unsigned cost[Reduced::kMost];
  bool leaves_out[Reduced::kMost] = {};  // the frame inside it
  cost[0] = 0;
  for (size_t i = 1; i < stack.count; ++i) {
    const unsigned gap = between(stack.names[i - 1], stack.names[i]);
    cost[i] =
        gap > kMostBetween ? kNever : std::min(kNever, cost[i - 1] + (gap > 0 ? kGap + kPutIn * gap : 0));
    const unsigned without = i == 1 ? kLeftOutInside : cost[i - 2] + kLeftOut;
    if (without < cost[i] && (i == 1 || between(stack.names[i - 2], stack.names[i]) == 0)) {
      cost[i] = without;
      leaves_out[i] = true;
    }
  }
  const unsigned whole = cost[stack.count - 1];
  if (whole == 0 || whole >= kNever) return false;

  bool keeps[Reduced::kMost] = {};
  for (size_t i = stack.count - 1;; i -= leaves_out[i] ? 2 : 1) {
    keeps[i] = true;
    if (i == 0 || (i == 1 && leaves_out[i])) break;
  }
  repaired = stack;
  repaired.count = 0;
  const auto add = [&](std::uint16_t name) {
    if (repaired.count < Reduced::kMost) repaired.names[repaired.count++] = name;
  };
  std::uint16_t last = 0;
  bool first = true;
  for (size_t i = 0; i < stack.count; ++i) {
    if (!keeps[i]) continue;
    if (!first) {
      for (const Call* call = find_call(last, stack.names[i]); call->next != stack.names[i];
           call = find_call(call->next, stack.names[i]))
        add(call->next);
    }
    add(stack.names[i]);
    last = stack.names[i];
    first = false;
  }
  return true;
}

}  // namespace memoir
