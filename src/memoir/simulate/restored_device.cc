// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/restored_device.h"

#include <algorithm>
#include <string>

#include "memoir/base/error.h"
#include "memoir/base/hex.h"

namespace memoir {

namespace {

[[noreturn]] void fail(const RestoredArea& area) {
  throw Error("no memory for the bookkeeping of the recorded segments, or for the one at " + hex(area.base) +
              " on the simulated device");
}

}  // namespace

RestoredSegments::RestoredSegments(Segments& segments, const Workload& workload, HeldWatch watch)
    : segments_(&segments), watch_(watch) {
  for (const Workload::DeviceCall& call : workload.device_calls())
    fresh_ = std::max(fresh_, call.range.end());
  fresh_ = align_up(fresh_, kGiB);
}

void RestoredSegments::restore(PyTorchHeap& heap, const RestoredState& start) {
  for (const RestoredArea& area : start.areas) {
    const Offset beneath = segments_->take(area.span);
    if (beneath == kNoOffset) fail(area);
    held_[area.base] = {beneath, area.span};
    watch_.hold({area.base, area.span});
    if (!heap.restore(area.memory.front(), area.stream, area.objects, area.pool)) fail(area);
  }
}

/// Where the recorded device put a segment of this size for the same request; kNoOffset when it did not, or
/// when the simulation still has something there.
Offset RestoredSegments::expected_address(Size size) const noexcept {
  for (const Workload::DeviceCall& call : expected_) {
    if (call.kind != EventKind::kSegmentAllocate || call.range.size != size) continue;
    if (call.range.begin % PyTorchRounding::kSmallestBlock != 0) continue;  // no device gives such
    const auto after = held_.lower_bound(call.range.end());
    if (after == held_.begin()) return call.range.begin;
    const auto& [address, beneath] = *std::prev(after);
    if (address + beneath.size <= call.range.begin) return call.range.begin;
  }
  return kNoOffset;
}

Offset RestoredSegments::take(Size size) noexcept {
  const Offset beneath = segments_->take(size);
  if (beneath == kNoOffset) return kNoOffset;
  const Offset expected = expected_address(size);
  const Offset address = expected != kNoOffset ? expected : fresh_ + beneath;
  held_[address] = {beneath, size};
  watch_.hold({address, size});
  return address;
}

void RestoredSegments::give_back(Range segment) noexcept {
  const auto found = held_.find(segment.begin);
  segments_->give_back(found->second);
  watch_.release(segment);
  held_.erase(found);
}

void RestoredArena::restore(ExpandableHeap& heap, const RestoredState& start) {
  stride_ = heap.stride();
  std::vector<Range> memory;
  std::vector<RestoredObject> objects;
  for (const RestoredArea& area : start.areas) {
    memory = area.memory;
    objects = area.objects;
    for (Range& range : memory) range.begin -= area.base;
    for (RestoredObject& object : objects) object.block.begin -= area.base;
    Workload::DeviceCall mapped;
    mapped.kind = EventKind::kSegmentMap;
    mapped.range = area.memory.front();
    expect({&mapped, 1});
    const Offset offset = heap.restore(area.small, area.stream, memory, objects, area.pool);
    expect({});
    if (offset == kNoOffset) fail(area);
    for (const RestoredObject& object : area.objects)
      offsets_[object.block.begin] = offset + (object.block.begin - area.base);
  }
}

bool RestoredArena::commit(Range range) noexcept {
  if (!arena_->commit(range)) return false;
  const size_t index = index_of(range.begin);
  if (index >= areas_.size()) areas_.resize(index + 1);
  Area& area = areas_[index];
  if (area.mapped == 0) {
    const auto first = std::find_if(expected_.begin(), expected_.end(), [](const Workload::DeviceCall& call) {
      return call.kind == EventKind::kSegmentMap;
    });
    area.base = first == expected_.end() ? kNoOffset : first->range.begin - (range.begin - index * stride_);
  }
  area.mapped += range.size;
  return true;
}

void RestoredArena::decommit(Range range) noexcept {
  arena_->decommit(range);
  areas_[index_of(range.begin)].mapped -= range.size;
}

Offset RestoredArena::address_of(Offset offset) const noexcept {
  const size_t index = index_of(offset);
  if (index >= areas_.size() || areas_[index].base == kNoOffset) return kNoOffset;
  return areas_[index].base + (offset - index * stride_);
}

Offset RestoredArena::offset_of(Offset address) const noexcept {
  const auto found = offsets_.find(address);
  return found == offsets_.end() ? kNoOffset : found->second;
}

}  // namespace memoir
