// SPDX-License-Identifier: Apache-2.0
#include "memoir/run/device_pool.h"

#include <algorithm>

#include "memoir/base/error.h"
#include "memoir/heap/direct_heap.h"
#include "memoir/heap/span_heap.h"
#include "memoir/heap/static_tensors_heap.h"

namespace memoir {

void DevicePool::keep(bool keep) noexcept {
  if (arena_) arena_->keep(keep);
  if (segments_) segments_->keep(keep);
}

void DevicePool::trim() noexcept {
  heap_->trim();
  if (arena_) arena_->reclaim();
  if (segments_) segments_->reclaim();
}

/// How memory is taken from the device: settings that every policy over mapped memory has beside its own.
struct MappedOptions {
  Size piece = 0;
  Size addresses = 8;

  static constexpr auto fields() {
    return std::tuple{
        OptionField{"piece", &MappedOptions::piece,
                    "bytes: the most that one handle of physical memory covers, a power of two; 0 is one "
                    "granule"},
        OptionField{"addresses", &MappedOptions::addresses,
                    "times: addresses reserved, in multiples of the device's memory"}};
  }
};

struct NoOptions {
  static constexpr auto fields() { return std::tuple{}; }
};

/// What a row of the list has to hand.
class DevicePoolMaker {
 public:
  DevicePoolMaker(const DeviceParts& parts, const MappedOptions& mapped) : parts_(parts), mapped_(mapped) {}

  CudaArena& arena() {
    const CudaDevice& device = parts_.device;
    if (device.granularity() == 0) {
      throw Error(std::string(device.name()) +
                  " cannot map memory; a policy over plain memory, such as split, can be used");
    }
    const Size times = std::clamp<Size>(mapped_.addresses, 1, 1024);
    made_->arena_ =
        std::make_unique<CudaArena>(parts_.device, times * device.total(), CudaArenaOptions{mapped_.piece});
    if (!made_->arena_->ok()) {
      throw Error("no addresses for the device's memory (" + std::string(device.last_failure()) +
                  "): try fewer, with addresses=1, and a piece that is a power of two");
    }
    return *made_->arena_;
  }
  CudaSegments& segments() {
    made_->segments_ = std::make_unique<CudaSegments>(parts_.device);
    return *made_->segments_;
  }
  StreamOrder* order() const { return &parts_.streams; }
  Collector* collector() const { return parts_.collector; }

  template <class H, class... Arguments>
  void heap(Arguments&&... arguments) {
    auto heap = std::make_unique<H>(std::forward<Arguments>(arguments)...);
    if (!heap->ok())
      throw Error("the pool cannot be: its options are impossible, or its memory is not there");
    made_->heap_ = std::move(heap);
  }
  std::unique_ptr<DevicePool> done() { return std::move(made_); }

 private:
  const DeviceParts& parts_;
  const MappedOptions& mapped_;
  std::unique_ptr<DevicePool> made_ = std::make_unique<DevicePool>();
};

namespace {

enum class Streams { kSeen, kBlind };
enum class Memory { kMapped, kPlain };

struct Row {
  std::string_view name;
  std::string_view what;
  Streams streams;
  Memory memory;
  std::vector<SettingInfo> (*settings)();
  std::function<void(DevicePoolMaker&)> (*choose)(std::vector<Setting>& settings, std::string_view name);
};

/// A row of the list: the settings are parsed into Options, once, and given to Make for every pool.
template <class Options, void (*Make)(DevicePoolMaker&, const Options&)>
constexpr Row row(std::string_view name, std::string_view what, Streams streams, Memory memory) {
  return {
      name,
      what,
      streams,
      memory,
      &settings_of<Options>,
      [](std::vector<Setting>& settings, std::string_view policy) -> std::function<void(DevicePoolMaker&)> {
        Options options;
        take_settings(options, settings, policy);
        return [options](DevicePoolMaker& maker) { Make(maker, options); };
      }};
}

void make_span(DevicePoolMaker& maker, const NoOptions&) { maker.heap<SpanHeap>(maker.arena()); }
void make_direct(DevicePoolMaker& maker, const NoOptions&) { maker.heap<DirectHeap>(maker.segments()); }

constexpr Row kRows[] = {
    row<NoOptions, make_direct>("direct", "no pool: every object is the device's own allocation",
                                Streams::kBlind, Memory::kPlain),
    row<NoOptions, make_span>("span", "best fit by address in mapped memory, a pool per stream",
                              Streams::kBlind, Memory::kMapped),
};

std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

std::vector<SettingInfo> all_settings(const Row& row) {
  std::vector<SettingInfo> settings = row.settings();
  if (row.memory == Memory::kMapped) {
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
  throw Error("there is no device policy '" + std::string(name) + "'" + near_spelling(name, names) +
              " (policies: " + listed(names) + ")");
}

}  // namespace

DevicePolicy device_policy(std::string_view text) {
  const size_t comma = text.find(',');
  const std::string name(text.substr(0, comma));
  const Row& row = row_of(name);
  std::vector<Setting> settings =
      comma == text.npos ? std::vector<Setting>{} : split_settings(text.substr(comma + 1));
  for (size_t i = 0; i < settings.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (settings[i].key == settings[j].key) {
        throw Error("policy '" + name + "': " + settings[i].key + " is set twice");
      }
    }
  }
  MappedOptions mapped;
  if (row.memory == Memory::kMapped) take_settings(mapped, settings, name);
  const auto make = row.choose(settings, name);
  if (!settings.empty()) {
    std::vector<std::string> names;
    for (const SettingInfo& info : all_settings(row)) names.push_back(info.name);
    const std::string& key = settings.front().key;
    throw Error("policy '" + name + "' has no setting '" + key + "'" + near_spelling(key, names) +
                (names.empty() ? " (it has none)" : " (settings: " + listed(names) + ")"));
  }
  return {std::string(text), row.streams == Streams::kSeen, [make, mapped](const DeviceParts& parts) {
            DevicePoolMaker maker(parts, mapped);
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
