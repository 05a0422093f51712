// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/snapshot/snapshot.h"

#include <algorithm>

#include "memoir/base/error.h"
#include "memoir/base/hex.h"
#include "memoir/formats/pickle/pickle_machine.h"
#include "memoir/formats/pickle/settings_json.h"
#include "memoir/trace/format.h"

namespace memoir {

using trace_format::kMaxAddress;
using trace_format::kMaxMetaText;
using trace_format::kMaxSize;
using Type = PickleValues::Type;

namespace {

constexpr size_t kMostDevices = 1 << 16;
// Times become nanoseconds, of which a trace takes 2^62.
static_assert(TraceEntry::kMostTimeUs <= (trace_format::kMaxTime - 1'000) / 1'000);

std::string field(const std::string& path, Word key) { return path + "." + std::string(word_text(key)); }
std::string element(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}
std::string bytes_over(std::uint64_t size, const char* limit) {
  return "is " + std::to_string(size) + " bytes, over " + limit;
}

const char* describe(Fault fault) {
  switch (fault) {
    case Fault::kMissing:
      return "is missing";
    case Fault::kNotANumber:
      return "is not an integer";
    case Fault::kNegative:
      return "is negative";
    case Fault::kTooLarge:
      return "is 2^64 or more";
    case Fault::kNotAString:
      return "is not text";
    case Fault::kNotAPool:
      return "is not a pair of numbers";
    default:
      return "is one of more than 2^20 streams, or of more than 4,095 pools";
  }
}

}  // namespace

void Snapshot::fail(const std::string& path, const std::string& what) const {
  throw Error(name_ + ": " + path + " " + what);
}

void Snapshot::fail(const std::string& path, RowOrigin origin) const {
  fail(field(path, static_cast<Word>(origin.field)) + " (byte " + std::to_string(origin.byte) + ")",
       describe(static_cast<Fault>(origin.fault)));
}

void Snapshot::fail_entry(size_t device, size_t index, Word key, const std::string& what) const {
  const std::string path = element(element("device_traces", device), index);
  const RowOrigin origin = values_.entry_of(traces_[device][index]).origin;
  fail((key == Word::kEmpty ? path : field(path, key)) + " (byte " + std::to_string(origin.byte) + ")", what);
}

std::uint64_t Snapshot::natural(const PickleValues::Dict& dict, Word key, const std::string& path,
                                std::uint64_t most) const {
  std::uint64_t number = 0;
  const Value* const value = values_.find(dict, key);
  const Fault fault = value == nullptr ? Fault::kMissing : values_.natural(*value, number);
  const std::string where = field(path, key) + " (byte " + std::to_string(dict.byte) + ")";
  if (fault != Fault::kNone) fail(where, describe(fault));
  if (number > most) fail(where, "is " + std::to_string(number) + ", over " + std::to_string(most));
  return number;
}

Snapshot Snapshot::open(const std::string& path) {
  PickleInput input(path);
  Snapshot snapshot(path);
  snapshot.read(input);
  return snapshot;
}

Snapshot Snapshot::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  PickleInput input(bytes);
  Snapshot snapshot(name);
  snapshot.read(input);
  return snapshot;
}

void Snapshot::read(PickleInput& input) {
  const Value root = run_pickle(input, values_, name_);
  if (values_.type(root) == Type::kList) {  // what torch.cuda.memory_snapshot() gives: segments alone
    segments_.resize(1);
    traces_.resize(1);
    const std::span<const Value> segments = values_.items_of(root);
    for (size_t i = 0; i < segments.size(); ++i) read_segment(segments[i], element("", i));
    sort_segments();
    traces_.resize(segments_.size());
    return;
  }
  if (values_.type(root) != Type::kDict) fail("the pickle", "holds no dict: this is not a memory snapshot");
  const PickleValues::Dict& dict = values_.dict_of(root);
  const Value* const segments = values_.find(dict, Word::kSegments);
  const Value* const traces = values_.find(dict, Word::kDeviceTraces);
  if (segments == nullptr && traces == nullptr) {
    fail("the pickle", "is a dict without segments and device_traces: this is not a memory snapshot");
  }
  const auto list = [&](const Value* value, Word key) -> std::span<const Value> {
    if (value == nullptr || value->kind() == Value::Kind::kNone) return {};
    if (values_.type(*value) != Type::kList) fail(std::string(word_text(key)), "is not a list");
    return values_.items_of(*value);
  };

  const std::span<const Value> devices = list(traces, Word::kDeviceTraces);
  if (devices.size() > kMostDevices) fail("device_traces", "names more than 65,536 devices");
  segments_.resize(std::max<size_t>(devices.size(), 1));
  size_t total = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (values_.type(devices[i]) != Type::kList) fail(element("device_traces", i), "is not a list");
    traces_.push_back(values_.items_of(devices[i]));
    total += traces_.back().size();
    const bool repeated = total > values_.entries();  // or no entries at all, which is found first
    for (size_t at = 0; at < traces_.back().size(); ++at) {
      check_entry(i, at);
      if (repeated && at == values_.entries()) break;
    }
    if (repeated) fail(element("device_traces", i), "holds entries that were there before");
  }

  const std::span<const Value> all = list(segments, Word::kSegments);
  for (size_t i = 0; i < all.size(); ++i) read_segment(all[i], element("segments", i));
  sort_segments();
  traces_.resize(segments_.size());

  // No answer depends on these: what cannot be read of them is left out.
  if (const Value* const annotations = values_.find(dict, Word::kExternalAnnotations)) {
    const bool is_list = values_.type(*annotations) == Type::kList;
    unreadable_ += !is_list && annotations->kind() != Value::Kind::kNone;
    if (is_list) {
      for (const Value annotation : values_.items_of(*annotations))
        unreadable_ += !read_annotation(annotation);
    }
  }
  std::stable_sort(annotations_.begin(), annotations_.end(),
                   [](const auto& a, const auto& b) { return a.time_us < b.time_us; });

  if (const Value* const settings = values_.find(dict, Word::kAllocatorSettings)) {
    const auto text = to_json(values_, *settings, kMaxMetaText / 2);
    if (text) settings_ = *text;
    else ++unreadable_;  // not plain values, nested too deep, or over 512 KiB
  }
}

/// By address; no byte is in two of a device's, nor in two blocks of one.
void Snapshot::sort_segments() {
  for (std::vector<SnapshotSegment>& segments : segments_) {
    std::sort(segments.begin(), segments.end(),
              [](const auto& a, const auto& b) { return a.address < b.address; });
    for (size_t i = 1; i < segments.size(); ++i) {
      const SnapshotSegment &one = segments[i - 1], &other = segments[i];
      if (other.address - one.address >= one.size) continue;
      fail("segments", other.address == one.address
                           ? "holds two at " + hex(one.address) + ", of " + std::to_string(one.size) +
                                 " and of " + std::to_string(other.size) + " bytes"
                           : "holds one of " + std::to_string(other.size) + " bytes at " +
                                 hex(other.address) + " inside the one of " + std::to_string(one.size) +
                                 " bytes at " + hex(one.address));
    }
    for (SnapshotSegment& segment : segments) sort_blocks(segment.blocks);
  }
}

void Snapshot::sort_blocks(std::vector<SnapshotBlock>& blocks) const {
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const auto& a, const auto& b) { return a.address < b.address; });
  const SnapshotBlock* before = nullptr;  // with bytes
  for (const SnapshotBlock& block : blocks) {
    const Size size = std::max<Size>(block.size, block.requested);
    if (size == 0) continue;
    if (before != nullptr &&
        block.address - before->address < std::max<Size>(before->size, before->requested)) {
      fail("segments", "holds a block of " + std::to_string(size) + " bytes at " + hex(block.address) +
                           " (byte " + std::to_string(block.origin.byte) + ") inside the one at " +
                           hex(before->address));
    }
    before = &block;
  }
}

void Snapshot::check_entry(size_t device, size_t index) const {
  const Value value = traces_[device][index];
  if (values_.type(value) != Type::kEntry)
    fail(element(element("device_traces", device), index), "is not a dict with an action");
  const TraceEntry& entry = values_.entry_of(value);
  if (entry.origin.fault != 0) fail(element(element("device_traces", device), index), entry.origin);
  const Word action = entry.origin.kind();
  if (action == Word::kEmpty || action == Word::kSnapshot) return;
  if (action == Word::kOom) {
    if (entry.size > kMaxAddress) fail_entry(device, index, Word::kSize, bytes_over(entry.size, "2^63"));
    if (entry.address > kMaxSize)
      fail_entry(device, index, Word::kDeviceFree, bytes_over(entry.address, "2^56"));
  } else {
    if (entry.size > kMaxSize) fail_entry(device, index, Word::kSize, bytes_over(entry.size, "2^56"));
    if (entry.address > kMaxAddress - entry.size)
      fail_entry(device, index, Word::kAddr,
                 "is " + std::to_string(entry.address) + ", so that it ends beyond 2^63");
  }
}

void Snapshot::read_segment(Value value, const std::string& path) {
  if (values_.type(value) != Type::kDict) fail(path, "is not a dict");
  const PickleValues::Dict& dict = values_.dict_of(value);
  SnapshotSegment segment;
  segment.address = natural(dict, Word::kAddress, path, kMaxAddress);
  segment.size = natural(dict, Word::kTotalSize, path, kMaxSize);
  if (segment.address > kMaxAddress - segment.size) fail(field(path, Word::kAddress), "ends beyond 2^63");
  const size_t device =
      values_.find(dict, Word::kDevice) == nullptr ? 0 : natural(dict, Word::kDevice, path, kMostDevices - 1);
  const Value* const stream = values_.find(dict, Word::kStream);
  if (stream != nullptr && !values_.stream_of(*stream, segment.stream))
    fail(field(path, Word::kStream), "is not an integer of 64 bits");
  if (const Value* const pool = values_.find(dict, Word::kSegmentPoolId)) {
    const Fault fault = values_.pool_of(*pool, segment.pool);
    if (fault != Fault::kNone) fail(field(path, Word::kSegmentPoolId), describe(fault));
  }
  const Value* const frames = values_.find(dict, Word::kFrames);
  if (frames != nullptr) segment.stack = values_.stack_of(*frames);
  const Value* const expandable = values_.find(dict, Word::kIsExpandable);
  segment.expandable = expandable != nullptr && expandable->kind() == Value::Kind::kTrue;
  if (const Value* const blocks = values_.find(dict, Word::kBlocks))
    read_blocks(*blocks, field(path, Word::kBlocks), segment);
  if (device >= segments_.size()) segments_.resize(device + 1);
  if (segment.size != 0) segments_[device].push_back(std::move(segment));
}

void Snapshot::read_blocks(Value value, const std::string& path, SnapshotSegment& segment) {
  if (values_.type(value) != Type::kList) fail(path, "is not a list");
  const std::span<const Value> blocks = values_.items_of(value);
  blocks_read_ += blocks.size();
  std::uint64_t next = segment.address;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (values_.type(blocks[i]) != Type::kBlock) fail(element(path, i), "is not a dict with a state");
    SnapshotBlock block = values_.block_of(blocks[i]);
    if (block.origin.fault != 0) fail(element(path, i), block.origin);
    if (block.address == SnapshotBlock::kNoAddress) block.address = next;
    const auto inside = [&](std::uint64_t size) {
      return size <= segment.size && block.address >= segment.address &&
             block.address - segment.address <= segment.size - size;
    };
    if (!inside(block.size) || !inside(block.requested)) {
      if (block.origin.kind() != Word::kInactive) {
        fail(element(path, i) + " (byte " + std::to_string(block.origin.byte) + ")",
             "of " + std::to_string(std::max(block.size, block.requested)) + " bytes at " +
                 std::to_string(block.address) + " does not lie in its segment");
      }
      block.requested = 0;  // what a free block was asked for last does not matter
      if (!inside(block.size)) continue;
    }
    next = block.address + block.size;
    if (block.origin.kind() != Word::kInactive && block.origin.kind() != Word::kEmpty)
      segment.blocks.push_back(block);
  }
  if (blocks_read_ > values_.blocks()) fail(path, "holds blocks that were there before");
}

/// False when it is none.
bool Snapshot::read_annotation(Value value) {
  if (values_.type(value) != Type::kDict) return false;
  const PickleValues::Dict& dict = values_.dict_of(value);
  const auto text = [&](Word key) -> std::string_view {
    const Value* const found = values_.find(dict, key);
    return found == nullptr || found->kind() != Value::Kind::kString ? "" : values_.text(found->content());
  };
  SnapshotAnnotation annotation;
  const Value* const time = values_.find(dict, Word::kTimeUs);
  if (time == nullptr || values_.natural(*time, annotation.time_us) != Fault::kNone ||
      annotation.time_us > TraceEntry::kMostTimeUs)
    return false;
  annotation.name = text(Word::kName);
  const std::string_view stage = text(Word::kStage);
  annotation.begins = stage == word_text(Word::kStart);
  if (annotation.name.empty() || (!annotation.begins && stage != word_text(Word::kEnd))) return false;
  annotations_.push_back(annotation);
  return true;
}

}  // namespace memoir
