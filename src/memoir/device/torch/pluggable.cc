// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/torch/pluggable.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "memoir/base/error.h"
#include "memoir/base/json.h"
#include "memoir/device/device_runtime.h"

namespace memoir::device_door {

namespace {

struct Slot {
  std::mutex mutex;  // guards the making of runtimes, and all below but them
  std::optional<Policy> policy;
  DeviceRuntimeOptions options;
  std::vector<std::pair<DeviceRuntime::LowMemoryCallback, void*>> callbacks;
  double fractions[kDevices];
  std::atomic<DeviceRuntime*> runtimes[kDevices] = {};
  bool ends = false;  // its MemPool is gone: it is another one's when nothing lives in it any more

  Slot() { std::fill(std::begin(fractions), std::end(fractions), 1.0); }
};

// Never destroyed: PyTorch frees tensors during exit.
Slot* const g_slots = new Slot[kSlots];

thread_local std::string t_text;

const char* keep(std::string text) {
  t_text = std::move(text);
  return t_text.c_str();
}

DeviceRuntime* find(int slot, int device) noexcept {
  if (device < 0 || device >= kDevices) return nullptr;
  return g_slots[slot].runtimes[device].load(std::memory_order_acquire);
}

template <class Call>
void for_all_runtimes(Call call) {
  for (int slot = 0; slot < kSlots; ++slot) {
    for (int device = 0; device < kDevices; ++device) {
      if (DeviceRuntime* const runtime = find(slot, device)) call(*runtime);
    }
  }
}

/// A worker of a DataLoader is a fork of a process whose other threads allocate: it must not find a lock that
/// nobody will ever give back, and must not call the driver.
void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::pthread_atfork(
        [] {
          for (int slot = 0; slot < kSlots; ++slot) g_slots[slot].mutex.lock();
          for_all_runtimes([](DeviceRuntime& runtime) { runtime.before_fork(); });
        },
        [] {
          for_all_runtimes([](DeviceRuntime& runtime) { runtime.after_fork(false); });
          for (int slot = 0; slot < kSlots; ++slot) g_slots[slot].mutex.unlock();
        },
        [] {
          for_all_runtimes([](DeviceRuntime& runtime) { runtime.after_fork(true); });
          for (int slot = 0; slot < kSlots; ++slot) g_slots[slot].mutex.unlock();
        });
  });
}

DeviceRuntime& make(int slot_number, int device) {
  Slot& slot = g_slots[slot_number];
  const std::lock_guard lock(slot.mutex);
  if (DeviceRuntime* const made = find(slot_number, device)) return *made;
  if (device < 0 || device >= kDevices) throw Error("there is no CUDA device " + std::to_string(device));
  if (!slot.policy)
    throw Error("memoir's allocator was not set up: call memoir.torch.use_pool() or memoir.torch.pool()");
  DeviceRuntime* const made = new DeviceRuntime(device, *slot.policy, slot.options);
  if (!made->notice().empty()) std::fprintf(stderr, "memoir: %s\n", made->notice().c_str());
  for (const auto& [callback, context] : slot.callbacks) made->on_low_memory(callback, context);
  if (slot.fractions[device] != 1.0) made->set_fraction(slot.fractions[device]);
  // A program on several devices copies between them; one on a single device does not pay for that.
  for (int other = 0; other < kDevices; ++other) {
    DeviceRuntime* const its = find(slot_number, other);
    if (its == nullptr) continue;
    its->share_with(device);
    made->share_with(other);
  }
  slot.runtimes[device].store(made, std::memory_order_release);
  return *made;
}

DeviceRuntime& get(int slot, int device) {
  DeviceRuntime* const made = find(slot, device);
  return made != nullptr ? *made : make(slot, device);
}

template <class Call>
void for_each_runtime(int slot, Call call) {
  if (slot < 0 || slot >= kSlots) return;
  for (int device = 0; device < kDevices; ++device) {
    if (DeviceRuntime* const runtime = find(slot, device)) call(*runtime);
  }
}

void* allocate(int slot, std::size_t size, int device, cuda::Stream stream) {
  std::string refusal;
  bool out_of_memory = true;
  try {
    void* const pointer = get(slot, device).allocate(size, stream, current_site(), refusal);
    if (pointer != nullptr || size == 0) return pointer;
  } catch (const Error& error) {
    refusal = error.what();
    out_of_memory = false;
  }
  if (slot != 0 && out_of_memory) return nullptr;
  throw_refusal(out_of_memory, refusal);
}

/// Under the slot's lock: when nothing lives in it any more, its memory goes back and the slot is free.
void end_if_unused(Slot& slot) {
  for (const auto& runtime : slot.runtimes) {
    if (DeviceRuntime* const its = runtime.load(); its != nullptr && !its->may_end()) return;
  }
  for (auto& runtime : slot.runtimes) delete runtime.exchange(nullptr);
  slot.callbacks.clear();
  slot.policy.reset();
  slot.ends = false;
}

void free(int slot, void* pointer, int device) {
  if (pointer == nullptr) return;
  if (slot == 0) {
    if (DeviceRuntime* const runtime = find(slot, device)) runtime->free(pointer);
    return;
  }
  // PyTorch caches in a MemPool itself: what it frees it wants gone. Under the lock, so that the last free of
  // several threads is the one that ends the slot.
  Slot& its = g_slots[slot];
  const std::lock_guard lock(its.mutex);
  DeviceRuntime* const runtime = find(slot, device);
  if (runtime == nullptr) return;
  runtime->free(pointer);
  if (its.ends) end_if_unused(its);
  else if (runtime->may_end()) runtime->empty_cache();
}

char* copy(const std::string& text) {
  char* const copied = static_cast<char*>(std::malloc(text.size() + 1));
  if (copied != nullptr) std::memcpy(copied, text.c_str(), text.size() + 1);
  return copied;
}

/// An array with what `write` writes of each runtime.
template <class Write>
char* write_list(int slot, Write write) {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for_each_runtime(slot, [&](DeviceRuntime& runtime) { write(json.next_line(), runtime); });
  json.end_array();
  return copy(text);
}

}  // namespace

}  // namespace memoir::device_door

using namespace memoir;
using namespace memoir::device_door;

const char* memoir_cuda_problem() { return cuda::driver() != nullptr ? nullptr : cuda::driver_problem(); }

const char* memoir_cuda_open(int number, const char* policy, std::uint64_t cap, std::uint64_t history) {
  if (number < 0 || number >= kSlots) return "there is no such slot";
  try {
    Policy chosen = choose_policy(policy, Substrate::kDevice);
    Slot& slot = g_slots[number];
    const std::lock_guard lock(slot.mutex);
    if (slot.policy) return keep("memoir's allocator is in use already, with policy " + slot.policy->text);
    watch_forks();
    slot.options = {.cap = cap, .history = history, .site_names = site_name};
    slot.policy = std::move(chosen);
    return nullptr;
  } catch (const Error& error) {
    return keep(error.what());
  }
}

int memoir_cuda_free_slot() {
  for (int number = 1; number < kSlots; ++number) {
    const std::lock_guard lock(g_slots[number].mutex);
    if (!g_slots[number].policy) return number;
  }
  return -1;
}

void memoir_cuda_close(int number) {
  if (number <= 0 || number >= kSlots) return;
  Slot& slot = g_slots[number];
  const std::lock_guard lock(slot.mutex);
  if (!slot.policy) return;
  slot.ends = true;
  end_if_unused(slot);
}

void memoir_cuda_on_low_memory(void (*callback)(int, void*), void* context) {
  Slot& slot = g_slots[0];
  const std::lock_guard lock(slot.mutex);
  slot.callbacks.emplace_back(callback, context);
  for_each_runtime(0, [&](DeviceRuntime& runtime) { runtime.on_low_memory(callback, context); });
}

void* memoir_cuda_alloc(std::size_t size, int device, cuda::Stream stream) {
  return allocate(0, size, device, stream);
}

void memoir_cuda_free(void* pointer, std::size_t, int device, cuda::Stream) { free(0, pointer, device); }

void memoir_cuda_init(int) {}  // a runtime is made when its device is first used

void memoir_cuda_reset() { memoir_cuda_reset_slot(0); }

void memoir_cuda_reset_slot(int slot) {
  for_each_runtime(slot, [](DeviceRuntime& runtime) { runtime.empty_cache(); });
}

void memoir_cuda_memory_fraction(double fraction, int device) {
  if (device < 0 || device >= kDevices) return;
  Slot& slot = g_slots[0];
  const std::lock_guard lock(slot.mutex);
  slot.fractions[device] = fraction;
  if (DeviceRuntime* const runtime = find(0, device)) runtime->set_fraction(fraction);
}

void* memoir_cuda_base_alloc(void* pointer, std::size_t* size) {
  void* base = pointer;
  for_each_runtime(0, [&](DeviceRuntime& runtime) {
    std::size_t bytes = 0;
    void* const found = runtime.base_of(pointer, &bytes);
    if (bytes == 0) return;
    base = found;
    if (size != nullptr) *size = bytes;
  });
  return base;
}

void memoir_cuda_record_stream(void* pointer, cuda::Stream stream) {
  for_each_runtime(0, [&](DeviceRuntime& runtime) { runtime.record_stream(pointer, stream); });
}

void memoir_cuda_begin_pool(int device, DevicePoolId id, std::function<bool(cuda::Stream)> filter) {
  try {
    get(0, device).begin_pool(id, std::move(filter));
  } catch (const Error& error) {
    throw_refusal(false, error.what());
  }
}

void memoir_cuda_end_pool(int device, DevicePoolId id) {
  if (DeviceRuntime* const runtime = find(0, device)) runtime->end_pool(id);
}

void memoir_cuda_release_pool(int device, DevicePoolId id) {
  if (DeviceRuntime* const runtime = find(0, device)) runtime->release_pool(id);
}

char* memoir_cuda_stats(int slot) {
  return write_list(slot, [](JsonWriter& json, DeviceRuntime& runtime) {
    json.raw(stats_json(runtime.view(DeviceDetail::kNumbers)));
  });
}

char* memoir_cuda_snapshot(int slot) {
  return write_list(slot, [](JsonWriter& json, DeviceRuntime& runtime) {
    const DeviceView view = runtime.view(DeviceDetail::kHistory);
    json.begin_object().key("device").value(view.device);
    json.key("state").raw(snapshot_json(view, site_name)).end_object();
  });
}

char* memoir_cuda_policies() {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for (const PolicyInfo& info : policies(Substrate::kDevice)) {
    json.next_line().begin_object().key("name").value(info.name).key("what").value(info.what);
    json.key("settings").begin_array();
    for (const SettingInfo& setting : info.settings) {
      json.begin_object().key("name").value(setting.name).key("unit").value(setting.unit);
      json.key("initial").value(setting.initial).key("help").value(setting.help).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
  return copy(text);
}

void memoir_cuda_reset_peaks(int slot) {
  for_each_runtime(slot, [](DeviceRuntime& runtime) { runtime.reset_peaks(); });
}

void memoir_cuda_free_text(char* text) { std::free(text); }

// PyTorch finds the functions of a MemPool by name, and gives them no context: a pair of functions per slot.
#define MEMOIR_SLOT(number)                                                                            \
  MEMOIR_EXPORT void* memoir_cuda_alloc_##number(std::size_t size, int device, cuda::Stream stream) {  \
    return allocate(number, size, device, stream);                                                     \
  }                                                                                                    \
  MEMOIR_EXPORT void memoir_cuda_free_##number(void* pointer, std::size_t, int device, cuda::Stream) { \
    free(number, pointer, device);                                                                     \
  }
#define MEMOIR_FIVE_SLOTS(tens, a, b, c, d, e) \
  MEMOIR_SLOT(tens##a)                         \
  MEMOIR_SLOT(tens##b)                         \
  MEMOIR_SLOT(tens##c)                         \
  MEMOIR_SLOT(tens##d)                         \
  MEMOIR_SLOT(tens##e)
#define MEMOIR_TEN_SLOTS(tens)           \
  MEMOIR_FIVE_SLOTS(tens, 0, 1, 2, 3, 4) \
  MEMOIR_FIVE_SLOTS(tens, 5, 6, 7, 8, 9)
MEMOIR_SLOT(1)
MEMOIR_SLOT(2)
MEMOIR_SLOT(3)
MEMOIR_SLOT(4)
MEMOIR_SLOT(5)
MEMOIR_SLOT(6)
MEMOIR_SLOT(7)
MEMOIR_SLOT(8)
MEMOIR_SLOT(9)
MEMOIR_TEN_SLOTS(1)
MEMOIR_TEN_SLOTS(2)
MEMOIR_TEN_SLOTS(3)
MEMOIR_TEN_SLOTS(4)
MEMOIR_TEN_SLOTS(5)
MEMOIR_TEN_SLOTS(6)
MEMOIR_TEN_SLOTS(7)
MEMOIR_TEN_SLOTS(8)
MEMOIR_TEN_SLOTS(9)
MEMOIR_TEN_SLOTS(10)
MEMOIR_TEN_SLOTS(11)
MEMOIR_TEN_SLOTS(12)
