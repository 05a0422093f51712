// SPDX-License-Identifier: Apache-2.0
//
// A memory snapshot of PyTorch, as torch.cuda.memory._dump_snapshot() writes it (torch/cuda/memory.py,
// _snapshot):
//
//   segments              what the allocator holds at the end, each with its blocks, live and free
//   device_traces[d][i]   what it did on device d, oldest first; a ring buffer may have lost the beginning
//   external_annotations  stretches of time with names (ProfilerStep#3)
//   allocator_settings
//
// Read from a stranger's file: data only, every size bounded, and every Error names the file, the path in it
// (device_traces[0][17].size) and the byte.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "memoir/formats/pickle/pickle_values.h"

namespace memoir {

struct SnapshotSegment {
  std::uint64_t address = 0;
  Size size = 0;
  std::uint32_t stream = 0;  // of streams()
  std::uint32_t pool = 0;    // of pools()
  std::uint32_t stack = 0;
  bool expandable = false;            // bytes that are mapped, not a segment of its own
  std::vector<SnapshotBlock> blocks;  // by address; kNoAddress is resolved
};

struct SnapshotAnnotation {
  std::uint64_t time_us = 0;
  std::string_view name;
  bool begins = false;
};

class PickleInput;

class Snapshot {
 public:
  /// Throws Error: no file, no such pickle, another structure.
  static Snapshot open(const std::string& path);
  /// The same over bytes; `name` is for the messages.
  static Snapshot from_bytes(std::span<const std::byte> bytes, const std::string& name);

  /// Devices that are spoken of; those in between count.
  std::size_t devices() const noexcept { return segments_.size(); }
  /// What was done on a device. Sizes are at most 2^56 (of kOom: 2^63), and no address ends beyond 2^63.
  std::size_t entries(std::size_t device) const noexcept { return traces_[device].size(); }
  const TraceEntry& entry(std::size_t device, std::size_t index) const noexcept {
    return values_.entry_of(traces_[device][index]);
  }
  /// "device_traces[0][17]", for errors, with the byte.
  [[noreturn]] void fail_entry(std::size_t device, std::size_t index, Word field,
                               const std::string& what) const;

  std::span<const SnapshotSegment> segments(std::size_t device) const noexcept { return segments_[device]; }
  std::span<const SnapshotAnnotation> annotations() const noexcept { return annotations_; }  // by time
  /// The allocator's settings as JSON; empty when the snapshot has none.
  const std::string& settings() const noexcept { return settings_; }
  /// Frames, times, annotations and settings that cannot be read: left out, since no answer depends on them.
  std::uint64_t unreadable() const noexcept { return unreadable_ + values_.unreadable; }
  /// Strings, frames, stacks, streams and pools.
  const PickleValues& values() const noexcept { return values_; }
  const std::string& name() const noexcept { return name_; }

 private:
  explicit Snapshot(const std::string& name) : name_(name) {}
  void read(PickleInput& input);
  void sort_segments();
  void sort_blocks(std::vector<SnapshotBlock>& blocks) const;
  void check_entry(std::size_t device, std::size_t index) const;
  void read_segment(Value value, const std::string& path);
  void read_blocks(Value value, const std::string& path, SnapshotSegment& segment);
  bool read_annotation(Value value);
  std::uint64_t natural(const PickleValues::Dict& dict, Word key, const std::string& path,
                        std::uint64_t most) const;
  [[noreturn]] void fail(const std::string& path, const std::string& what) const;
  [[noreturn]] void fail(const std::string& path, RowOrigin origin) const;

  std::string name_;
  PickleValues values_;
  std::vector<std::span<const Value>> traces_;
  std::vector<std::vector<SnapshotSegment>> segments_;  // per device, by address
  std::vector<SnapshotAnnotation> annotations_;
  std::string settings_;
  std::uint64_t unreadable_ = 0;  // of annotations and settings
  std::size_t blocks_read_ = 0;
};

}  // namespace memoir
