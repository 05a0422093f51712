// SPDX-License-Identifier: Apache-2.0
//
// See c10/core/Allocator.h here.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "c10/core/Allocator.h"

namespace c10 {

/// What the memory profiler knows to be live. Thread-safe.
class ProfiledCPUMemoryReporter {
 public:
  void New(void* pointer, std::size_t size);
  void Delete(void* pointer);
  /// For tests.
  std::size_t live_bytes();

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> sizes_;
};

ProfiledCPUMemoryReporter& profiledCPUMemoryReporter();

Allocator* GetCPUAllocator();
/// Ignored when an allocator of a higher priority is in place. Not thread-safe.
void SetCPUAllocator(Allocator* allocator, std::uint8_t priority = 0);

}  // namespace c10
