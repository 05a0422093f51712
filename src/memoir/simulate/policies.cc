// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/policies.h"

#include <algorithm>
#include <set>
#include <utility>

#include "memoir/base/error.h"
#include "memoir/heap/classic/binned_heap.h"
#include "memoir/heap/classic/direct_heap.h"
#include "memoir/heap/classic/rmm_heap.h"
#include "memoir/heap/classic/span_heap.h"
#include "memoir/heap/classic/split_heap.h"
#include "memoir/heap/classic/static_tensors_heap.h"
#include "memoir/heap/pytorch/expandable_heap.h"
#include "memoir/heap/pytorch/pytorch_heap.h"
#include "memoir/policy/learning_pool.h"
#include "memoir/policy/policy_text.h"
#include "memoir/simulate/finalized_heap.h"
#include "memoir/simulate/guided_run.h"
#include "memoir/simulate/planned_slab.h"
#include "memoir/simulate/private_pool.h"

namespace memoir {

DeviceCalls SimulatedHeap::calls() const noexcept {
  DeviceCalls calls = segments_ ? segments_->calls() : DeviceCalls{};
  if (arena_) {
    calls.commits += arena_->commits();
    calls.decommits += arena_->decommits();
    calls.refusals += arena_->refusals();
  }
  if (order_) calls.waits = order_->waits();
  calls.takes -= start_calls_.takes;
  calls.commits -= start_calls_.commits;
  for (const auto& pool : private_) calls += pool->calls();
  return calls;
}

Tick SimulatedHeap::tick(Tick now) noexcept {
  Tick next = heap_->tick(now);
  for (const auto& pool : private_) next = std::min(next, pool->heap_->tick(now));
  return next;
}

bool SimulatedHeap::make_room() noexcept {
  if (private_.empty() || pytorch_ != nullptr) return false;
  heap_->trim();
  return true;
}

Size SimulatedHeap::private_reserved() const noexcept {
  if (pytorch_ != nullptr) return pytorch_->private_reserved();
  Size sum = 0;
  for (const auto& pool : private_) {
    if (pool->segments_) sum += pool->segments_->held();
    if (pool->arena_) sum += pool->arena_->committed();
  }
  return sum;
}

/// What a policy's recipe has to hand.
struct PolicyParts {
  SimulatedHeap& made;
  const Workload& workload;
  Size cap;
  bool with_phases;
  const RecordedStart* start;
  SimMemory& memory;  // of the device
  bool keeps;         // for a private pool

  Segments& segments() {
    made.segments_ = std::make_unique<SimSegments>(memory);
    if (!made.segments_->ok()) throw Error("no memory for the simulated device's bookkeeping");
    if (!keeps) return *made.segments_;
    made.kept_segments_ = std::make_unique<KeptSegments>(*made.segments_);
    return *made.kept_segments_;
  }
  Arena& arena(Size granule, Size capacity) {
    if (!is_power_of_two(granule) || granule < 512 || granule > kGiB)
      throw Error("granule=" + bytes_setting(granule) +
                  ": it must be a power of two from 512 bytes to 1 GiB");
    made.arena_ = std::make_unique<SimArena>(std::max(capacity, granule),
                                             SimArenaOptions{.granule = granule, .memory = &memory});
    if (!made.arena_->ok())
      throw Error("no memory for the simulated arena's bookkeeping; try a larger granule");
    if (!keeps) return *made.arena_;
    made.kept_arena_ = std::make_unique<KeptArena>(*made.arena_);
    return *made.kept_arena_;
  }
  /// Room for whatever holes a heap leaves: many times the most bytes live.
  Size room() const noexcept {
    return 16 * std::min(std::max(workload.peak_live(), 4 * kMiB), Size{1} << 48);
  }
  StreamOrder* order() {
    made.order_ = std::make_unique<StreamClock>();
    return made.order_.get();
  }
  PhaseTable* phases() {
    if (with_phases) made.phases_ = std::make_unique<PhaseTable>();
    return made.phases_.get();
  }
  template <class H, class... Arguments>
  H& heap(Arguments&&... arguments) {
    auto heap = std::make_unique<H>(std::forward<Arguments>(arguments)...);
    if (!heap->ok()) throw Error("the heap cannot be made so: an option is out of range, or memory is short");
    H& result = *heap;
    made.heap_ = std::move(heap);
    return result;
  }
  /// Puts a device with recorded addresses over the one that was made, and a heap over it that goes on from them.
  template <class H, class Device>
  void recorded_heap(std::unique_ptr<Device> device, const PyTorchOptions& options) {
    Device& recorded = *device;
    made.recorded_ = std::move(device);
    recorded.restore(pytorch_heap<H>(recorded, options), *start);
    made.start_calls_ = made.calls();
  }
  /// A heap of PyTorch's, with the workload's private pools.
  template <class H, class Device>
  H& pytorch_heap(Device& device, const PyTorchOptions& options) {
    H& pools = heap<H>(device, options, nullptr, phases());
    if (workload.pools() > 1) made.pytorch_ = &pools;
    for (PoolId pool = 1; pool < workload.pools(); ++pool) {
      if (!pools.add_pool_use(pool)) throw Error("no memory for the bookkeeping of private pools");
      auto own = std::make_unique<SimulatedHeap>();
      own->heap_ = std::make_unique<PrivatePool>(pools, pool);
      made.private_.push_back(std::move(own));
    }
    return pools;
  }
  /// Addresses with no memory behind them that anybody counts.
  Arena& addresses(Size capacity) {
    made.addresses_ = std::make_unique<Addresses>(capacity);
    return *made.addresses_;
  }
  /// Puts the heap that was made behind the finalizers that it asks.
  void finalize(std::unique_ptr<FinalizerModel> finalizers) {
    made.heap_ = std::make_unique<FinalizedHeap>(std::move(finalizers), std::move(made.heap_));
  }
  /// What the heap says of the last request that it refused.
  void why(std::function<std::string()> call) { made.why_ = std::move(call); }
};

namespace {

struct SpanOptions {
  Size granule = 2 * kMiB;

  static constexpr auto fields() {
    return std::tuple{
        OptionField{"granule", &SpanOptions::granule, "bytes that are mapped at a time, a power of two"}};
  }
};

void make_span(PolicyParts& parts, const SpanOptions& options) {
  parts.heap<SpanHeap>(parts.arena(options.granule, parts.room()));
}

struct NoOptions {
  static constexpr auto fields() { return std::tuple{}; }
};

void make_direct(PolicyParts& parts, const NoOptions&) { parts.heap<DirectHeap>(parts.segments()); }

void make_planned(PolicyParts& parts, const NoOptions&) {
  parts.heap<PlannedSlab>(parts.workload, parts.segments(), parts.memory.left());
}

/// For device memory: 256 bytes, and as many buffers as the workload needs.
StaticTensorsOptions static_tensors_options(const Workload& workload) {
  return {.pool = 0, .buffers = std::max<Size>(workload.most_live(), 1), .alignment = 256};
}

/// The bytes of a static pool when nobody says how large it is: up to the highest that was ever used.
class HighWaterPool final : public Heap {
 public:
  HighWaterPool(Arena& addresses, Arena& memory, const StaticTensorsOptions& options) noexcept
      : memory_(&memory), heap_(addresses, options) {}

  bool ok() const noexcept { return heap_.ok(); }
  Offset allocate(const Request& request) noexcept override {
    const Offset offset = heap_.allocate(request);
    if (offset == kNoOffset) return kNoOffset;
    const Offset end = offset + heap_.size_of(offset);
    if (end > high_ && !memory_->commit({high_, end - high_})) {
      heap_.free(offset);
      return kNoOffset;
    }
    high_ = std::max(high_, end);
    return offset;
  }
  bool free(Offset offset) noexcept override { return heap_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return heap_.size_of(offset); }
  Size live() const noexcept override { return heap_.live(); }
  const StaticTensorsHeap& inner() const noexcept { return heap_; }

 private:
  Arena* memory_;
  StaticTensorsHeap heap_;
  Offset high_ = 0;
};

void make_static_tensors(PolicyParts& parts, const StaticTensorsOptions& options) {
  StaticTensorsOptions secured = options;
  if (secured.pool == 0 && parts.cap != kNoCap) secured.pool = align_down(parts.cap, 2 * kMiB);
  if (secured.pool == 0) {
    Arena& memory = parts.arena(2 * kMiB, parts.room());
    const auto& pool = parts.heap<HighWaterPool>(parts.addresses(memory.capacity()), memory, secured);
    parts.why([&pool] { return StaticTensorsHeap::describe(pool.inner().refusal()); });
    return;
  }
  if (parts.segments().take(secured.pool) == kNoOffset) {
    throw Error("policy 'static_tensors': a pool of " + std::to_string(secured.pool) +
                " bytes cannot be secured under a cap of " + std::to_string(parts.cap));
  }
  const auto& heap = parts.heap<StaticTensorsHeap>(parts.addresses(secured.pool), secured);
  parts.why([&heap] { return StaticTensorsHeap::describe(heap.refusal()); });
}

/// Settings of the model that stands in for a language's finalizers; without a delay, frees are at once.
template <class Options>
struct FinalizedPolicy : Options {
  Size finalizer_delay = 0;
  Size finalizer_young = FinalizerOptions{}.young;

  static constexpr auto fields() {
    using Policy = FinalizedPolicy;
    return std::tuple_cat(
        Options::fields(),
        std::tuple{OptionField{"finalizer_delay", &Policy::finalizer_delay,
                               "operations between a death and its free; 0: no finalizers"},
                   OptionField{"finalizer_young", &Policy::finalizer_young,
                               "operations: what lived longer waits for a full collection"}});
  }
};

template <class H, class Options>
void make_finalized(PolicyParts& parts, const FinalizedPolicy<Options>& policy) {
  Segments& segments = parts.segments();
  if (policy.finalizer_delay == 0) {
    parts.heap<H>(segments, policy, nullptr, parts.order(), parts.phases());
    return;
  }
  auto finalizers = std::make_unique<FinalizerModel>(
      FinalizerOptions{.delay = policy.finalizer_delay, .young = policy.finalizer_young});
  FinalizerModel* const collector = finalizers.get();
  parts.heap<H>(segments, policy, collector, parts.order(), parts.phases());
  parts.finalize(std::move(finalizers));
}

void make_rmm(PolicyParts& parts, const RmmOptions& options) {
  Segments& segments = parts.segments();
  parts.heap<RmmHeap>(segments, options, parts.order(), parts.phases());
}

/// Settings of a pool over mapped memory.
template <class Options>
struct MappedPolicy : Options {
  Size granule = 2 * kMiB;

  static constexpr auto fields() {
    return std::tuple_cat(Options::fields(),
                          std::tuple{OptionField{"granule", &MappedPolicy::granule,
                                                 "bytes that are mapped at a time, a power of two"}});
  }
};

void make_memoir(PolicyParts& parts, const MappedPolicy<LearningOptions>& options) {
  Arena& arena = parts.arena(options.granule, parts.room());
  LearningOptions own = options;
  own.learn &= !parts.keeps;
  parts.heap<LearningPool>(arena, own, parts.order());
}

void make_guided(PolicyParts& parts, const MappedPolicy<DevicePoolOptions>& options) {
  Arena& arena = parts.arena(options.granule, parts.room());
  parts.heap<GuidedRun>(parts.workload, arena, options, parts.order());
}

/// Where the device's memory is not told, the cap is it.
void make_pytorch(PolicyParts& parts, PyTorchOptions options) {
  const RecordedStart* const start =
      parts.start != nullptr && parts.start->expandable == options.expandable_segments ? parts.start
                                                                                       : nullptr;
  if (start != nullptr && start->held > parts.cap) {
    throw Error("a cap of " + std::to_string(parts.cap) + " bytes is under the " +
                std::to_string(start->held) +
                " bytes of segments that the recording holds at its start; without them (no --from-recorded) "
                "policies start afresh");
  }
  if (options.device_memory == 0 && parts.cap != kNoCap) options.device_memory = parts.cap;
  if (options.device_memory == 0 && options.per_process_memory_fraction < 1) {
    throw Error("per_process_memory_fraction=" + detail::number_text(options.per_process_memory_fraction) +
                ": of what? Set device_memory or a cap");
  }
  if (!options.expandable_segments) {
    Segments& segments = parts.segments();
    if (start == nullptr) {
      parts.pytorch_heap<PyTorchHeap>(segments, options);
    } else {
      parts.recorded_heap<PyTorchHeap>(std::make_unique<RecordedSegments>(segments, parts.workload), options);
    }
    return;
  }
  // For each pool and stream an area of addresses for small objects and one for large ones, 9/8 of the device's memory
  // long; and some to spare.
  if (options.device_memory == 0) options.device_memory = parts.room() / 4;
  size_t areas = 2 * parts.workload.streams() + 2;
  if (parts.workload.pools() > 1) {
    std::set<std::pair<std::uint32_t, StreamId>> users;
    for (const Workload::Object& object : parts.workload.objects()) users.emplace(object.pool, object.stream);
    areas += 2 * users.size();
  }
  if (start != nullptr) {
    areas += start->areas.size();
    for (const RecordedArea& area : start->areas) {  // the addresses behind it are more than any hole in it
      options.device_memory = std::max(options.device_memory, 2 * area.span);
    }
  }
  const Size device = std::min(options.device_memory, Size{1} << 46);
  const Size area = device + device / 8 + 2 * (std::min(options.large_segment_size, device) + 2 * kMiB);
  Arena& arena = parts.arena(2 * kMiB, areas * area);
  if (start == nullptr) {
    parts.pytorch_heap<ExpandableHeap>(arena, options);
  } else {
    parts.recorded_heap<ExpandableHeap>(std::make_unique<RecordedArena>(arena), options);
  }
}

struct Policy {
  std::string_view name;
  std::string_view what;
  std::vector<SettingInfo> (*settings)();
  /// Reads the settings; with parts, and when none is left over, makes the heap.
  void (*make)(PolicyParts* parts, PolicyText& text);
  bool is_pytorch = false;   // its settings are PyTorch's, and its heaps have private pools themselves
  bool is_one_pool = false;  // private pools' objects are as any: it knows nothing of them
};

/// A row whose settings are those of Options.
template <class Options, void (*Make)(PolicyParts&, const Options&),
          Options (*Defaults)(const Workload&) = nullptr>
constexpr Policy policy(std::string_view name, std::string_view what) {
  return {name, what, &settings_of<Options>, [](PolicyParts* parts, PolicyText& text) {
            Options options{};
            if constexpr (Defaults != nullptr) {
              if (parts != nullptr) options = Defaults(parts->workload);
            }
            take_settings(options, text.settings, text.name);
            if (parts != nullptr && text.settings.empty()) Make(*parts, options);
          }};
}

constexpr Policy pytorch_policy(std::string_view name, std::string_view what) {
  return {name, what, &pytorch_settings,
          [](PolicyParts* parts, PolicyText& text) {
            const PyTorchOptions options = take_pytorch_settings(text);
            if (parts != nullptr && text.settings.empty()) make_pytorch(*parts, options);
          },
          true};
}

constexpr Policy one_pool(Policy policy) {
  policy.is_one_pool = true;
  return policy;
}

constexpr Policy kPolicies[] = {
    policy<MappedPolicy<LearningOptions>, make_memoir>(
        "memoir", "memoir's device pool: best fit; memory is mapped where it is needed; loops are planned"),
    policy<MappedPolicy<DevicePoolOptions>, make_guided>("guided",
                                                         "the same, following a plan of this very trace"),
    policy<NoOptions, make_planned>("planned", "an offline plan of the whole trace: what can be reached"),
    policy<SpanOptions, make_span>("span",
                                   "best fit by address in one mapped arena; does not look at streams"),
    policy<NoOptions, make_direct>("direct", "no pool: every object is the device's own allocation"),
    one_pool(policy<StaticTensorsOptions, make_static_tensors, static_tensors_options>(
        "static_tensors",
        "DSC's fixed tables over one pool secured at the start; 256 bytes and as many buffers as it needs "
        "unless told; does not look at streams")),
    policy<FinalizedPolicy<BinnedOptions>, make_finalized<BinnedHeap>>(
        "binned", "CuArrays.jl's bins of powers of two, each block a segment"),
    policy<FinalizedPolicy<SplitOptions>, make_finalized<SplitHeap>>(
        "split", "CuArrays.jl's best fit in three classes over split segments"),
    policy<RmmOptions, make_rmm>("rmm", "RAPIDS Memory Manager's pool, which never gives memory back"),
    pytorch_policy("pytorch", "PyTorch's caching allocator, by default over cudaMalloc"),
    pytorch_policy("expandable", "PyTorch's caching allocator with expandable_segments:True"),
};

const Policy& find(const PolicyText& text) {
  std::vector<std::string> names;
  for (const Policy& policy : kPolicies) {
    if (policy.name == text.name) return policy;
    names.emplace_back(policy.name);
  }
  refuse_policy("policy", text.name, names);
}

/// Reads `text` and, with parts, makes the heap.
void resolve(std::string_view text, PolicyParts* parts) {
  PolicyText parsed = read_policy_text(text);
  const Policy& policy = find(parsed);
  policy.make(parts, parsed);
  refuse_unknown_settings(parsed, policy.settings());
}

}  // namespace

std::vector<PolicyInfo> policies() {
  std::vector<PolicyInfo> infos;
  for (const Policy& policy : kPolicies) {
    infos.push_back({std::string(policy.name), std::string(policy.what), policy.settings()});
  }
  return infos;
}

void check_policy(std::string_view text) { resolve(text, nullptr); }

std::unique_ptr<SimulatedHeap> make_policy(std::string_view text, const Workload& workload, Size cap,
                                           bool with_phases, const RecordedStart* start) {
  auto made = std::make_unique<SimulatedHeap>();
  made->memory_.limit = cap;
  const auto make = [&](SimulatedHeap& to, const Workload& of, bool keeps) {
    PolicyParts parts{to, of, cap, with_phases && !keeps, start, made->memory_, keeps};
    resolve(text, &parts);
  };
  const Policy& policy = find(read_policy_text(text));
  if (workload.pools() == 1 || policy.is_pytorch || policy.is_one_pool) {
    make(*made, workload, false);
  } else {
    const std::vector<Workload> parts = workload.by_pool();
    make(*made, parts[0], false);
    for (size_t pool = 1; pool < parts.size(); ++pool) {
      made->private_.push_back(std::make_unique<SimulatedHeap>());
      make(*made->private_.back(), parts[pool], true);
    }
  }
  made->heaps_.assign(workload.pools(), made->heap_.get());
  for (size_t i = 0; i < made->private_.size(); ++i) made->heaps_[i + 1] = made->private_[i]->heap_.get();
  return made;
}

bool can_start_from(std::string_view text, const RecordedStart& start) {
  PolicyText parsed = read_policy_text(text);
  return find(parsed).is_pytorch && take_pytorch_settings(parsed).expandable_segments == start.expandable;
}

std::string torch_settings(std::string_view text) {
  PolicyText parsed = read_policy_text(text);
  return find(parsed).is_pytorch ? take_pytorch_settings(parsed).text() : "";
}

}  // namespace memoir
