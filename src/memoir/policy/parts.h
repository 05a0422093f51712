// SPDX-License-Identifier: Apache-2.0
//
// What a policy is made of, whatever it runs on. A simulation and a device each implement Parts; the list of
// policies (policies.h) has one recipe for each policy over them, so that both run the same heap, made in the
// same way.
//
//   "span,granule=4MiB"  ->  recipe  ->  SpanHeap over parts.arena()      a simulation: an arena that counts
//                                                                       a device: addresses with memory
//                                                                       mapped in
//
// Parts are made for one heap, and outlive it. Functions throw Error where a substrate cannot: memory for
// bookkeeping is short, the device maps no memory, a setting is impossible there. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "memoir/arena/arena.h"
#include "memoir/base/error.h"
#include "memoir/base/option.h"
#include "memoir/heap/collector.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/phases.h"
#include "memoir/heap/segments.h"
#include "memoir/heap/stream_order.h"
#include "memoir/plan/program_plan.h"
#include "memoir/policy/learning_heap.h"
#include "memoir/policy/plan_job.h"

namespace memoir {

class ExpandableHeap;
class PyTorchHeap;
class PyTorchPools;

/// How memory is mapped: settings that every policy over mapped memory has as well as its own.
struct MappedOptions {
  Size granule = 0;
  Size piece = 0;
  Size addresses = 0;
  bool peers = false;

  static constexpr auto fields() {
    using Options = MappedOptions;
    return std::tuple{
        OptionField{"granule", &Options::granule, Unit::kBytes,
                    "size of one mapping, a power of two; 0: the device's own, in a simulation 2 MiB"},
        OptionField{"piece", &Options::piece, Unit::kBytes,
                    "most memory behind one handle of the driver, a power of two; 0: one granule"},
        OptionField{
            "addresses", &Options::addresses, Unit::kTimes,
            "address space to reserve, in multiples of the device's memory (of the cap in a simulation); "
            "0: 8, expandable segments 36 (in a simulation as much as is needed)"},
        OptionField{"peers", &Options::peers, Unit::kFlag,
                    "let other GPUs use this memory, also those without memoir; no effect in a simulation"}};
  }
};

/// The model that stands in for a language's finalizers in a simulation. A device has the program's own.
struct FinalizerSettings {
  Size delay = 0;
  Size young = 10'000;

  static constexpr auto fields() {
    using Options = FinalizerSettings;
    return std::tuple{
        OptionField{"finalizer_delay", &Options::delay, Unit::kOperations,
                    "simulation: operations from an object's death to its free; 0: no finalizers"},
        OptionField{"finalizer_young", &Options::young, Unit::kOperations,
                    "simulation: objects that lived longer wait for a full collection"}};
  }
};

/// What a simulation says of how long objects will live. A host has predictions, or its policy learns.
struct LifetimeSettings {
  std::string lifetimes = "default";
  Size ask_again = 0;

  static constexpr auto fields() {
    using Settings = LifetimeSettings;
    return std::tuple{
        OptionField{
            "lifetimes", &Settings::lifetimes, Unit::kText,
            "where a request's lifetime comes from: true (the trace), sites (95th percentile of the site), "
            "x.trace (the same of another run), x.model (memoir train), shuffled (true ones at random), "
            "none; default: none if the policy learns, else sites"},
        OptionField{"ask_again", &Settings::ask_again, Unit::kCount,
                    "with lifetimes=x.model: ask again after so many objects of one call, stack depth and "
                    "size, and keep the longer answer (LLAMA: 1000). 0: ask once for each site and size"}};
  }
};

class Parts {
 public:
  virtual ~Parts() = default;

  // --- memory ---

  /// Addresses whose memory is mapped by the granule, at least `capacity` bytes of them; 0: many times what
  /// can be live. Called at most once.
  virtual Arena& arena(Size capacity = 0) = 0;
  /// Plain memory, at offsets beyond the arena's where there is one: to be called after arena(), at most
  /// once.
  virtual Segments& segments() = 0;
  /// Bytes of memory that the device has; 0 when nobody says (a simulation without a cap).
  virtual Size device_memory() const = 0;
  /// What to take for it when nobody says.
  virtual Size likely_device_memory() const = 0;
  /// Bytes that the cap leaves now.
  virtual Size left() const = 0;

  // --- the program ---

  /// Who knows which stream comes after which.
  virtual StreamOrder* order() = 0;
  /// nullptr when there is nothing to collect.
  virtual Collector* collector() = 0;
  /// Who makes the plans of heaps that learn; nullptr: they are made where they are asked for.
  virtual PlanRunner* planner() { return nullptr; }
  /// nullptr unless somebody wants phases timed.
  virtual PhaseTable* phases() = 0;
  /// Its memory will not move, because a captured graph uses it.
  virtual bool keeps() const = 0;
  /// True for the only heap of its pool, false for that of one of several streams.
  virtual bool is_alone() const = 0;
  /// Pools and streams that PyTorch's expandable segments may need addresses for, small and large ones
  /// counted separately.
  virtual size_t expandable_areas() const = 0;
  /// The most objects that live at once, as far as is known.
  virtual Size most_objects() const = 0;
  /// A plan of the program for objects at multiples of `alignment`, where the program is known beforehand;
  /// else throws Error, which says how to give one.
  virtual RecordedPlan plan(Size alignment) const = 0;
  /// The same for memoir's pool to follow; empty where the pool does better without.
  virtual RecordedPlan guiding_plan(Size alignment) const { return plan(alignment); }
  /// What a plan of the whole program has for this heap: its device's and its pool's part.
  virtual RecordedPlan part_of(const ProgramPlan& plan) const = 0;

  /// The heap was made. A simulation adds the private pools of its program, and the state of a recording that
  /// it is to go on from.
  virtual void prepare(PyTorchHeap&) {}
  virtual void prepare(ExpandableHeap&) {}
};

/// A heap that a recipe made, and what others want to know of it beyond Heap.
struct PolicyHeap {
  std::unique_ptr<Heap> heap;
  /// The heap's reason for the request that it refused last; empty: it has none.
  std::function<std::string()> why = {};
  /// What became of plans; empty: it has none.
  std::function<LearningHeap::Counters()> plans = {};
  PyTorchPools* pytorch = nullptr;  // the heap, if it has private pools itself
};

/// A recipe's heap. Throws Error when it is not ok().
template <class H, class... Arguments>
std::unique_ptr<H> make_heap(Arguments&&... arguments) {
  auto heap = std::make_unique<H>(std::forward<Arguments>(arguments)...);
  if (!heap->ok()) {
    throw Error(
        "the heap cannot start: no memory for its bookkeeping, or the device has less than it "
        "takes at the start");
  }
  return heap;
}

}  // namespace memoir
