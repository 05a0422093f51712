// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/device_heap.h"

#include <algorithm>

#include "memoir/base/error.h"

namespace memoir {

DeviceHeap::DeviceHeap(const Policy& policy, const DeviceContext& context)
    : context_(context), options_(policy.mapped), is_plain_(policy.traits.plain), made_(policy.make(*this)) {}

Arena& DeviceHeap::arena(Size capacity) {
  CudaDevice& device = context_.device;
  if (device.granularity() == 0 && is_plain_) {
    mapped_end_ = nothing_.capacity();
    return nothing_;
  }
  if (device.granularity() == 0) {
    throw Error(std::string(device.name()) +
                " cannot map memory; a policy over plain memory, such as split, can be used");
  }
  if (options_.granule % device.granularity() != 0 ||
      (options_.granule != 0 && !is_power_of_two(options_.granule))) {
    throw Error("granule=" + bytes_setting(options_.granule) + ": " + device.name() + " maps at least " +
                bytes_setting(device.granularity()) + " at a time; give that or a larger power of two");
  }
  if (options_.piece != 0 && !is_power_of_two(options_.piece))
    throw Error("piece=" + bytes_setting(options_.piece) + ": it must be a power of two");
  if (options_.peers) device.admit_all();
  if (options_.addresses != 0) capacity = std::clamp<Size>(options_.addresses, 1, 1024) * device.total();
  if (capacity == 0) capacity = kAddresses * device.total();
  arena_ = std::make_unique<CudaArena>(device, capacity, CudaArenaOptions{options_.piece, options_.granule});
  if (!arena_->ok()) {
    throw Error("no addresses for the device's memory (" + std::string(device.last_failure()) +
                "): try fewer, with addresses=1");
  }
  mapped_end_ = arena_->capacity();
  return *arena_;
}

Segments& DeviceHeap::segments() {
  segments_ = std::make_unique<CudaSegments>(context_.device, mapped_end_);
  return *segments_;
}

Size DeviceHeap::left() const {
  return context_.device.cap() - std::min(context_.device.cap(), context_.device.held());
}

RecordedPlan DeviceHeap::plan(Size) const {
  throw Error(
      "a device does not know what a program will do: say which plan of an earlier run to follow, with "
      "plan=FILE");
}

void DeviceHeap::keep(bool keep) noexcept {
  if (arena_) arena_->keep(keep);
  if (segments_) segments_->keep(keep);
}

void DeviceHeap::share_mapped() noexcept {
  if (arena_) arena_->share_mapped();
}

void DeviceHeap::trim() noexcept {
  made_.heap->trim();
  if (arena_) arena_->reclaim();
  if (segments_) segments_->reclaim();
}

}  // namespace memoir
