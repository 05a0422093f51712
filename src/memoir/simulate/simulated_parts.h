// SPDX-License-Identifier: Apache-2.0
//
// What a policy is made of in a simulation: memory that is only counted, the clock of streams, a model of
// finalizers, and the workload, which is known beforehand.
#pragma once

#include <memory>
#include <optional>

#include "memoir/heap/peers/pytorch/pytorch_heap.h"
#include "memoir/policy/parts.h"
#include "memoir/simulate/finalizer_model.h"
#include "memoir/simulate/memory/mapped_memory.h"
#include "memoir/simulate/memory/sim_segments.h"
#include "memoir/simulate/plan_run.h"
#include "memoir/simulate/restored_device.h"
#include "memoir/simulate/simulated_heap.h"

namespace memoir {

class SimulatedParts final : public Parts {
 public:
  /// Heaps of several streams take their segments from one place, as from a device.
  /// For one pool of `owner`'s workload and one of its streams; `start`: to go on from, or nullptr. All are
  /// kept alive by the caller.
  SimulatedParts(SimulatedHeap& owner, std::uint32_t pool, StreamId stream, const RestoredState* start);

  Arena& arena(Size capacity) override;
  Segments& segments() override;
  Size device_memory() const override { return owner_.cap_ == kNoCap ? 0 : owner_.cap_; }
  Size likely_device_memory() const override;
  Size left() const override { return owner_.memory_.left(); }
  StreamOrder* order() override { return &owner_.clock_; }
  Collector* collector() override { return finalizers_.get(); }
  PhaseTable* phases() override { return owner_.with_phases_ && pool_ == 0 ? &owner_.phases_ : nullptr; }
  bool keeps() const override { return pool_ != 0; }
  bool is_alone() const override { return owner_.is_alone_; }
  size_t expandable_areas() const override;
  Size most_objects() const override { return workload_.most_live(); }
  RecordedPlan plan(Size alignment) const override { return plan_workload(workload_, alignment); }
  RecordedPlan guiding_plan(Size alignment) const override {
    return memoir::guiding_plan(workload_, alignment);
  }
  RecordedPlan part_of(const ProgramPlan& plan) const override {
    return recorded_for(plan, owner_.workload_.device(), pool_);
  }
  void prepare(PyTorchHeap& heap) override;
  void prepare(ExpandableHeap& heap) override;

  Size reserved() const noexcept;
  DeviceCalls calls() const noexcept;
  RestoredDevice* restored() noexcept;
  /// The number of the addresses that its offsets are in: streams share those of a pool's segments, and each
  /// has mapped memory of its own.
  std::uint64_t space() const noexcept { return std::uint64_t{pool_} << 32 | (mapped_ ? stream_ : 0); }
  /// The model that its collector is, for a heap that is put behind it; nullptr when there is none.
  std::unique_ptr<FinalizerModel> take_finalizers() noexcept { return std::move(finalizers_); }

 private:
  Size room() const noexcept;
  void check_pages() const;
  HeldWatch watch() const noexcept { return {owner_.held_, space()}; }
  void add_pools(PyTorchPools& heap) const;

  SimulatedHeap& owner_;
  const std::uint32_t pool_;
  const StreamId stream_;
  const Workload& workload_;  // of the pool
  const RestoredState* start_;
  std::shared_ptr<SimSegments> segments_;
  bool has_own_segments_ = true;
  std::unique_ptr<MappedMemory> mapped_;
  std::unique_ptr<RestoredSegments> restored_segments_;
  std::unique_ptr<RestoredArena> restored_arena_;
  std::unique_ptr<FinalizerModel> finalizers_;
};

}  // namespace memoir
