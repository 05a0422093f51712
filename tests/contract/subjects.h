// SPDX-License-Identifier: Apache-2.0
//
// Every Heap and every Arena that the contract suite runs. A new heap is one line in subjects(), a new arena
// one in arenas().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "contract/walk.h"
#include "memoir/arena/cuda_arena.h"
#include "memoir/arena/host_arena.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/malloc/malloc_heap.h"
#include "memoir/heap/peers/binned_heap.h"
#include "memoir/heap/peers/llama/llama_heap.h"
#include "memoir/heap/peers/pytorch/expandable_heap.h"
#include "memoir/heap/peers/pytorch/pytorch_heap.h"
#include "memoir/heap/peers/rmm_arena_heap.h"
#include "memoir/heap/peers/rmm_heap.h"
#include "memoir/heap/peers/size_class_heap.h"
#include "memoir/heap/peers/split_heap.h"
#include "memoir/heap/plain/direct_heap.h"
#include "memoir/heap/plain/span_heap.h"
#include "memoir/heap/plain/static_tensors_heap.h"
#include "memoir/heap/planned/planned_heap.h"
#include "memoir/heap/pool/device_pool_heap.h"
#include "memoir/heap/pool/guided_pool_heap.h"
#include "memoir/policy/guided_run_heap.h"
#include "memoir/policy/high_water_heap.h"
#include "memoir/policy/learning_heap.h"
#include "support/arena_segments.h"
#include "support/fake_cuda/fake.h"
#include "support/sealed_arena.h"

namespace memoir::contract {

inline constexpr Size kArenaSize = 8 * kMiB;

struct Subject {
  std::string name;
  /// A heap over the whole of an arena of kArenaSize bytes. `plan` is what is known of the requests to come,
  /// for heaps that follow something.
  std::function<std::unique_ptr<Heap>(Arena& arena, const RecordedPlan& plan)> make;
  Traits traits = {};
};

struct ArenaKind {
  std::string name;
  std::function<std::unique_ptr<Arena>(Size capacity)> make;
  /// Where offset 0 lies when its memory may be touched, else nullptr.
  std::function<std::byte*(Arena&)> memory = [](Arena&) { return nullptr; };
};

/// A CUDA arena with its device. The driver is a fake one, which has host memory for the device's, in
/// granules as small as a page so that the arenas of the suite are alike.
struct FakeDevice {
  CudaDevice device{0};
};
class FakeCudaArena final : private FakeDevice, public Arena {
 public:
  explicit FakeCudaArena(Size capacity) : arena_(device, capacity) {}
  std::byte* base() const { return reinterpret_cast<std::byte*>(arena_.base()); }
  Size capacity() const noexcept override { return arena_.capacity(); }
  Size granule() const noexcept override { return arena_.granule(); }
  bool commit(Range range) noexcept override { return arena_.commit(range); }
  void decommit(Range range) noexcept override { arena_.decommit(range); }
  Size committed() const noexcept override { return arena_.committed(); }

 private:
  CudaArena arena_;
};

/// A planned heap with the layout that it follows, over memory that is committed beforehand.
class FollowsAPlan final : public Heap {
 public:
  FollowsAPlan(Arena& arena, const RecordedPlan& plan) : layout_(plan), heap_(layout_) {
    arena.commit({0, arena.capacity()});
  }
  Offset allocate(const Request& request) noexcept override { return heap_.allocate(request); }
  bool free(Offset offset) noexcept override { return heap_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return heap_.size_of(offset); }
  void trim() noexcept override { heap_.begin_pass(); }
  Size live() const noexcept override { return heap_.live(); }

 private:
  PlannedLayout layout_;
  PlannedHeap heap_;
};

/// A device pool that follows the plan where its arena has room for it.
class FollowsInAPool final : public Heap {
 public:
  FollowsInAPool(Arena& arena, const RecordedPlan& plan) : layout_(plan), heap_(arena) {
    heap_.follow(&layout_);
  }
  Offset allocate(const Request& request) noexcept override { return heap_.allocate(request); }
  bool free(Offset offset) noexcept override { return heap_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return heap_.size_of(offset); }
  void trim() noexcept override {
    heap_.begin_pass();
    heap_.trim();
  }
  Size live() const noexcept override { return heap_.live(); }

 private:
  PlannedLayout layout_;
  GuidedPoolHeap heap_;
};

/// A heap over segments that are cut out of the arena.
template <class HeapOfSegments>
class OverSegments final : public Heap {
 public:
  template <class... Options>
  explicit OverSegments(Arena& arena, const Options&... options)
      : segments_(arena), heap_(segments_, options...) {}
  Offset allocate(const Request& request) noexcept override { return heap_.allocate(request); }
  bool free(Offset offset) noexcept override { return heap_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return heap_.size_of(offset); }
  void trim() noexcept override { heap_.trim(); }
  Size live() const noexcept override { return heap_.live(); }

 private:
  ArenaSegments segments_;
  HeapOfSegments heap_;
};

/// The first thousand requests of the walks' menu, at ranges that overlap at will: a heap must not trust its
/// plan.
inline RecordedPlan menu_plan() {
  RecordedPlan plan;
  plan.arena_size = kArenaSize;
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const Request request = menu_request(random);
    const Offset offset = align_down(random() % (kArenaSize - request.size), request.alignment);
    plan.sequence.push_back({.site = request.site,
                             .size = request.size,
                             .alignment = request.alignment,
                             .lifetime = {0, 1},
                             .offset = offset});
  }
  return plan;
}

/// For a device as small as the suite's arenas: two areas of 4 MiB, segments and units of 2.
inline constexpr PyTorchOptions kPyTorchOptions{.large_segment_size = 2 * kMiB, .device_memory = 3 * kMiB};

inline std::vector<Subject> subjects() {
  return {
      {"SpanHeap", [](Arena& arena, const RecordedPlan&) { return std::make_unique<SpanHeap>(arena); }},
      {"PlannedHeap",
       [](Arena& arena, const RecordedPlan& plan) { return std::make_unique<FollowsAPlan>(arena, plan); },
       {.serves_all = false, .fills = false, .gives_back = false, .joins = false, .secures = true}},
      {"DevicePoolHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<DevicePoolHeap>(arena); },
       {.grain = 512}},
      {"LearningHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<LearningHeap>(arena); },
       {.grain = 512}},
      {"GuidedPoolHeap",
       [](Arena& arena, const RecordedPlan& plan) { return std::make_unique<FollowsInAPool>(arena, plan); },
       {.serves_all = false, .fills = false, .joins = false}},
      {"GuidedRunHeap",
       [](Arena& arena, const RecordedPlan& plan) { return std::make_unique<GuidedRunHeap>(plan, arena); },
       {.serves_all = false, .fills = false, .joins = false}},
      {"DirectHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<OverSegments<DirectHeap>>(arena); },
       {.serves_all = false, .strictest = DirectHeap::kAlignment}},
      {"StaticTensorsHeap",
       [](Arena& arena, const RecordedPlan&) {
         return std::make_unique<StaticTensorsHeap>(arena, StaticTensorsOptions{.buffers = 100'000});
       },
       {.strictest = 64, .grain = 64, .gives_back = false, .secures = true}},
      {"HighWaterHeap",
       [](Arena& arena, const RecordedPlan&) {
         return std::make_unique<HighWaterHeap>(arena, StaticTensorsOptions{.buffers = 100'000});
       },
       {.strictest = 64, .grain = 64, .gives_back = false}},
      {"BinnedHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<OverSegments<BinnedHeap>>(arena); },
       {.serves_all = false, .strictest = BinnedHeap::kAlignment}},
      {"SplitHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<OverSegments<SplitHeap>>(arena); },
       {.serves_all = false, .strictest = SplitHeap::kAlignment}},
      {"RmmHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<OverSegments<RmmHeap>>(arena); },
       {.serves_all = false, .strictest = RmmHeap::kAlignment, .gives_back = false, .joins = false}},
      {"RmmArenaHeap",
       [](Arena& arena, const RecordedPlan&) {
         return std::make_unique<RmmArenaHeap>(arena, arena.capacity());
       },
       {.serves_all = false, .strictest = RmmArenaHeap::kAlignment, .gives_back = false, .secures = true}},
      {"RmmArenaHeap without a size",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<RmmArenaHeap>(arena); },
       {.serves_all = false, .strictest = RmmArenaHeap::kAlignment, .gives_back = false}},
      {"PyTorchHeap",
       [](Arena& arena, const RecordedPlan&) {
         return std::make_unique<OverSegments<PyTorchHeap>>(arena, kPyTorchOptions);
       },
       {.serves_all = false, .strictest = PyTorchRounding::kSmallestBlock, .fills = false}},
      {"ExpandableHeap",
       [](Arena& arena, const RecordedPlan&) {
         return std::make_unique<ExpandableHeap>(arena, kPyTorchOptions);
       },
       {.serves_all = false, .strictest = PyTorchRounding::kSmallestBlock, .fills = false, .joins = false}},
      {"LlamaHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<LlamaHeap>(arena); },
       {.serves_all = false, .serves = 60}},  // there is one page
      {"MallocHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<MallocHeap>(arena); },
       {.serves_all = false, .fills = false, .joins = false, .page = LifetimeHeap::kPage}},
      {"SizeClassHeap",
       [](Arena& arena, const RecordedPlan&) { return std::make_unique<SizeClassHeap>(arena); },
       {.serves_all = false, .page = SizeClassOptions{}.page}},
      {"SizeClassHeap in huge pages",
       [](Arena& arena, const RecordedPlan&) {
         return std::make_unique<SizeClassHeap>(arena, SizeClassOptions{.page = 2 * kMiB});
       },
       {.serves_all = false}},
  };
}

inline std::vector<ArenaKind> arenas() {
  return {
      {"sim", [](Size capacity) { return std::make_unique<SimArena>(capacity); }},
      {"host", [](Size capacity) { return std::make_unique<HostArena>(capacity); },
       [](Arena& arena) { return static_cast<HostArena&>(arena).base(); }},
      {"cuda",
       [](Size capacity) {
         fake::fresh(capacity, 4 * kKiB);
         return std::make_unique<FakeCudaArena>(capacity);
       },
       [](Arena& arena) { return static_cast<FakeCudaArena&>(arena).base(); }},
      {"sealed", [](Size capacity) { return std::make_unique<SealedArena>(capacity); }},
  };
}

/// The suite's arenas, but for a device that maps 64 KiB at a time: a call for each page would take nearly
/// all the time.
inline std::vector<ArenaKind> soaked_arenas() {
  std::vector<ArenaKind> kinds = arenas();
  for (ArenaKind& kind : kinds) {
    if (kind.name != "cuda") continue;
    kind.make = [](Size capacity) {
      fake::fresh(capacity, 64 * kKiB);
      return std::make_unique<FakeCudaArena>(capacity);
    };
  }
  return kinds;
}

}  // namespace memoir::contract
