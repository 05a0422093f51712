// SPDX-License-Identifier: Apache-2.0
//
// One heap of a GPU with the memory that it stands on: an arena of mapped memory, or segments of plain memory, or both. A
// device has one for its ordinary memory, and one for every pool of a captured graph. Not thread-safe.
//
//   offset   0 .......... arena's capacity | arena's capacity + device address of a segment ....
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/arena/cuda_arena.h"
#include "memoir/device/cuda_segments.h"
#include "memoir/device/device_streams.h"
#include "memoir/heap/collector.h"
#include "memoir/heap/heap.h"
#include "memoir/policy/learning_pool.h"
#include "memoir/policy/settings.h"

namespace memoir {

/// What a pool is made of. Kept alive by the caller for as long as the pool.
struct DeviceParts {
  CudaDevice& device;
  DeviceStreams& streams;
  Collector* collector = nullptr;
  bool keeps = false;  // its memory will not move, because a captured graph uses it
};

class DeviceHeap {
 public:
  DeviceHeap() = default;
  ~DeviceHeap() { heap_.reset(); }
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  Heap& heap() noexcept { return *heap_; }
  const Heap& heap() const noexcept { return *heap_; }
  cuda::Address address(Offset offset) const noexcept {
    const Size capacity = arena_ ? arena_->capacity() : 0;
    return offset < capacity ? arena_->base() + offset : offset - capacity;
  }
  Offset offset(cuda::Address address) const noexcept {
    const Size capacity = arena_ ? arena_->capacity() : 0;
    return capacity != 0 && address - arena_->base() < capacity ? address - arena_->base()
                                                                : capacity + address;
  }
  /// Bytes taken from the device.
  Size reserved() const noexcept {
    return (arena_ ? arena_->committed() : 0) + (segments_ ? segments_->held() : 0);
  }
  /// See CudaArena::keep.
  void keep(bool keep) noexcept;
  /// See CudaArena::share_mapped.
  void share_mapped() noexcept;
  /// Gives back what is not live, as far as the policy allows and the device can be waited for.
  void trim() noexcept;

  /// nullptr when the policy has none.
  const CudaArena* arena() const noexcept { return arena_.get(); }
  const CudaSegments* segments() const noexcept { return segments_.get(); }
  const LearningPool* learning() const noexcept { return learning_; }

 private:
  friend class DeviceHeapMaker;
  std::unique_ptr<CudaArena> arena_;
  std::unique_ptr<CudaSegments> segments_;
  std::unique_ptr<Heap> heap_;              // goes first: see the destructor
  const LearningPool* learning_ = nullptr;  // the heap, if it is one
};

/// A policy that was chosen by name: "memoir,slack=0.02".
struct DevicePolicy {
  std::string text;
  bool plain = false;  // every request is for plain memory
  /// Else every stream gets a pool of its own: nothing may be handed from one to another.
  bool sees_streams = false;
  /// Throws Error when there is no memory for it.
  std::function<std::unique_ptr<DeviceHeap>(const DeviceParts&)> make;
};

/// Throws Error, with near spellings, when `text` ("name" or "name,key=value,...") names no policy, setting or value
/// that there is.
DevicePolicy device_policy(std::string_view text);

struct DevicePolicyInfo {
  std::string name;
  std::string what;  // one line for people
  std::vector<SettingInfo> settings;
};
std::vector<DevicePolicyInfo> device_policies();

}  // namespace memoir
