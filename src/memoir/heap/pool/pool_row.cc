// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/pool_row.h"

#include <utility>

namespace memoir {

namespace {
constexpr size_t kMostStreams = 256;  // each costs 32 KiB of bins; requests of others are refused
}

bool PoolRow::begin(Size capacity) noexcept {
  if (!blocks_.push_back({}) || !reserve_records(8)) return false;
  blocks_[0].state = State::kLive;
  if (find_slot(0) == kNoSlot) return false;
  capacity_ = capacity;
  head_ = take_record();
  blocks_[head_].range = {0, capacity};
  blocks_[head_].state = State::kHole;
  put_in_bin(head_);
  return true;
}

std::uint16_t PoolRow::find_slot(StreamId stream) noexcept {
  for (size_t slot = 0; slot < streams_.size(); ++slot) {
    if (streams_[slot] == stream) return slots_[stream % slots_.size()] = static_cast<std::uint16_t>(slot);
  }
  if (streams_.size() == kMostStreams || !bins_.reserve(bins_.size() + kZones) ||
      !streams_.push_back(stream)) {
    return kNoSlot;
  }
  for (size_t zone = 0; zone < kZones; ++zone) bins_.push_back({});
  return slots_[stream % slots_.size()] = static_cast<std::uint16_t>(streams_.size() - 1);
}

// --- records ---

bool PoolRow::make_room(size_t count) noexcept {
  // Records that were given up are reused first, but each request takes few: room for all of them is
  // simplest.
  if (starts_.in_use() && !by_start_.reserve(by_start_.size() + count)) return false;
  if (blocks_.capacity() - blocks_.size() < count &&
      !blocks_.reserve(std::max<size_t>(2 * blocks_.size(), 1024)))
    return false;
  if (!live_.reserve(blocks_.data(), blocks_.capacity())) return false;
  room_ = starts_.in_use() ? 0 : blocks_.capacity();
  return true;
}

PoolRow::Index PoolRow::new_record() noexcept {
  blocks_.push_back({});
  return static_cast<Index>(blocks_.size() - 1);
}

void PoolRow::note_start(Offset begin, Index index) noexcept {
  starts_.insert(units(begin));
  by_start_.insert(begin, index);
}

void PoolRow::forget_start(Offset begin) noexcept {
  starts_.erase(units(begin));
  by_start_.take(begin);
}

bool PoolRow::keep_starts() noexcept {
  if (starts_.in_use()) return true;
  if (!by_start_.reserve(blocks_.size() + 4) || !starts_.reset(units(capacity_) + 1)) return false;
  room_ = 0;
  for (Index index = head_; index != 0; index = blocks_[index].after) {
    note_start(blocks_[index].range.begin, index);
  }
  return true;
}

PoolRow::Index PoolRow::block_at(Offset offset) const noexcept {
  if (starts_.in_use()) return by_start_.find(starts_.at_or_before(units(offset)) << shift_);
  Index index = head_;
  while (blocks_[index].range.end() <= offset) index = blocks_[index].after;
  return index;
}

// --- cut and joined ---

PoolRow::Index PoolRow::cut(Index index, Offset at) noexcept {
  const Index rest = take_record();
  Block& first = blocks_[index];
  Block& second = blocks_[rest];
  second = first;
  second.range = {at, first.range.end() - at};
  first.range.size = at - first.range.begin;
  second.before = index;
  first.after = rest;
  if (second.after != 0) blocks_[second.after].before = rest;
  if (keeps_start_of(first.zone)) note_start(at, rest);
  return rest;
}

/// The block swallows the one after it; neither is in a bin.
void PoolRow::join_after(Index index) noexcept {
  Block& left = blocks_[index];
  const Index gone = left.after;
  Block& right = blocks_[gone];
  if (keeps_start_of(left.zone)) forget_start(right.range.begin);
  left.range.size += right.range.size;
  if (left.moment < right.moment) {
    left.moment = right.moment;
    left.slot = right.slot;
  }
  left.after = right.after;
  if (left.after != 0) blocks_[left.after].before = index;
  drop_record(gone);
}

bool PoolRow::can_join(Index left, Index right) const noexcept {
  const Block &a = blocks_[left], &b = blocks_[right];
  if (a.state != b.state || a.zone != b.zone) return false;
  // What no stream has used goes with what one has; but not the addresses that nobody has used yet with the
  // few that somebody has.
  if (a.state == State::kFree) return a.slot == b.slot || a.moment <= done_ || b.moment <= done_;
  return a.state == State::kHole && (a.moment == 0 ? b.moment == 0 : b.moment != 0 && a.slot == b.slot);
}

void PoolRow::put_in_bin(Index index) noexcept {
  Block& block = blocks_[index];
  Size size = block.range.size;
  if (block.state == State::kHole) {
    size = block.asked = room_of(index).range.size;
    ++holes_count_;
  }
  bins_for(index).insert(blocks_.data(), index, units(size));
}

void PoolRow::take_from_bin(Index index) noexcept {
  bins_for(index).erase(blocks_.data(), index);
  holes_count_ -= blocks_[index].state == State::kHole;
}

// --- rooms ---

PoolRow::Room PoolRow::room_of(Index index) const noexcept {
  const Zone zone = blocks_[index].zone;
  const auto is_room = [&](Index at) {
    return (blocks_[at].state == State::kFree || blocks_[at].state == State::kHole) &&
           blocks_[at].zone == zone;
  };
  Index first = index, last = index;
  for (int i = 0; i < kReach && is_room(blocks_[first].before); ++i) first = blocks_[first].before;
  for (int i = 0; i < kReach && is_room(blocks_[last].after); ++i) last = blocks_[last].after;
  const Offset begin = blocks_[first].range.begin;
  return {{begin, blocks_[last].range.end() - begin}, first};
}

bool PoolRow::fits_still(Index hole, Size size) noexcept {
  Block& block = blocks_[hole];
  const Size room = room_of(hole).range.size;
  if (room != block.asked) {
    block.asked = room;
    bins_for(hole).resize(blocks_.data(), hole, units(room));
  }
  return room >= size;
}

/// The holes next to a free block or a hole are found by what their room has become.
void PoolRow::widen_room(Index index) noexcept {
  const State before = blocks_[blocks_[index].before].state, after = blocks_[blocks_[index].after].state;
  const auto is_none = [](State state) { return state == State::kLive || state == State::kRecent; };
  if (is_none(before) && is_none(after)) return;
  const Room room = room_of(index);
  for (Index at = room.first; at != 0 && blocks_[at].range.begin < room.range.end(); at = blocks_[at].after) {
    if (blocks_[at].state != State::kHole || blocks_[at].asked >= room.range.size) continue;
    blocks_[at].asked = room.range.size;
    bins_for(at).resize(blocks_.data(), at, units(room.range.size));
  }
}

PoolRow::Index PoolRow::settle(Index index) noexcept {
  return blocks_[index].state == State::kFree ? settle_free(index) : settle_hole(index);
}

PoolRow::Index PoolRow::settle_hole(Index index) noexcept {
  const Index after = blocks_[index].after, before = blocks_[index].before;
  const bool joins_before = can_join(before, index);
  if (can_join(index, after)) {
    take_from_bin(after);
    join_after(index);
  }
  if (joins_before) {
    take_from_bin(before);
    join_after(before);
    index = before;
  }
  put_in_bin(index);
  widen_room(index);
  return index;
}

/// Of a free block, which is in no bin, next to one that another stream freed.
PoolRow::Index PoolRow::settle_at_border(Index index) noexcept {
  if (const Index after = blocks_[index].after; can_join(index, after)) {
    take_from_bin(after);
    join_after(index);
  }
  if (const Index before = blocks_[index].before; can_join(before, index)) {
    take_from_bin(before);
    join_after(before);
    index = before;
  }
  put_in_bin(index);
  if (borders_noted_ < kBorders) borders_[borders_noted_++] = index;
  return index;
}

/// What was noted may be another block by now, or none: then its neighbours are no worse than others.
void PoolRow::join_over_borders() noexcept {
  const size_t noted = std::exchange(borders_noted_, 0);
  for (size_t i = 0; i < noted; ++i) {
    const Index index = borders_[i];
    const Block& block = blocks_[index];
    if (block.state != State::kFree || block.zone == Zone::kPlain || block.range.size == 0) continue;
    if (!can_join(index, block.after) && !can_join(block.before, index)) continue;
    take_from_bin(index);
    settle_at_border(index);
  }
}

void PoolRow::forget_recent() noexcept {
  for (Index& recent : recent_) {
    if (recent == 0) continue;
    blocks_[recent].state = State::kFree;
    settle(recent);
    recent = 0;
  }
}

PoolRow::Index PoolRow::make_hole(Index index, Range range) noexcept {
  take_from_bin(index);
  Index left = 0, right = 0;
  if (blocks_[index].range.begin < range.begin) {
    left = index;
    index = cut(index, range.begin);
  }
  if (range.end() < blocks_[index].range.end()) right = cut(index, range.end());
  blocks_[index].state = State::kHole;
  if (left != 0) put_in_bin(left);
  if (right != 0) put_in_bin(right);
  return settle(index);
}

void PoolRow::join_free(Index index, Tick moment) noexcept {
  const Index after = blocks_[index].after;
  take_from_bin(index);
  take_from_bin(after);
  const std::uint16_t slot = blocks_[after].slot;
  join_after(index);
  blocks_[index].slot = slot;
  blocks_[index].moment = moment;
  put_in_bin(index);
}

// --- given out ---

PoolRow::Index PoolRow::take_part(Index index, Size size, Size asked, std::uint16_t slot, End end) noexcept {
  const Use use = blocks_[index];
  return take(bins_[bin_of(use.slot, use.zone)], index, size, asked, slot, use.zone, end);
}

PoolRow::Index PoolRow::take_window(Index first, Range range, Size granule, Size asked, std::uint16_t slot,
                                    Size ahead) noexcept {
  Index at = first;
  for (Index index = first; index != 0 && blocks_[index].range.begin < range.end();
       index = blocks_[index].after) {
    take_from_bin(index);
    if (blocks_[index].state == State::kHole) {
      const Offset begin = std::max(blocks_[index].range.begin, align_down(range.begin, granule));
      const Offset aim =
          align_up(range.end(), granule) + (blocks_[index].range.end() > range.end() ? ahead : 0);
      const Offset end = std::min(blocks_[index].range.end(), aim);
      if (begin > blocks_[index].range.begin) {
        const bool is_first = index == at;
        const Index rest = index;
        index = cut(index, begin);
        put_in_bin(rest);
        if (is_first) at = index;
      }
      if (end < blocks_[index].range.end()) put_in_bin(cut(index, end));
      blocks_[index].state = State::kFree;
    }
  }
  Index left = 0, right = 0;
  if (blocks_[at].range.begin < range.begin) {
    left = at;
    at = cut(at, range.begin);
  }
  Index last = at;
  while (blocks_[last].range.end() < range.end()) last = blocks_[last].after;
  if (blocks_[last].range.end() > range.end())
    right = cut(last, range.end());  // before it forgets its stream
  while (blocks_[at].range.end() < range.end()) join_after(at);
  begin_life(at, asked, slot, blocks_[at].zone);
  if (left != 0) settle(left);
  if (right != 0) settle(right);
  return at;
}

// --- zones ---

void PoolRow::end_aside() noexcept {
  for (Index index = head_; index != 0; index = blocks_[index].after) {
    Block& block = blocks_[index];
    if (block.zone != Zone::kAside) continue;
    if (block.state != State::kLive) take_from_bin(index);
    block.zone = Zone::kCommon;
    if (block.state != State::kLive) index = settle(index);
  }
}

void PoolRow::set_aside(Index hole, Size size) noexcept {
  take_from_bin(hole);
  if (blocks_[hole].range.size > size) put_in_bin(cut(hole, blocks_[hole].range.begin + size));
  blocks_[hole].zone = Zone::kAside;
  put_in_bin(hole);
}

bool PoolRow::begin_small(Size least, Size granule) noexcept {
  Index last = head_;
  while (blocks_[last].after != 0) last = blocks_[last].after;
  const Range whole = blocks_[last].range;
  const Offset at = align_up(whole.end() - whole.size / 8, granule);
  if (blocks_[last].state != State::kHole || blocks_[last].zone != Zone::kCommon || whole.end() < at + least)
    return false;
  take_from_bin(last);
  const Index small = cut(last, at);
  blocks_[small].zone = Zone::kSmall;
  put_in_bin(last);
  put_in_bin(small);
  ++unused_ranges_;
  return true;
}

PoolRow::Index PoolRow::add_plain(Range range, std::uint16_t slot) noexcept {
  const Index index = take_record();
  Block& block = blocks_[index];
  block = {};
  block.range = range;
  block.slot = slot;
  block.zone = Zone::kPlain;
  put_in_bin(index);
  return index;
}

void PoolRow::drop_plain(Index index) noexcept {
  take_from_bin(index);
  blocks_[index] = {};
  drop_record(index);
}

}  // namespace memoir
