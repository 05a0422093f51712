// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/device_heap.h"

#include <algorithm>

#include "memoir/base/error.h"
#include "memoir/heap/classic/binned_heap.h"
#include "memoir/heap/classic/direct_heap.h"
#include "memoir/heap/classic/rmm_heap.h"
#include "memoir/heap/classic/span_heap.h"
#include "memoir/heap/classic/split_heap.h"
#include "memoir/heap/classic/static_tensors_heap.h"
#include "memoir/heap/pytorch/expandable_heap.h"
#include "memoir/heap/pytorch/pytorch_heap.h"
#include "memoir/policy/policy_text.h"

namespace memoir {

void DeviceHeap::keep(bool keep) noexcept {
  if (arena_) arena_->keep(keep);
  if (segments_) segments_->keep(keep);
}

void DeviceHeap::share_mapped() noexcept {
  if (arena_) arena_->share_mapped();
}

void DeviceHeap::trim() noexcept {
  heap_->trim();
  if (arena_) arena_->reclaim();
  if (segments_) segments_->reclaim();
}

/// How memory is taken from the device: settings that every policy over mapped memory has beside its own.
struct MappedOptions {
  Size piece = 0;
  Size addresses = 0;
  bool peers = false;

  static constexpr auto fields() {
    return std::tuple{
        OptionField{"piece", &MappedOptions::piece,
                    "bytes: the most that one handle of physical memory covers, a power of two; 0 is one "
                    "granule"},
        OptionField{"addresses", &MappedOptions::addresses,
                    "times: addresses reserved, in multiples of the device's memory; 0 is 8, and 36 for "
                    "expandable segments"},
        OptionField{"peers", &MappedOptions::peers,
                    "all other GPUs may use the memory, not only those that memoir serves as well"}};
  }
};

struct NoOptions {
  static constexpr auto fields() { return std::tuple{}; }
};

/// What a row of the list has to hand.
class DeviceHeapMaker {
 public:
  DeviceHeapMaker(const DeviceParts& parts, const MappedOptions& mapped) : parts_(parts), mapped_(mapped) {}

  /// `addresses`: how many times the device's memory, where the settings do not say.
  CudaArena& arena(Size addresses = 8) {
    const CudaDevice& device = parts_.device;
    if (device.granularity() == 0) {
      throw Error(std::string(device.name()) +
                  " cannot map memory; a policy over plain memory, such as split, can be used");
    }
    if (mapped_.peers) parts_.device.admit_all();
    const Size times = std::clamp<Size>(mapped_.addresses == 0 ? addresses : mapped_.addresses, 1, 1024);
    made_->arena_ =
        std::make_unique<CudaArena>(parts_.device, times * device.total(), CudaArenaOptions{mapped_.piece});
    if (!made_->arena_->ok()) {
      throw Error("no addresses for the device's memory (" + std::string(device.last_failure()) +
                  "): try fewer, with addresses=1, and a piece that is a power of two");
    }
    return *made_->arena_;
  }
  /// After the arena, where there is one: at offsets beyond it.
  CudaSegments& segments() {
    made_->segments_ =
        std::make_unique<CudaSegments>(parts_.device, made_->arena_ ? made_->arena_->capacity() : 0);
    return *made_->segments_;
  }
  /// What PyTorch's options leave to be known of the device.
  PyTorchOptions sized(PyTorchOptions options) const {
    if (options.device_memory == 0) options.device_memory = parts_.device.total();
    return options;
  }
  StreamOrder* order() const { return &parts_.streams; }
  bool keeps() const { return parts_.keeps; }
  Collector* collector() const { return parts_.collector; }

  template <class H, class... Arguments>
  H& heap(Arguments&&... arguments) {
    auto heap = std::make_unique<H>(std::forward<Arguments>(arguments)...);
    if (!heap->ok())
      throw Error("the pool cannot be: its options are impossible, or its memory is not there");
    H& result = *heap;
    made_->heap_ = std::move(heap);
    return result;
  }
  void learning(const LearningPool& pool) { made_->learning_ = &pool; }
  std::unique_ptr<DeviceHeap> done() { return std::move(made_); }

 private:
  const DeviceParts& parts_;
  const MappedOptions& mapped_;
  std::unique_ptr<DeviceHeap> made_ = std::make_unique<DeviceHeap>();
};

namespace {

enum Trait : unsigned {
  kMapped = 1,       // over mapped memory: has the settings of MappedOptions
  kSeesStreams = 2,  // keeps streams apart, or orders them, itself
  kPlain = 4         // every request is for plain memory
};

struct Row {
  std::string_view name;
  std::string_view what;
  unsigned traits;
  std::vector<SettingInfo> (*settings)();
  /// Takes the policy's settings out of the text.
  std::function<void(DeviceHeapMaker&)> (*choose)(PolicyText& text);
};

/// A row of the list: the settings are parsed into Options, once, and given to Make for every pool.
template <class Options, auto Make>
constexpr Row row(std::string_view name, std::string_view what, unsigned traits) {
  return {name, what, traits, &settings_of<Options>,
          [](PolicyText& text) -> std::function<void(DeviceHeapMaker&)> {
            Options options;
            take_settings(options, text.settings, text.name);
            return [options](DeviceHeapMaker& maker) { Make(maker, options); };
          }};
}

void make_memoir(DeviceHeapMaker& maker, LearningOptions options) {
  CudaArena& arena = maker.arena();
  options.learn &= !maker.keeps();
  maker.learning(maker.heap<LearningPool>(arena, options, maker.order(), &maker.segments()));
}
void make_pytorch(DeviceHeapMaker& maker, const PyTorchOptions& options) {
  if (options.expandable_segments) {
    // An area for each stream and pool: those of 16 streams.
    maker.heap<ExpandableHeap>(maker.arena(36), maker.sized(options), maker.collector());
  } else {
    maker.heap<PyTorchHeap>(maker.segments(), maker.sized(options), maker.collector());
  }
}
void make_split(DeviceHeapMaker& maker, const SplitOptions& options) {
  maker.heap<SplitHeap>(maker.segments(), options, maker.collector(), maker.order());
}
void make_binned(DeviceHeapMaker& maker, const BinnedOptions& options) {
  maker.heap<BinnedHeap>(maker.segments(), options, maker.collector(), maker.order());
}
void make_rmm(DeviceHeapMaker& maker, const RmmOptions& options) {
  maker.heap<RmmHeap>(maker.segments(), options, maker.order());
}
void make_static(DeviceHeapMaker& maker, const StaticTensorsOptions& options) {
  if (options.pool == 0)
    throw Error("static_tensors secures its memory at the start: say how much, with pool=8GiB");
  StaticTensorsOptions on_device = options;
  on_device.alignment = std::max(options.alignment, DirectHeap::kAlignment);
  maker.heap<StaticTensorsHeap>(maker.arena(), on_device);
}
void make_span(DeviceHeapMaker& maker, const NoOptions&) { maker.heap<SpanHeap>(maker.arena()); }
void make_direct(DeviceHeapMaker& maker, const NoOptions&) { maker.heap<DirectHeap>(maker.segments()); }

constexpr Row pytorch_row(std::string_view name, std::string_view what, unsigned traits) {
  return {name, what, traits, &pytorch_settings,
          [](PolicyText& text) -> std::function<void(DeviceHeapMaker&)> {
            const PyTorchOptions options = take_pytorch_settings(text);
            return [options](DeviceHeapMaker& maker) { make_pytorch(maker, options); };
          }};
}

constexpr Row kRows[] = {
    row<LearningOptions, make_memoir>("memoir", "memoir's own pool, over mapped memory",
                                      kMapped | kSeesStreams),
    row<LearningOptions, make_memoir>(
        "memoir_plain", "the same over plain memory, which other processes and NICs can register",
        kMapped | kSeesStreams | kPlain),
    pytorch_row("pytorch", "PyTorch's caching allocator", kMapped | kSeesStreams),
    pytorch_row("expandable", "PyTorch's caching allocator with expandable segments", kMapped | kSeesStreams),
    row<SplitOptions, make_split>("split", "CuArrays.jl's splitting pool", kSeesStreams),
    row<BinnedOptions, make_binned>("binned", "CuArrays.jl's bins of powers of two", kSeesStreams),
    row<RmmOptions, make_rmm>("rmm", "RMM's pool: a list of free blocks per stream", kSeesStreams),
    row<StaticTensorsOptions, make_static>("static_tensors",
                                           "all memory secured at the start, a pool per stream", kMapped),
    row<NoOptions, make_span>("span", "best fit by address in mapped memory, a pool per stream", kMapped),
    row<NoOptions, make_direct>("direct", "no pool: every object is the device's own allocation", 0),
};

std::vector<SettingInfo> all_settings(const Row& row) {
  std::vector<SettingInfo> settings = row.settings();
  if ((row.traits & kMapped) != 0) {
    for (SettingInfo& info : settings_of<MappedOptions>()) settings.push_back(std::move(info));
  }
  return settings;
}

const Row& row_of(std::string_view name) {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (row.name == name) return row;
    names.emplace_back(row.name);
  }
  refuse_policy("device policy", name, names);
}

}  // namespace

DevicePolicy device_policy(std::string_view text) {
  PolicyText parsed = read_policy_text(text);
  const Row& row = row_of(parsed.name);
  MappedOptions mapped;
  if ((row.traits & kMapped) != 0) take_settings(mapped, parsed.settings, parsed.name);
  const auto make = row.choose(parsed);
  refuse_unknown_settings(parsed, all_settings(row));
  return {std::string(text), (row.traits & kPlain) != 0, (row.traits & kSeesStreams) != 0,
          [make, mapped](const DeviceParts& parts) {
            DeviceHeapMaker maker(parts, mapped);
            make(maker);
            return maker.done();
          }};
}

std::vector<DevicePolicyInfo> device_policies() {
  std::vector<DevicePolicyInfo> infos;
  for (const Row& row : kRows) {
    infos.push_back({std::string(row.name), std::string(row.what), all_settings(row)});
  }
  return infos;
}

}  // namespace memoir
