// SPDX-License-Identifier: Apache-2.0
//
// One heap of a GPU with the memory that it stands on: an arena of mapped memory, or segments of plain
// memory, or both. A device has one for its ordinary memory, and one for every pool of a captured graph. Not
// thread-safe.
//
//   offset   0 .......... arena's capacity | arena's capacity + device address of a segment ....
#pragma once

#include <memory>

#include "memoir/arena/cuda_arena.h"
#include "memoir/device/cuda_segments.h"
#include "memoir/device/device_streams.h"
#include "memoir/policy/plan_job.h"
#include "memoir/policy/policies.h"

namespace memoir {

/// What a device's runtime gives a heap of its. Kept alive by the caller for as long as the heap.
struct DeviceContext {
  CudaDevice& device;
  DeviceStreams& streams;
  Collector* collector = nullptr;
  PlanRunner* planner = nullptr;
  std::uint32_t pool = 0;  // 0: ordinary memory; private pools in the order of their first use
  bool keeps = false;      // its memory will not move, because a captured graph uses it
};

/// Stands for mapped memory on a device that cannot map, under heaps that are asked for plain memory only.
class NothingMapped final : public Arena {
 public:
  Size capacity() const noexcept override { return 16 * granule(); }
  Size granule() const noexcept override { return 2 * kMiB; }
  bool commit(Range) noexcept override { return false; }
  void decommit(Range) noexcept override {}
  Size committed() const noexcept override { return 0; }
};

class DeviceHeap final : private Parts {
 public:
  /// The policy's heap on the device. Throws Error where the policy does, and when there is no memory for it.
  DeviceHeap(const Policy& policy, const DeviceContext& context);
  ~DeviceHeap() override { made_.heap.reset(); }
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  Heap& heap() noexcept { return *made_.heap; }
  const Heap& heap() const noexcept { return *made_.heap; }
  cuda::Address address(Offset offset) const noexcept {
    return arena_ && offset < mapped_end_ ? arena_->base() + offset : offset - mapped_end_;
  }
  Offset offset(cuda::Address address) const noexcept {
    return arena_ && address - arena_->base() < mapped_end_ ? address - arena_->base()
                                                            : mapped_end_ + address;
  }
  /// See CudaArena::keep.
  void keep(bool keep) noexcept;
  /// See CudaArena::share_mapped.
  void share_mapped() noexcept;
  /// Gives back what is not live, as far as the policy allows and the device can be waited for.
  void trim() noexcept;

  /// nullptr when the policy has none.
  const CudaArena* mapped() const noexcept { return arena_.get(); }
  const CudaSegments* plain() const noexcept { return segments_.get(); }
  /// What became of plans.
  LearningHeap::Counters plans() const { return made_.plans ? made_.plans() : LearningHeap::Counters{}; }

 private:
  Arena& arena(Size capacity) override;
  Segments& segments() override;
  Size device_memory() const override { return context_.device.total(); }
  Size likely_device_memory() const override { return context_.device.total(); }
  Size left() const override;
  StreamOrder* order() override { return &context_.streams; }
  Collector* collector() override { return context_.collector; }
  PlanRunner* planner() override { return context_.planner; }
  PhaseTable* phases() override { return nullptr; }
  bool keeps() const override { return context_.keeps; }
  bool is_alone() const override { return false; }  // streams come and go
  size_t expandable_areas() const override { return 2 * kStreams; }
  Size most_objects() const override { return kMostObjects; }
  RecordedPlan plan(Size alignment) const override;
  RecordedPlan part_of(const ProgramPlan& plan) const override {
    return recorded_for(plan, static_cast<std::uint16_t>(context_.device.ordinal()), context_.pool);
  }

  static constexpr Size kAddresses = 8;  // times the device's memory
  static constexpr size_t kStreams = 16;
  static constexpr Size kMostObjects = 65'536;

  const DeviceContext context_;
  const MappedOptions options_;
  const bool is_plain_;  // nothing is asked of mapped memory
  std::unique_ptr<CudaArena> arena_;
  NothingMapped nothing_;
  Size mapped_end_ = 0;  // offsets from here on are plain memory's
  std::unique_ptr<CudaSegments> segments_;
  PolicyHeap made_;  // its heap goes first: see the destructor
};

}  // namespace memoir
