// SPDX-License-Identifier: Apache-2.0
//
// What a device's runtime holds at one moment, copied out under its lock; and what is made of it: the text of
// an out-of-memory error, statistics, and a snapshot in the form of PyTorch's (torch.cuda.memory._snapshot),
// as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "memoir/arena/cuda_device.h"
#include "memoir/device/device_streams.h"
#include "memoir/policy/learning_heap.h"

namespace memoir {

/// Which pool of a captured graph; {0, 0} is the device's ordinary memory. The same numbers as c10's
/// MempoolId_t.
using DevicePoolId = std::pair<std::uint64_t, std::uint64_t>;

/// A quantity over time, as PyTorch's memory_stats counts: since the start or the last reset.
struct DeviceStat {
  Size current = 0, peak = 0, allocated = 0, freed = 0;

  void add(Size amount) noexcept {
    current += amount;
    allocated += amount;
    if (current > peak) peak = current;
  }
  void take(Size amount) noexcept {
    current -= amount;
    freed += amount;
  }
};

struct DeviceStats {
  DeviceStat objects;          // live
  DeviceStat allocated_bytes;  // that live objects asked for
  DeviceStat active_objects;   // live, or freed and still used by another stream
  DeviceStat active_bytes;
  DeviceStat reserved_bytes;  // taken from the device
  DeviceStat segments;        // pieces and segments taken from the device
  std::uint64_t retries = 0;  // requests that only a rung of the ladder could serve
  std::uint64_t ooms = 0;     // requests that nothing could serve
};

enum class DeviceAction : std::uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kOutOfMemory
};

struct DeviceEntry {  // of the history
  DeviceAction action = DeviceAction::kAlloc;
  cuda::Address address = 0;  // kOutOfMemory: bytes free on the device
  Size size = 0;
  cuda::Stream stream = nullptr;
  SiteId site = kNoSite;
  std::int64_t time_us = 0;  // since the epoch
};

/// How much of a view is wanted. Numbers cost little (free_now, which the device is asked for, is 0 then);
/// objects and segments are listed, of which there can be many; the history has what happened as well.
enum class DeviceDetail { kNumbers, kObjects, kHistory };

struct DeviceView {
  struct Object {
    cuda::Address address = 0;
    Size size = 0;  // bytes asked for
    Size held = 0;  // bytes that the heap keeps for it
    cuda::Stream stream = nullptr;
    SiteId site = kNoSite;
    DevicePoolId pool;
    bool pending = false;  // freed, and still used by another stream
  };
  struct Segment {
    cuda::Address address = 0;
    Size size = 0;
    bool mapped = false;
    DevicePoolId pool;
    cuda::Stream stream = nullptr;  // of the pool, where each stream has its own
  };

  int device = 0;
  std::string name;
  std::string policy;
  Size total = 0, free_now = 0, cap = 0, held = 0;
  Size spare = 0;  // of what is held: unmapped, to be mapped elsewhere
  bool in_capture = false;
  DeviceStats stats;
  CudaCounts device_calls;
  StreamCounts stream_calls;
  LearningHeap::Counters loops;   // of the pools that learn
  std::string last_failure;       // of the driver, for another reason than memory
  std::vector<Object> objects;    // by address
  std::vector<Segment> segments;  // by address; adjoining pieces of mapped memory are one
  std::vector<DeviceEntry> history;
};

using SiteNames = std::function<std::string(SiteId)>;  // "" when a site has none

struct FailedRequest {
  Size size = 0;
  cuda::Stream stream = nullptr;
  SiteId site = kNoSite;
  DevicePoolId pool;
  std::string tried;  // the rungs of the ladder, in words
};

/// Who holds what, and what to do; about ten lines.
std::string out_of_memory_text(const DeviceView& view, const FailedRequest& request, const SiteNames& names);
/// {"device": 0, "policy": ..., "allocated_bytes": {"current": ..., ...}, ...}
std::string stats_json(const DeviceView& view);
/// {"segments": [...], "trace": [...]} with the fields that PyTorch's snapshots have.
std::string snapshot_json(const DeviceView& view, const SiteNames& names);

/// "1.50 GiB"
std::string bytes_text(Size bytes);

}  // namespace memoir
