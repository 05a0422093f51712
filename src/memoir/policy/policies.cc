// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/policies.h"

#include <algorithm>

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
#include "memoir/plan/files/plan_file.h"
#include "memoir/policy/guided_run_heap.h"
#include "memoir/policy/high_water_heap.h"
#include "memoir/policy/option_limits.h"
#include "memoir/policy/planned_slab_heap.h"
#include "memoir/policy/policy_text.h"

namespace memoir {

namespace {

// --- recipes ---

PolicyHeap make_memoir(Parts& parts, const LearningOptions& options) {
  Arena& arena = parts.arena();
  check_pool_alignment(options.alignment, arena.granule());
  LearningOptions own = options;
  own.learn &= !parts.keeps();
  auto heap = make_heap<LearningHeap>(arena, own, parts.order(), &parts.segments(), parts.planner());
  const auto plans = [&pool = *heap] { return pool.counters(); };
  return {.heap = std::move(heap), .plans = plans};
}

struct GuidedOptions : DevicePoolOptions {
  std::string plan = {};
  std::shared_ptr<const ProgramPlan> read = nullptr;  // of that file

  static constexpr auto fields() {
    return std::tuple_cat(DevicePoolOptions::fields(),
                          std::tuple{OptionField{"plan", &GuidedOptions::plan, Unit::kText,
                                                 "the plan file to follow; in a simulation without one, a "
                                                 "plan of the same trace"}});
  }
  void prepare() {
    if (!plan.empty()) read = std::make_shared<const ProgramPlan>(open_plan(plan));
  }
};

PolicyHeap make_guided(Parts& parts, const GuidedOptions& options) {
  const RecordedPlan plan =
      options.read == nullptr ? parts.guiding_plan(options.alignment) : parts.part_of(*options.read);
  for (const PlannedAllocation& allocation : plan.sequence) {
    if (!allocation.planned() || allocation.offset % options.alignment == 0) continue;
    throw Error(options.plan + ": its offsets are not multiples of the pool's alignment, " +
                bytes_setting(options.alignment) + "; make it with memoir plan --planner guided");
  }
  Arena& arena = parts.arena();
  check_pool_alignment(options.alignment, arena.granule());
  auto heap = make_heap<GuidedRunHeap>(plan, arena, options, parts.order(), &parts.segments(), !parts.keeps(),
                                       parts.planner());
  const auto plans = [&run = *heap] { return run.counters(); };
  return {.heap = std::move(heap), .plans = plans};
}

struct NoOptions {
  static constexpr auto fields() { return std::tuple{}; }
};

PolicyHeap make_planned(Parts& parts, const NoOptions&) {
  return {.heap = make_heap<PlannedSlabHeap>(parts.plan(1), parts.segments(), parts.left())};
}

PolicyHeap make_span(Parts& parts, const NoOptions&) { return {.heap = make_heap<SpanHeap>(parts.arena())}; }

PolicyHeap make_direct(Parts& parts, const NoOptions&) {
  return {.heap = make_heap<DirectHeap>(parts.segments())};
}

/// The heap's own, but for device memory: what devices align to, and as many buffers as are needed.
struct StaticPolicyOptions {
  Size pool = 0;
  Size buffers = 0;
  Size alignment = DirectHeap::kAlignment;

  static constexpr auto fields() {
    using Options = StaticPolicyOptions;
    return std::tuple{
        OptionField{
            "pool", &Options::pool, Unit::kBytes,
            "memory to take at the start for each stream; 0: in a simulation of one stream the cap, else "
            "as much as objects reach"},
        OptionField{"buffers", &Options::buffers, Unit::kCount,
                    "most objects live at once; 0: as many as a simulated trace needs, 65,536 on a device"},
        OptionField{"alignment", &Options::alignment, Unit::kBytes,
                    "of every object, a power of two from 256"}};
  }
};

template <class H>
PolicyHeap with_reason(std::unique_ptr<H> heap) {
  const auto why = [&pool = *heap]() -> std::string { return StaticTensorsHeap::describe(pool.refusal()); };
  return {.heap = std::move(heap), .why = why};
}

PolicyHeap make_static_tensors(Parts& parts, const StaticPolicyOptions& options) {
  StaticTensorsOptions secured{
      .pool = options.pool,
      .buffers = options.buffers != 0 ? options.buffers : std::max<Size>(parts.most_objects(), 1),
      .alignment = std::max(options.alignment, DirectHeap::kAlignment)};
  if (secured.pool == 0 && parts.is_alone()) secured.pool = align_down(parts.device_memory(), 2 * kMiB);
  const auto cannot = [&](StaticTensorsHeap::Refusal why) {
    return Error("policy 'static_tensors': a pool of " + bytes_setting(secured.pool) +
                 " does not fit where " + bytes_setting(parts.left()) +
                 " are left: " + StaticTensorsHeap::describe(why));
  };
  // Refused before an arena is made: its bookkeeping grows with the pool, however little memory there is.
  if (secured.pool > parts.left()) throw cannot(StaticTensorsHeap::Refusal::kNotSecured);
  Arena& arena = parts.arena(secured.pool);
  if (secured.pool == 0) return with_reason(make_heap<HighWaterHeap>(arena, secured));
  auto heap = std::make_unique<StaticTensorsHeap>(arena, secured);
  if (!heap->ok()) throw cannot(heap->refusal());
  return with_reason(std::move(heap));
}

PolicyHeap make_binned(Parts& parts, const BinnedOptions& options) {
  return {.heap = make_heap<BinnedHeap>(parts.segments(), options, parts.collector(), parts.order(),
                                        parts.phases())};
}
PolicyHeap make_split(Parts& parts, const SplitOptions& options) {
  return {.heap = make_heap<SplitHeap>(parts.segments(), options, parts.collector(), parts.order(),
                                       parts.phases())};
}
PolicyHeap make_rmm(Parts& parts, const RmmOptions& options) {
  return {.heap = make_heap<RmmHeap>(parts.segments(), options, parts.order(), parts.phases())};
}

PolicyHeap make_rmm_arena(Parts& parts, const RmmArenaOptions& options) {
  const Size left = parts.left();
  Size size = options.size;
  if (size == 0 && options.part != 0) {
    if (parts.device_memory() == 0)
      throw Error("part=" + detail::number_text(options.part) + ": of what? Set a size or a cap");
    size = align_down(static_cast<Size>(options.part * static_cast<double>(left)), 2 * kMiB);
    size = std::max(size, RmmArenaHeap::kSuperblock);
  }
  // Refused before an arena is made: its bookkeeping grows with the size, however little memory there is.
  if (size > left) {
    throw Error("policy 'rmm_arena': " + bytes_setting(size) + " cannot be taken where " +
                bytes_setting(left) + " are left");
  }
  return {.heap = make_heap<RmmArenaHeap>(parts.arena(size), size, parts.order())};
}

PolicyHeap make_lifetime(Parts& parts, const LifetimeOptions& options) {
  return {.heap = make_heap<MallocHeap>(parts.arena(), options)};
}
PolicyHeap make_llama(Parts& parts, const LlamaOptions& options) {
  return {.heap = make_heap<LlamaHeap>(parts.arena(), options)};
}
template <Size kPage>
PolicyHeap make_sized(Parts& parts, const NoOptions&) {
  return {.heap = make_heap<SizeClassHeap>(parts.arena(), SizeClassOptions{.page = kPage})};
}

template <class H, class Memory>
PolicyHeap make_pytorch_over(Parts& parts, Memory& memory, const PyTorchOptions& options) {
  auto heap = make_heap<H>(memory, options, parts.collector(), parts.phases());
  parts.prepare(*heap);
  PyTorchPools* const pools = heap.get();
  return {.heap = std::move(heap), .pytorch = pools};
}

PolicyHeap make_pytorch(Parts& parts, PyTorchOptions options) {
  if (options.device_memory == 0) options.device_memory = parts.device_memory();
  if (options.device_memory == 0 && options.per_process_memory_fraction < 1) {
    throw Error("per_process_memory_fraction=" + detail::number_text(options.per_process_memory_fraction) +
                ": of what? Set device_memory or a cap");
  }
  if (!options.expandable_segments) return make_pytorch_over<PyTorchHeap>(parts, parts.segments(), options);
  // For each pool and stream an area of addresses for small objects and one for large ones, 9/8 of the
  // device's memory long.
  if (options.device_memory == 0) options.device_memory = parts.likely_device_memory();
  const Size device = std::min(options.device_memory, Size{1} << 46);
  const Size area = device + device / 8 + 2 * (std::min(options.large_segment_size, device) + 2 * kMiB);
  return make_pytorch_over<ExpandableHeap>(parts, parts.arena(parts.expandable_areas() * area), options);
}

// --- the list ---

struct Row {
  std::string_view name;
  std::string_view what;
  unsigned substrates;
  PolicyTraits traits;
  std::vector<SettingInfo> (*settings)();
  /// Takes the policy's own settings out of the text; the rest is for the caller.
  void (*read)(PolicyText& text, Policy& policy);
};

/// A row whose own settings are those of Options: parsed once, and given to Make for every heap.
template <class Options, auto Make>
constexpr Row row(std::string_view name, std::string_view what, unsigned substrates, PolicyTraits traits) {
  return {name, what, substrates, traits, &settings_of<Options>, [](PolicyText& text, Policy& policy) {
            Options options;
            take_settings(options, text.settings, text.name);
            if constexpr (requires { check_options(options, ""); }) check_options(options, text.name);
            if constexpr (requires { options.prepare(); }) options.prepare();
            if constexpr (requires { options.lifetime_unit(); })
              policy.lifetime_unit = options.lifetime_unit();
            policy.make = [options](Parts& parts) { return Make(parts, options); };
          }};
}

constexpr Row pytorch_row(std::string_view name, std::string_view what, unsigned substrates,
                          PolicyTraits traits) {
  return {name, what, substrates, traits, &pytorch_settings, [](PolicyText& text, Policy& policy) {
            const PyTorchOptions options = take_pytorch_settings(text);
            policy.make = [options](Parts& parts) { return make_pytorch(parts, options); };
          }};
}

constexpr unsigned kSim = static_cast<unsigned>(Substrate::kSimulation);
constexpr unsigned kHost = static_cast<unsigned>(Substrate::kHost);
constexpr unsigned kDev = static_cast<unsigned>(Substrate::kDevice);

constexpr Row kRows[] = {
    row<LearningOptions, make_memoir>(
        "memoir", "memoir's device pool: best fit; memory is mapped where it is needed; loops are planned",
        kSim | kDev, {.mapped = true, .sees_streams = true, .tensors = true}),
    row<LearningOptions, make_memoir>(
        "memoir_plain", "the same over plain memory, which other processes and NICs can register",
        kSim | kDev, {.mapped = true, .plain = true, .sees_streams = true}),
    row<GuidedOptions, make_guided>("guided", "memoir's pool, following a plan of an earlier run",
                                    kSim | kDev, {.mapped = true, .sees_streams = true, .tensors = true}),
    row<LifetimeOptions, make_lifetime>(
        "lifetime", "memoir's malloc: two classes of lifetimes, learned; pages go back when load falls", kSim,
        {.sees_streams = true, .page = 4 * kKiB, .lifetimes = LifetimeScale::kAllocation, .mallocs = true}),
    row<NoOptions, make_planned>("planned", "an offline plan of the whole trace: what can be reached", kSim,
                                 {.sees_streams = true, .tensors = true}),
    row<NoOptions, make_span>("span", "best fit by address in mapped memory, a pool per stream", kSim | kDev,
                              {.mapped = true, .mallocs = true}),
    row<NoOptions, make_direct>("direct", "no pool: every object is the device's own allocation", kSim | kDev,
                                {}),
    row<StaticPolicyOptions, make_static_tensors>(
        "static_tensors", "DSC's fixed tables over memory taken at the start, a pool per stream",
        kSim | kHost | kDev, {.mapped = true}),
    pytorch_row("pytorch", "PyTorch's caching allocator, by default over cudaMalloc", kSim | kDev,
                {.mapped = true, .sees_streams = true, .pytorch = true, .tensors = true}),
    pytorch_row("expandable", "PyTorch's caching allocator with expandable_segments:True", kSim | kDev,
                {.mapped = true, .sees_streams = true, .pytorch = true, .tensors = true}),
    row<BinnedOptions, make_binned>("binned", "CuArrays.jl's bins of powers of two, each block a segment",
                                    kSim | kDev, {.sees_streams = true, .finalizers = true, .peer = true}),
    row<SplitOptions, make_split>("split", "CuArrays.jl's best fit in three classes over split segments",
                                  kSim | kDev, {.sees_streams = true, .finalizers = true, .peer = true}),
    row<RmmOptions, make_rmm>("rmm", "RAPIDS Memory Manager's pool, which never gives memory back",
                              kSim | kDev, {.sees_streams = true, .peer = true}),
    row<RmmArenaOptions, make_rmm_arena>(
        "rmm_arena", "RAPIDS Memory Manager's arenas: superblocks of one piece of memory, lent to streams",
        kSim | kDev, {.mapped = true, .sees_streams = true, .peer = true}),
    row<LlamaOptions, make_llama>(
        "llama", "the LLAMA paper's heap: a lifetime class for each huge page, lines in spans", kSim,
        {.sees_streams = true, .page = 2 * kMiB, .lifetimes = LifetimeScale::kTime, .peer = true}),
    row<NoOptions, make_sized<8 * kKiB>>(
        "size_classes", "a malloc with size classes, in small pages: free spans go back at once", kSim,
        {.sees_streams = true, .page = 4 * kKiB, .peer = true}),
    row<NoOptions, make_sized<2 * kMiB>>("size_classes_huge", "the same in huge pages of 2 MiB", kSim,
                                         {.sees_streams = true, .page = 2 * kMiB, .peer = true}),
};

constexpr Substrate kSubstrates[] = {Substrate::kSimulation, Substrate::kHost, Substrate::kDevice};

bool is_on(const Row& row, Substrate substrate) noexcept {
  return (row.substrates & static_cast<unsigned>(substrate)) != 0;
}

std::vector<SettingInfo> settings_of_row(const Row& row) {
  std::vector<SettingInfo> settings = row.settings();
  const auto add = [&](std::vector<SettingInfo> more) {
    settings.insert(settings.end(), more.begin(), more.end());
  };
  if (row.traits.mapped) add(settings_of<MappedOptions>());
  if (row.traits.finalizers) add(settings_of<FinalizerSettings>());
  if (row.traits.lifetimes != LifetimeScale::kNone) add(settings_of<LifetimeSettings>());
  return settings;
}

const Row& find(const PolicyText& text) {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (row.name == text.name) return row;
    names.emplace_back(row.name);
  }
  refuse_policy(text.name, names);
}

/// "a simulation or a device"
std::string where_it_is(const Row& row) {
  std::string text;
  for (const Substrate substrate : kSubstrates) {
    if (!is_on(row, substrate)) continue;
    text += (text.empty() ? "a " : " or a ") + std::string(substrate_name(substrate));
  }
  return text;
}

Policy read(std::string_view text, const Row& row, PolicyText parsed) {
  Policy policy;
  policy.text = text;
  policy.traits = row.traits;
  if (row.traits.mapped) take_settings(policy.mapped, parsed.settings, parsed.name);
  if (row.traits.finalizers) take_settings(policy.finalizers, parsed.settings, parsed.name);
  if (row.traits.lifetimes != LifetimeScale::kNone)
    take_settings(policy.lifetimes, parsed.settings, parsed.name);
  row.read(parsed, policy);
  refuse_unknown_settings(parsed, settings_of_row(row));
  return policy;
}

}  // namespace

std::string_view substrate_name(Substrate substrate) noexcept {
  switch (substrate) {
    case Substrate::kSimulation:
      return "simulation";
    case Substrate::kHost:
      return "host";
    case Substrate::kDevice:
      return "device";
  }
  return "";
}

bool PolicyInfo::is_on(Substrate substrate) const noexcept {
  return std::find(substrates.begin(), substrates.end(), substrate) != substrates.end();
}

std::vector<PolicyInfo> policies() {
  std::vector<PolicyInfo> infos;
  for (const Row& row : kRows) {
    infos.push_back({std::string(row.name), std::string(row.what), {}, row.traits, settings_of_row(row)});
    for (const Substrate substrate : kSubstrates) {
      if (is_on(row, substrate)) infos.back().substrates.push_back(substrate);
    }
  }
  return infos;
}

std::vector<PolicyInfo> policies(Substrate substrate) {
  std::vector<PolicyInfo> infos = policies();
  std::erase_if(infos, [&](const PolicyInfo& info) { return !info.is_on(substrate); });
  return infos;
}

std::vector<std::string> default_policies(TracedMemory memory) {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    const bool in = memory == TracedMemory::kTensors ? row.traits.tensors : row.traits.mallocs;
    if (in) names.emplace_back(row.name);
  }
  return names;
}

Policy choose_policy(std::string_view text, Substrate substrate) {
  PolicyText parsed = read_policy_text(text);
  const Row& row = find(parsed);
  if (!is_on(row, substrate)) {
    std::string names;
    for (const PolicyInfo& info : policies(substrate)) names += (names.empty() ? "" : ", ") + info.name;
    throw Error("policy '" + parsed.name + "' is one of " + where_it_is(row) + ", not of a " +
                std::string(substrate_name(substrate)) + " (policies there: " + names + ")");
  }
  return read(text, row, std::move(parsed));
}

std::string torch_settings(std::string_view text) {
  PolicyText parsed = read_policy_text(text);
  const Row& row = find(parsed);
  if (!row.traits.pytorch) return "";
  MappedOptions mapped;
  take_settings(mapped, parsed.settings, parsed.name);
  return take_pytorch_settings(parsed).text();
}

}  // namespace memoir
