// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/snapshot/before_history.h"

#include <algorithm>
#include <map>

#include "memoir/base/hex.h"
#include "memoir/formats/snapshot/live_ranges.h"
#include "memoir/formats/snapshot/mapped_ranges.h"
#include "memoir/trace/objects/object_table.h"

namespace memoir {

namespace {

using State = ObjectTable::State;

class Undo {
 public:
  Undo(const Snapshot& snapshot, size_t device) : snapshot_(snapshot), device_(device) {}

  BeforeHistory run() {
    walk();
    take_blocks();
    undo_segments();
    check_inferred();
    std::sort(before_.objects.begin(), before_.objects.end(),
              [](const auto& a, const auto& b) { return a.address < b.address; });
    return std::move(before_);
  }

 private:
  struct Inferred {  // by a free of what nothing had allocated
    BeforeHistory::Object object;
    size_t entry;
  };

  void walk();
  void free(const TraceEntry& entry, size_t index);
  void check_segment(const TraceEntry& entry, size_t index);
  void take_blocks();
  void undo_segments();
  void check_inferred();
  static std::uint32_t pool_of(const TraceEntry& entry, std::uint32_t otherwise) {
    return entry.pool != TraceEntry::kNoPool ? entry.pool : otherwise;
  }

  const Snapshot& snapshot_;
  const size_t device_;
  BeforeHistory before_;
  ObjectTable objects_;  // by address; value: the entry that it was allocated or freed last by; tag: pending
  LiveRanges live_;      // of those that the history allocated
  std::vector<Inferred> inferred_;
  std::vector<size_t> segment_entries_;
  MappedRanges got_;  // segments and memory that the history has got; stream: the entry, so that none join
  bool knows_segments_ = false;
};

void Undo::walk() {
  for (size_t i = 0; i < snapshot_.entries(device_); ++i) {
    const TraceEntry& entry = snapshot_.entry(device_, i);
    switch (entry.origin.kind()) {
      case Word::kAlloc: {
        live_.add(entry.address, entry.size, [&](std::uint64_t other) {
          objects_.find(other) = {other, State::kFreed, 0, i};  // while the recording was paused
        });
        ObjectTable::Entry& known = objects_.find(entry.address);
        const bool fresh = known.state == State::kUnknown;
        known = {entry.address, State::kLive, 0, i};
        if (fresh) objects_.added();
        break;
      }
      case Word::kFreeRequested:
      case Word::kFreeCompleted:
        free(entry, i);
        break;
      case Word::kSegmentAlloc:
      case Word::kSegmentFree:
      case Word::kSegmentMap:
      case Word::kSegmentUnmap:
        if (entry.size == 0) break;
        segment_entries_.push_back(i);
        check_segment(entry, i);
        break;
      default:
        break;
    }
  }
}

/// What the history got of the device stays until the history gives it back.
void Undo::check_segment(const TraceEntry& entry, size_t index) {
  const std::uint64_t end = entry.address + entry.size;
  const Word kind = entry.origin.kind();
  if (kind == Word::kSegmentFree || kind == Word::kSegmentUnmap) {
    got_.remove(entry.address, end);
    return;
  }
  if (const MappedRanges::Piece* const other = got_.first_in(entry.address, end)) {
    snapshot_.fail_entry(device_, index, Word::kAddr,
                         "gets " + std::to_string(entry.size) + " bytes at " + hex(entry.address) +
                             ", of which device_traces[" + std::to_string(device_) + "][" +
                             std::to_string(other->stream) + "] got some and nothing gave them back since");
  }
  got_.add(entry.address, {end, static_cast<std::uint32_t>(index), 0, 0});
}

void Undo::free(const TraceEntry& entry, size_t index) {
  const bool completed = entry.origin.kind() == Word::kFreeCompleted;
  ObjectTable::Entry& known = objects_.find(entry.address);
  if (known.state == State::kFreed || (known.state == State::kLive && !completed && known.tag != 0)) {
    snapshot_.fail_entry(device_, index, Word::kAddr,
                         "frees " + hex(entry.address) + ", which device_traces[" + std::to_string(device_) +
                             "][" + std::to_string(known.value) +
                             "] freed already and nothing allocated since");
  }
  const bool fresh = known.state == State::kUnknown;
  if (fresh) inferred_.push_back({{entry.address, entry.size, entry.stream, 0, 0, completed}, index});
  known = {entry.address, completed ? State::kFreed : State::kLive, completed ? 0u : 1u, index};
  if (completed) live_.remove(entry.address);
  if (fresh) objects_.added();
}

/// Blocks that are live at the end and that no entry allocated were live all the time, unless something else
/// was at their place: then they were made after the history ended.
void Undo::take_blocks() {
  std::vector<SnapshotBlock> blocks;
  std::vector<const SnapshotSegment*> segments;  // theirs
  for (const SnapshotSegment& segment : snapshot_.segments(device_)) {
    knows_segments_ = true;
    for (const SnapshotBlock& block : segment.blocks) {
      const State state = objects_.find(block.address).state;
      if (state == State::kLive) continue;
      if (state == State::kFreed) ++before_.after_history;
      else blocks.push_back(block), segments.push_back(&segment);
    }
  }
  // Segments are sorted, and blocks within them as torch writes them: sorted by address.
  std::vector<size_t> order(blocks.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return blocks[a].address < blocks[b].address; });
  std::vector<bool> late(blocks.size());
  const auto touch = [&](std::uint64_t address, Size size) {
    auto at = std::upper_bound(order.begin(), order.end(), address,
                               [&](std::uint64_t of, size_t block) { return of < blocks[block].address; });
    if (at != order.begin()) {
      const SnapshotBlock& block = blocks[*std::prev(at)];
      if (address < block.address + block.requested) late[static_cast<size_t>(at - order.begin()) - 1] = true;
    }
    for (; at != order.end() && blocks[*at].address < address + size; ++at)
      late[static_cast<size_t>(at - order.begin())] = true;
  };
  if (!blocks.empty()) {
    for (size_t i = 0; i < snapshot_.entries(device_); ++i) {
      const TraceEntry& entry = snapshot_.entry(device_, i);
      if (entry.origin.kind() == Word::kAlloc) touch(entry.address, entry.size);
    }
    for (const Inferred& inferred : inferred_) touch(inferred.object.address, inferred.object.size);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const SnapshotBlock& block = blocks[order[i]];
    if (late[i]) {
      ++before_.after_history;
      continue;
    }
    const bool pending = block.origin.kind() != Word::kActiveAllocated;
    const SnapshotSegment& segment = *segments[order[i]];
    before_.objects.push_back(
        {block.address, block.requested, segment.stream, block.stack, segment.pool, pending});
  }
}

void Undo::undo_segments() {
  MappedRanges mapped;
  std::map<std::uint64_t, BeforeHistory::Segment> segments;
  for (const SnapshotSegment& segment : snapshot_.segments(device_)) {
    if (segment.expandable) {
      mapped.add(segment.address,
                 {segment.address + segment.size, segment.stream, segment.pool, segment.stack});
    } else {
      segments[segment.address] = {segment.address, segment.size, segment.stream,
                                   segment.stack,   segment.pool, false};
    }
  }
  // What is unmapped in the middle of a pool's area was the pool's.
  const auto pool_around = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t stream) {
    for (const std::uint64_t address : {begin - 1, end}) {
      const MappedRanges::Piece* const piece = mapped.find(address);
      if (piece != nullptr && piece->stream == stream) return piece->pool;
    }
    return 0u;
  };
  before_.segment_pools.resize(segment_entries_.size());
  for (size_t i = segment_entries_.size(); i-- > 0;) {
    const TraceEntry& entry = snapshot_.entry(device_, segment_entries_[i]);
    const std::uint64_t end = entry.address + entry.size;
    std::uint32_t& pool = before_.segment_pools[i];
    pool = pool_of(entry, 0);
    switch (entry.origin.kind()) {
      case Word::kSegmentAlloc: {
        const auto found = segments.find(entry.address);
        if (found == segments.end() || found->second.size != entry.size) {
          ++before_.odd_segments;
        } else {
          pool = pool_of(entry, found->second.pool);
          segments.erase(found);
        }
        break;
      }
      case Word::kSegmentFree:
        before_.odd_segments +=
            !segments
                 .emplace(entry.address,
                          BeforeHistory::Segment{entry.address, entry.size, entry.stream, 0, pool, false})
                 .second;
        break;
      case Word::kSegmentMap:
        if (const MappedRanges::Piece* const piece = mapped.find(entry.address))
          pool = pool_of(entry, piece->pool);
        before_.odd_segments += mapped.remove(entry.address, end) != entry.size;
        break;
      default:
        pool = pool_of(entry, pool_around(entry.address, end, entry.stream));
        before_.odd_segments += mapped.remove(entry.address, end) != 0;
        mapped.add(entry.address, {end, entry.stream, pool, 0});
    }
  }
  for (const auto& [address, segment] : segments) before_.segments.push_back(segment);
  for (const auto& [begin, piece] : mapped.pieces())
    before_.segments.push_back(
        {begin, piece.end - begin, piece.stream, static_cast<std::uint32_t>(piece.origin), piece.pool, true});
  std::sort(before_.segments.begin(), before_.segments.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  knows_segments_ = knows_segments_ || !before_.segments.empty() || !segment_entries_.empty();
}

/// A free that comes first of all at its address is of an object from before, if something was there before.
void Undo::check_inferred() {
  for (const Inferred& inferred : inferred_) {
    BeforeHistory::Object object = inferred.object;
    auto after = std::upper_bound(
        before_.segments.begin(), before_.segments.end(), object.address,
        [](std::uint64_t address, const auto& segment) { return address < segment.address; });
    const bool held = after != before_.segments.begin() &&
                      object.address - std::prev(after)->address < std::prev(after)->size &&
                      object.size <= std::prev(after)->size - (object.address - std::prev(after)->address);
    if (!held && knows_segments_) {
      snapshot_.fail_entry(device_, inferred.entry, Word::kAddr,
                           "frees " + hex(object.address) +
                               ", which nothing allocated and no segment held when the history began");
    }
    object.pool = pool_of(snapshot_.entry(device_, inferred.entry), held ? std::prev(after)->pool : 0);
    ++before_.known_by_free;
    before_.objects.push_back(object);
  }
}

}  // namespace

BeforeHistory before_history(const Snapshot& snapshot, size_t device) { return Undo(snapshot, device).run(); }

}  // namespace memoir
