// SPDX-License-Identifier: Apache-2.0
#include "memoir/run/policies.h"

#include <algorithm>

#include "memoir/base/error.h"
#include "memoir/heap/binned_heap.h"
#include "memoir/heap/device_pool_heap.h"
#include "memoir/heap/expandable_heap.h"
#include "memoir/heap/pytorch_heap.h"
#include "memoir/heap/rmm_heap.h"
#include "memoir/heap/span_heap.h"
#include "memoir/heap/split_heap.h"
#include "memoir/heap/static_tensors_heap.h"
#include "memoir/run/finalized_heap.h"
#include "memoir/run/guided_run.h"
#include "memoir/run/planned_slab.h"

namespace memoir {

DeviceCalls SimulatedHeap::calls() const noexcept {
  DeviceCalls calls = segments_ ? segments_->calls() : DeviceCalls{};
  if (arena_) {
    calls.commits += arena_->commits();
    calls.decommits += arena_->decommits();
    calls.refusals += arena_->refusals();
  }
  return calls;
}

/// What a policy's recipe has to hand.
struct PolicyParts {
  SimulatedHeap& made;
  const Workload& workload;
  Size cap;
  bool with_phases;

  Segments& segments() {
    made.segments_ = std::make_unique<SimSegments>(cap);
    if (!made.segments_->ok()) throw Error("no memory for the simulated device's bookkeeping");
    return *made.segments_;
  }
  /// `times` the workload's peak: room for whatever holes a heap leaves.
  Arena& arena(Size granule, Size times = 16) {
    if (!is_power_of_two(granule) || granule < 512 || granule > kGiB)
      throw Error("granule=" + bytes_setting(granule) +
                  ": it must be a power of two from 512 bytes to 1 GiB");
    const Size peak = std::min(workload.peak_live(), Size{1} << 50);
    const Size capacity = align_up(std::max(times * peak, 64 * kMiB), granule);
    made.arena_ = std::make_unique<SimArena>(capacity, SimArenaOptions{granule, cap});
    if (!made.arena_->ok())
      throw Error("no memory for the simulated arena's bookkeeping; try a larger granule");
    return *made.arena_;
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
  /// Puts the heap that was made behind the finalizers that it asks.
  void finalize(std::unique_ptr<FinalizerModel> finalizers) {
    made.heap_ = std::make_unique<FinalizedHeap>(std::move(finalizers), std::move(made.heap_));
  }
  void on_pass(std::function<void()> call) { made.on_pass_ = std::move(call); }
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
  parts.heap<SpanHeap>(parts.arena(options.granule));
}

struct PlannedOptions {
  static constexpr auto fields() { return std::tuple{}; }
};

void make_planned(PolicyParts& parts, const PlannedOptions&) {
  parts.heap<PlannedSlab>(parts.workload, parts.segments(), parts.cap);
}

struct StaticPolicy : StaticTensorsOptions {
  StaticPolicy() {  // as on a device, and (with 0) never short of buffers: what is looked for is memory
    alignment = 256;
    buffers = 0;
  }
};

void make_static(PolicyParts& parts, const StaticPolicy& policy) {
  constexpr Size kGranule = 64 * kKiB;
  Arena& arena = parts.arena(kGranule, 2);
  StaticTensorsOptions options = policy;
  if (options.pool == 0) options.pool = align_down(std::min(parts.cap, arena.capacity()), kGranule);
  if (options.buffers == 0) options.buffers = std::max<Size>(parts.workload.objects().size(), 1);
  if (options.pool > arena.capacity()) {
    throw Error("pool=" + bytes_setting(options.pool) + ": more than the " + bytes_setting(arena.capacity()) +
                " that a simulation of this trace has room for; take a smaller pool");
  }
  parts.heap<StaticTensorsHeap>(arena, options);
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
  PhaseTable* const phases = parts.phases();
  if (policy.finalizer_delay == 0) {
    parts.heap<H>(segments, policy, nullptr, nullptr, phases);
    return;
  }
  auto finalizers = std::make_unique<FinalizerModel>(
      FinalizerOptions{.delay = policy.finalizer_delay, .young = policy.finalizer_young});
  FinalizerModel* const collector = finalizers.get();
  parts.heap<H>(segments, policy, collector, nullptr, phases);
  parts.finalize(std::move(finalizers));
}

void make_rmm(PolicyParts& parts, const RmmOptions& options) {
  Segments& segments = parts.segments();
  parts.heap<RmmHeap>(segments, options, nullptr, parts.phases());
}

struct MemoirOptions : DevicePoolOptions {
  Size granule = 2 * kMiB;

  static constexpr auto fields() {
    return std::tuple_cat(DevicePoolOptions::fields(),
                          std::tuple{OptionField{"granule", &MemoirOptions::granule,
                                                 "bytes that are mapped at a time, a power of two"}});
  }
};

void make_memoir(PolicyParts& parts, const MemoirOptions& options) {
  parts.heap<DevicePoolHeap>(parts.arena(options.granule, 8), options, parts.order());
}

void make_guided(PolicyParts& parts, const MemoirOptions& options) {
  parts.heap<GuidedRun>(parts.workload, parts.arena(options.granule, 8), options, parts.order());
}

/// Settings of PyTorch's allocator: memoir's names of them, or PyTorch's own text as conf=[...].
struct PyTorchPolicy : PyTorchOptions {};

template <bool kExpandable>
void make_pytorch(PolicyParts& parts, const PyTorchPolicy& policy) {
  PyTorchOptions options = policy;
  if (options.device_memory == 0 && parts.cap != kNoCap) options.device_memory = parts.cap;
  if (options.device_memory == 0 && options.per_process_memory_fraction < 1) {
    throw Error("per_process_memory_fraction=" + detail::number_text(options.per_process_memory_fraction) +
                ": of what? Set device_memory or a cap");
  }
  if (!kExpandable && !options.expandable_segments) {
    Segments& segments = parts.segments();
    parts.heap<PyTorchHeap>(segments, options, nullptr, parts.phases());
    return;
  }
  // Two areas of addresses for every stream, and some more.
  const Size peak = std::clamp(parts.workload.peak_live(), Size{1}, Size{1} << 44);
  if (options.device_memory == 0) options.device_memory = std::max(2 * peak, 8 * kMiB);
  const Size device = std::min(options.device_memory, Size{1} << 46);
  const Size area = device + device / 8 + 2 * (options.large_segment_size + 2 * kMiB);
  const Size areas = 2 * parts.workload.streams() + 2;
  Arena& arena = parts.arena(2 * kMiB, areas * area / peak + 1);
  parts.heap<ExpandableHeap>(arena, options, nullptr, parts.phases());
}

struct Policy {
  std::string_view name;
  std::string_view what;
  std::vector<SettingInfo> (*settings)();
  void (*make)(PolicyParts* parts, std::vector<Setting>& settings, std::string_view name);
};

template <class Options>
std::vector<SettingInfo> infos_of() {
  std::vector<SettingInfo> infos = settings_of<Options>();
  if constexpr (std::is_same_v<Options, PyTorchPolicy>) {
    infos.insert(infos.begin(),
                 {"conf", "text", "[]", "PYTORCH_CUDA_ALLOC_CONF, in brackets; the others count after it"});
  }
  return infos;
}

template <class Options>
void read_settings(Options& options, std::vector<Setting>& settings, std::string_view name) {
  if constexpr (std::is_same_v<Options, PyTorchPolicy>) {
    std::erase_if(settings, [&](const Setting& setting) {
      if (setting.key != "conf") return false;
      std::string_view text = setting.value;
      if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
      static_cast<PyTorchOptions&>(options) = PyTorchOptions::parse(text);
      return true;
    });
  }
  take_settings(options, settings, name);
}

/// A row of the list: settings are parsed into Options and, when there are parts, given to Make.
template <class Options, void (*Make)(PolicyParts&, const Options&)>
constexpr Policy policy(std::string_view name, std::string_view what) {
  return {name, what, &infos_of<Options>,
          [](PolicyParts* parts, std::vector<Setting>& settings, std::string_view text) {
            Options options;
            read_settings(options, settings, text);
            if (parts != nullptr && settings.empty()) Make(*parts, options);
          }};
}

constexpr Policy kPolicies[] = {
    policy<MemoirOptions, make_memoir>("memoir",
                                       "memoir's device pool: best fit; memory is mapped where it is needed"),
    policy<MemoirOptions, make_guided>("guided", "the same, following a plan of this very trace"),
    policy<PlannedOptions, make_planned>("planned",
                                         "an offline plan of the whole trace: what can be reached"),
    policy<SpanOptions, make_span>("span",
                                   "best fit by address in one mapped arena; does not look at streams"),
    policy<StaticPolicy, make_static>(
        "static",
        "DSC's best fit in one pool, secured at the start (the cap, else twice the peak); one stream"),
    policy<PyTorchPolicy, make_pytorch<false>>(
        "pytorch", "PyTorch's caching allocator, default or as conf says: the free blocks of each stream"),
    policy<PyTorchPolicy, make_pytorch<true>>("expandable", "the same with expandable_segments:True"),
    policy<FinalizedPolicy<BinnedOptions>, make_finalized<BinnedHeap>>(
        "binned", "CuArrays.jl's bins of powers of two, each block a segment; does not look at streams"),
    policy<FinalizedPolicy<SplitOptions>, make_finalized<SplitHeap>>(
        "split", "CuArrays.jl's best fit in three classes over split segments; does not look at streams"),
    policy<RmmOptions, make_rmm>("rmm",
                                 "RMM's pool: best fit by stream, grows by doubling, gives nothing back"),
};

/// Parses `text` and, with parts, makes the heap.
void resolve(std::string_view text, PolicyParts* parts) {
  const size_t comma = text.find(',');
  const std::string name(text.substr(0, comma));
  const auto* found = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                   [&](const Policy& policy) { return policy.name == name; });
  if (found == std::end(kPolicies)) {
    std::vector<std::string> names;
    std::string list;
    for (const Policy& policy : kPolicies) {
      names.emplace_back(policy.name);
      list += (list.empty() ? "" : ", ") + names.back();
    }
    throw Error("there is no policy '" + name + "'" + near_spelling(name, names) + " (policies: " + list +
                ")");
  }
  std::vector<Setting> settings =
      comma == text.npos ? std::vector<Setting>{} : split_settings(text.substr(comma + 1));
  for (size_t i = 0; i < settings.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (settings[i].key == settings[j].key)
        throw Error("policy '" + name + "': " + settings[i].key + " is set twice");
    }
  }
  found->make(parts, settings, name);
  if (settings.empty()) return;
  std::vector<std::string> names;
  std::string list;
  for (const SettingInfo& info : found->settings()) {
    names.push_back(info.name);
    list += (list.empty() ? "" : ", ") + info.name;
  }
  const std::string& key = settings.front().key;
  throw Error("policy '" + name + "' has no setting '" + key + "'" + near_spelling(key, names) +
              (list.empty() ? " (it has none)" : " (settings: " + list + ")"));
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
                                           bool with_phases) {
  auto made = std::make_unique<SimulatedHeap>();
  PolicyParts parts{*made, workload, cap, with_phases};
  resolve(text, &parts);
  return made;
}

}  // namespace memoir
