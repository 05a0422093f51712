// SPDX-License-Identifier: Apache-2.0
//
// A policy over a device that is not there: what it stands on counts what a device would have given, and runs
// out at the cap. The policies are those of policy/policies.h; the heaps, and how they are made, are the same
// as on a GPU.
//
//   make_policy("span", workload)  ->  a SpanHeap for each stream over one device (device_runtime.h)
//
// Throws Error for what a person got wrong; nothing is called inside malloc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/arena/sim_arena.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/peers/pytorch/pytorch_pools.h"
#include "memoir/heap/phases.h"
#include "memoir/policy/policies.h"
#include "memoir/simulate/memory/held_log.h"
#include "memoir/simulate/memory/sim_segments.h"
#include "memoir/simulate/memory/stream_clock.h"
#include "memoir/simulate/restored_device.h"
#include "memoir/simulate/workload.h"

namespace memoir {

inline constexpr Size kNoCap = ~Size{0};

class SimulatedParts;

/// The heaps of one policy with everything simulated that they stand on. As the runtime of a device has it
/// (device/device_runtime.h) there is a heap for each private pool, and for each stream when the policy does
/// not see streams: over the same device, but none gets another's memory, and private pools keep theirs. A
/// heap is made when it is first asked for. PyTorch's heaps have pools themselves. Not thread-safe.
class SimulatedHeap {
 public:
  ~SimulatedHeap();
  SimulatedHeap(const SimulatedHeap&) = delete;
  SimulatedHeap& operator=(const SimulatedHeap&) = delete;

  /// Of a pool of the workload and a stream. What one gave is freed there. Throws Error when it cannot be
  /// made.
  Heap& heap(std::uint32_t pool = 0, StreamId stream = 0);
  /// The same; nullptr when it cannot be made, and why_refused() says why.
  Heap* find(std::uint32_t pool, StreamId stream);
  /// As the runtime does it: when the heap has no memory, up the ladder (see make_room()). kNoOffset also
  /// when there is no heap and none can be made.
  Offset allocate(const Workload::Object& object);
  /// What the object's program asks for, with the class of lifetimes that the policy is to be told.
  Request request_of(const Workload::Object& object) const noexcept;
  /// Ends an object that allocate() gave that offset. False when there is none there.
  bool free(const Workload::Object& object, Offset offset);
  /// The number of the addresses that the offsets of a pool and a stream are in: those of two spaces have
  /// nothing in common. Throws as heap() does.
  std::uint64_t space(std::uint32_t pool, StreamId stream);
  /// Every request is for plain memory.
  bool is_plain() const noexcept { return policy_.traits.plain; }
  /// What the policy does on its own between requests, when it is due; `now` in nanoseconds, never going
  /// back.
  void tick(Tick now) noexcept {
    now_ = now;
    if (now >= due_) tick_all();
  }
  /// Nobody uses that private pool of PyTorch's any more: it gives back what is unused, and so when it is
  /// trimmed.
  void end_pool(std::uint32_t pool) noexcept;

  /// Bytes that the device has handed out: segments held and granules mapped.
  Size reserved() const noexcept { return memory_.taken; }
  /// Of these, what private pools have.
  Size private_reserved() const noexcept;
  /// Of these, bytes with memory behind them that the heap may use.
  Size committed() const noexcept { return reserved(); }
  /// Since it was made; those of a restored state are not of them.
  DeviceCalls calls() const noexcept;
  /// The device that tells recorded addresses, when the heap started from a recorded state; else nullptr.
  RestoredDevice* restored() noexcept;
  /// nullptr when it was made without, or its policy has no phases.
  const PhaseTable* phases() const noexcept { return with_phases_ ? &phases_ : nullptr; }
  /// The heap's own reason for the request that was refused last, or "".
  std::string why_refused() const { return why_; }
  /// Bytes that were reserved when the heap refused it, before anybody was asked to make room.
  Size reserved_when_refused() const noexcept { return reserved_when_refused_; }

 private:
  friend class SimulatedParts;
  friend std::unique_ptr<SimulatedHeap> make_policy(std::string_view text, const Workload& workload, Size cap,
                                                    bool with_phases, const RestoredState* start,
                                                    HeldLog* held);
  /// The heap of one pool and stream. What it stands on goes last.
  struct Place {
    std::uint32_t pool = 0;
    StreamId stream = 0;
    std::unique_ptr<SimulatedParts> parts;
    PolicyHeap made;
  };
  SimulatedHeap(Policy policy, const Workload& workload, Size cap, bool with_phases);

  Place& place(std::uint32_t pool, StreamId stream);
  Offset climb(Heap& from, const Request& request);
  /// What the runtime does when the device is full: every heap of the default pool gives back what is unused.
  /// False for PyTorch's, which did so already.
  bool make_room() noexcept;
  void tick_all() noexcept;

  const Policy policy_;
  const Workload& workload_;
  const Size cap_;
  const bool with_phases_;
  const RestoredState* start_ = nullptr;  // only while the first heap is made
  HeldLog* held_ = nullptr;               // told what the device hands out
  std::vector<Workload> by_pool_;         // where there are private pools
  std::vector<std::uint8_t> lifetimes_;   // of every object of the workload; empty: nobody says
  bool is_alone_ = true;                  // one heap serves the whole workload
  SimMemory memory_;                      // of the device
  StreamClock clock_;
  PhaseTable phases_;
  std::vector<std::unique_ptr<Place>> places_;
  std::vector<std::unique_ptr<Heap>> private_;  // PyTorch's private pools
  PyTorchPools* pytorch_ = nullptr;             // the heap, if it has private pools itself
  DeviceCalls start_calls_;
  Tick now_ = 0;
  Tick due_ = Heap::kNever;
  std::string why_;
  Size reserved_when_refused_ = 0;
};

/// Whether the policy can go on from a recorded state: PyTorch's can, from segments of their own kind.
bool can_start_from(std::string_view text, const RestoredState& start);

/// The policy that `text` names, under a cap of so many bytes of the device, for this workload (which a
/// planned policy looks into, and which is kept alive by the caller). `with_phases`: its phase table is
/// filled, which costs it time. With a `start` that it can start from, it holds the recorded segments and
/// objects already. Throws Error as choose_policy() does, when there is no memory for its bookkeeping, and
/// for a cap below what the start holds.
/// `held` is told what the device hands out and gets back, and is kept alive by the caller.
std::unique_ptr<SimulatedHeap> make_policy(std::string_view text, const Workload& workload, Size cap = kNoCap,
                                           bool with_phases = false, const RestoredState* start = nullptr,
                                           HeldLog* held = nullptr);

}  // namespace memoir
