// SPDX-License-Identifier: Apache-2.0
//
// The allocation policies by name: the one list from which the command line, the bindings, the docs and the
// tests take them, with every setting that each one has.
//
//   "split,large=16MiB"  ->  make_policy()  ->  a SplitHeap with these options over simulated segments
//   "pytorch:max_split_size_mb:128"             the same for a text of PYTORCH_CUDA_ALLOC_CONF
//
// What a simulated heap stands on counts what a device would have given, and runs out at the cap. Everything here
// throws Error for what a person got wrong; nothing is called inside malloc.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/arena/sim_arena.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/phases.h"
#include "memoir/heap/pytorch/pytorch_pools.h"
#include "memoir/policy/settings.h"
#include "memoir/simulate/kept_memory.h"
#include "memoir/simulate/recorded_device.h"
#include "memoir/simulate/sim_segments.h"
#include "memoir/simulate/stream_clock.h"
#include "memoir/simulate/workload.h"

namespace memoir {

inline constexpr Size kNoCap = ~Size{0};

/// A heap with everything simulated that it stands on. Where a workload has private pools there is a heap for each, as the
/// runtime of a device has (device/device_runtime.h): over the same device, but none gets another's memory, and private
/// ones keep theirs. PyTorch's heaps have pools themselves. Not thread-safe.
class SimulatedHeap {
 public:
  /// Of a pool of the workload. What one gave is freed there.
  Heap& heap(std::uint32_t pool = 0) noexcept { return *heaps_[pool]; }
  /// All heaps' Heap::tick().
  Tick tick(Tick now) noexcept;
  /// What the runtime does when the device is full: makes the default pool give back what is unused. False when there
  /// is no private pool of another heap, so that the one that asked has done so already.
  bool make_room() noexcept;
  /// Nobody uses that private pool of PyTorch's any more: it gives back what is unused, and so when it is trimmed.
  void end_pool(std::uint32_t pool) noexcept {
    if (pytorch_ == nullptr) return;
    pytorch_->release_pool(pool);
    pytorch_->trim_pool(pool);
  }
  /// Bytes that the device has handed out: segments held and granules mapped.
  Size reserved() const noexcept { return memory_.taken; }
  /// Of these, what private pools have.
  Size private_reserved() const noexcept;
  /// Of these, bytes with memory behind them that the heap may use.
  Size committed() const noexcept { return reserved(); }
  /// Since it was made; those of a recorded start are not of them.
  DeviceCalls calls() const noexcept;
  /// The device that tells recorded addresses, when the heap started from a recorded state; else nullptr.
  RecordedDevice* recorded() noexcept { return recorded_.get(); }
  /// nullptr when it was made without, or its policy has no phases.
  const PhaseTable* phases() const noexcept { return phases_.get(); }
  /// The heap's own reason for the request that it refused last, or "".
  std::string why_refused() const { return why_ ? why_() : ""; }

 private:
  friend struct PolicyParts;
  friend std::unique_ptr<SimulatedHeap> make_policy(std::string_view text, const Workload& workload, Size cap,
                                                    bool with_phases, const RecordedStart* start);

  SimMemory memory_;  // of the device
  std::unique_ptr<SimSegments> segments_;
  std::unique_ptr<KeptSegments> kept_segments_;
  std::unique_ptr<SimArena> arena_;
  std::unique_ptr<KeptArena> kept_arena_;
  std::unique_ptr<Addresses> addresses_;
  std::unique_ptr<RecordedDevice> recorded_;
  DeviceCalls start_calls_;
  std::unique_ptr<StreamClock> order_;
  std::unique_ptr<PhaseTable> phases_;
  std::unique_ptr<Heap> heap_;                           // the default pool's
  PyTorchPools* pytorch_ = nullptr;                      // it, if it has private pools itself
  std::vector<std::unique_ptr<SimulatedHeap>> private_;  // heaps go first
  std::vector<Heap*> heaps_;                             // by pool
  std::function<std::string()> why_;
};

struct PolicyInfo {
  std::string name;
  std::string what;  // one line for people
  std::vector<SettingInfo> settings;
};

/// Every policy, baselines first.
std::vector<PolicyInfo> policies();

/// Throws Error when `text` ("name" or "name,key=value,...") names no policy, setting or value that there is.
void check_policy(std::string_view text);

/// Of the policies of PyTorch, the text for PYTORCH_CUDA_ALLOC_CONF that gives torch these settings ("" for its
/// defaults, and for every other policy). Throws Error as check_policy() does.
std::string torch_settings(std::string_view text);

/// Whether the policy can go on from a recorded state: PyTorch's can, from segments of their own kind.
bool can_start_from(std::string_view text, const RecordedStart& start);

/// The heap that `text` names, under a cap of so many bytes of the device, for this workload (which a planned policy
/// looks into). `with_phases`: its phase table is filled, which costs it time. With a
/// `start` that it can start from, it holds the recorded segments and objects already. Throws Error as
/// check_policy() does, when there is no memory for its bookkeeping, and for a cap below what the start holds.
std::unique_ptr<SimulatedHeap> make_policy(std::string_view text, const Workload& workload, Size cap = kNoCap,
                                           bool with_phases = false, const RecordedStart* start = nullptr);

}  // namespace memoir
