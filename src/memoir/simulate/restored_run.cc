// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/restored_run.h"

#include <algorithm>

namespace memoir {

RestoredRun::RestoredRun(const Workload& workload, SimulatedHeap& simulated, const RestoredState& start,
                         std::string_view policy, Size cap)
    : workload_(workload),
      simulated_(simulated),
      is_capped_(cap != kNoCap),
      next_(workload.start_calls()),
      reserved_(start.held) {
  ends_.resize(workload.pools());
  for (const Workload::Object& object : workload.objects())
    ends_[object.pool] = std::max<size_t>(ends_[object.pool], object.begin + 1);
  fidelity_.same_settings = torch_settings(policy) == start.settings;
  fidelity_.start_segments = start.segments;
  fidelity_.start_objects = start.objects;
  fidelity_.start_reserved = fidelity_.recorded_peak = start.held;
}

Offset RestoredRun::start_offset(std::uint32_t object) const noexcept {
  return simulated_.restored()->offset_of(workload_.recorded_address(object));
}

/// Whether the recorded allocator seems to have given that back for the request of this step, because its
/// device was full: right before it took more, or failed.
bool RestoredRun::was_pressed(size_t step, std::span<const Workload::DeviceCall> calls) const noexcept {
  if (calls.back().gives()) return true;
  for (const Workload::Failure& failure : workload_.failures()) {
    if (failure.object != Workload::kNotAsked && workload_.objects()[failure.object].begin == step)
      return true;
  }
  return false;
}

void RestoredRun::before(size_t step) noexcept {
  const std::span<const Workload::DeviceCall> calls = workload_.device_calls();
  const size_t first = next_;
  bool gave_back = false;
  for (; next_ < calls.size() && calls[next_].step <= step; ++next_) {
    const Size size = calls[next_].range.size;
    if (calls[next_].gives()) {
      reserved_ += size;
    } else {
      reserved_ -= std::min(reserved_, size);
      // PyTorch gives nothing back of a private pool that is still used, but for a request to it, and may
      // empty such a pool alone.
      const std::uint32_t pool = calls[next_].pool;
      if (pool == 0) gave_back = true;
      else if (ends_[pool] <= step) simulated_.end_pool(pool);
    }
    fidelity_.recorded_peak = std::max(fidelity_.recorded_peak, reserved_);
  }
  fidelity_.recorded_calls += next_ - first;
  // A trace does not say that the program emptied the cache, only what came of it. What the recorded
  // allocator did for want of memory, another one under a cap does when it comes to that.
  const auto now = calls.subspan(first, next_ - first);
  const bool follows = fidelity_.same_settings || !is_capped_;
  if (gave_back && (follows || !was_pressed(step, now))) simulated_.heap().trim();
  simulated_.restored()->expect(now);
}

void RestoredRun::placed(const Workload::Step& step, Offset offset) noexcept {
  const Offset recorded = workload_.recorded_address(step.object);
  if (recorded == kNoOffset) return;
  ++fidelity_.objects;
  if (offset != kNoOffset && simulated_.restored()->address_of(offset) == recorded) {
    ++fidelity_.agreed;
  } else if (!fidelity_.first_difference) {
    fidelity_.first_difference = step.event;
  }
}

}  // namespace memoir
