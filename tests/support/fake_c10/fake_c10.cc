// SPDX-License-Identifier: Apache-2.0
#include "fake_c10.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

namespace {

constexpr std::size_t kAlignment = 64;

// Relaxed: the count must not order the threads' other accesses, or it hides races from the thread sanitizer.
std::atomic<std::int64_t> g_live_blocks{0};
std::atomic<at::CallbackHandle> g_handles{at::INVALID_CALLBACK_HANDLE};
thread_local bool t_profiled = false;
thread_local fake_c10::Callbacks t_callbacks;
std::mutex g_callbacks_mutex;
fake_c10::Callbacks g_callbacks;  // of all threads

void free_block(void* pointer) {
  if (pointer == nullptr) return;
  if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().Delete(pointer);
  g_live_blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(pointer);
}

/// Null for 0 bytes, as PyTorch's.
class MallocAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    void* pointer = nullptr;
    if (size != 0) {
      pointer = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
      if (pointer == nullptr) throw std::bad_alloc();
      g_live_blocks.fetch_add(1, std::memory_order_relaxed);
      if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().New(pointer, size);
    }
    return {pointer, pointer, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

MallocAllocator g_malloc_allocator;
c10::Allocator* g_allocator = &g_malloc_allocator;
std::uint8_t g_priority = 0;

}  // namespace

namespace c10 {

bool memoryProfilingEnabled() { return t_profiled; }

void ProfiledCPUMemoryReporter::New(void* pointer, std::size_t size) {
  const std::lock_guard lock(mutex_);
  sizes_[pointer] = size;
}

void ProfiledCPUMemoryReporter::Delete(void* pointer) {
  const std::lock_guard lock(mutex_);
  sizes_.erase(pointer);  // it may be older than the profile
}

std::size_t ProfiledCPUMemoryReporter::live_bytes() {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [pointer, size] : sizes_) bytes += size;
  return bytes;
}

ProfiledCPUMemoryReporter& profiledCPUMemoryReporter() {
  static ProfiledCPUMemoryReporter reporter;
  return reporter;
}

Allocator* GetCPUAllocator() { return g_allocator; }

void SetCPUAllocator(Allocator* allocator, std::uint8_t priority) {
  if (priority < g_priority) return;
  g_allocator = allocator;
  g_priority = priority;
}

}  // namespace c10

namespace at {

CallbackHandle addThreadLocalCallback(RecordFunctionCallback callback) {
  const CallbackHandle handle = g_handles.fetch_add(1, std::memory_order_relaxed) + 1;
  t_callbacks.emplace_back(handle, callback);
  return handle;
}

CallbackHandle addGlobalCallback(RecordFunctionCallback callback) {
  const CallbackHandle handle = g_handles.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::lock_guard lock(g_callbacks_mutex);
  g_callbacks.emplace_back(handle, callback);
  return handle;
}

void removeCallback(CallbackHandle handle) {
  const auto is_it = [&](const auto& entry) { return entry.first == handle; };
  std::erase_if(t_callbacks, is_it);
  const std::lock_guard lock(g_callbacks_mutex);
  std::erase_if(g_callbacks, is_it);
}

RecordFunction::RecordFunction(std::string name, RecordScope scope) : name_(std::move(name)) {
  fake_c10::Callbacks all = t_callbacks;
  {
    const std::lock_guard lock(g_callbacks_mutex);
    all.insert(all.end(), g_callbacks.begin(), g_callbacks.end());
  }
  for (const auto& [handle, callback] : all) {
    if (!callback.listens_to(scope)) continue;
    begun_.push_back({callback.end(), nullptr});
    begun_.back().context = callback.start()(*this);
  }
}

RecordFunction::~RecordFunction() {
  for (const Begun& begun : begun_) {
    if (begun.end != nullptr) begun.end(*this, begun.context.get());
  }
}

}  // namespace at

namespace fake_c10 {

std::int64_t live_blocks() noexcept { return g_live_blocks.load(std::memory_order_relaxed); }
void profile_memory(bool on) noexcept { t_profiled = on; }
Callbacks callbacks() { return t_callbacks; }
void set_callbacks(Callbacks callbacks) { t_callbacks = std::move(callbacks); }

}  // namespace fake_c10
