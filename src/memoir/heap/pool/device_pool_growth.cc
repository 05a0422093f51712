// SPDX-License-Identifier: Apache-2.0
//
// DevicePoolHeap: what it does when no committed block of the request's own stream holds it. Everything here
// may look at every block once; it ends in a device call, a wait, or a rare find.
#include <algorithm>

#include "memoir/heap/pool/device_pool_heap.h"

namespace memoir {

namespace {
constexpr double kShareOfPeak = 0.005;  // what a pool with Aside::kShare may hold beyond the peak live bytes

/// What of a range lies before or after another one: the larger part.
Range outside(Range range, Range other) noexcept {
  if (!range.overlaps(other)) return range;
  const Size before = other.begin > range.begin ? other.begin - range.begin : 0;
  const Size after = range.end() > other.end() ? range.end() - other.end() : 0;
  return before >= after ? Range{range.begin, before} : Range{other.end(), after};
}
}  // namespace

Offset DevicePoolHeap::allocate_slowly(const Request& request, Size size, std::uint16_t slot) noexcept {
  if (size < request.size || size > arena_->capacity()) return kNoOffset;
  const bool waits = options_.wait_first;
  forget_recent();
  if (request.alignment <= options_.alignment) {
    const Index index = bins_of(slot, Zone::kCommon).find(blocks_.data(), size, units(size));
    if (index != 0) return take_part(index, size, request.size, slot);
    if (aside_.size != 0 && treat_aside_ <= Aside::kShare) {
      const Index aside = bins_of(slot, Zone::kAside).find(blocks_.data(), size, units(size));
      if (aside != 0) return take_part(aside, size, request.size, slot);
    }
    const Offset found = take_from_other(request, size, slot, Zone::kCommon, waits);
    if (found != kNoOffset) return found;
  }
  const Offset found = try_windows(request, size, slot, waits);
  // A full device: rather a wait than a refusal; and no wait when the streams cannot be ordered.
  return found == kNoOffset && order_ != nullptr && streams_.size() > 1
             ? try_windows(request, size, slot, !waits)
             : found;
}

Offset DevicePoolHeap::try_windows(const Request& request, Size size, std::uint16_t slot,
                                   bool waits) noexcept {
  const bool yields = aside_.size != 0 && treat_aside_ == Aside::kYield;
  Window window;
  find_window(window, size, request.alignment, slot, waits, Zone::kCommon);
  if (yields) find_window(window, size, request.alignment, slot, waits, Zone::kAside);
  if (window.first != 0) {
    const Offset served = serve(window, request, size, slot);
    if (served != kNoOffset) return served;
  }
  if (aside_.size == 0 || yields) return kNoOffset;
  Window aside;  // a full device: what is set aside is better used than refused
  find_window(aside, size, request.alignment, slot, waits, Zone::kAside);
  return aside.first != 0 ? serve(aside, request, size, slot) : kNoOffset;
}

/// A committed block that another stream freed: one that is ordered already, else the one freed first.
Offset DevicePoolHeap::take_from_other(const Request& request, Size size, std::uint16_t slot, Zone zone,
                                       bool waits) noexcept {
  if (order_ == nullptr && streams_.size() == 1) return kNoOffset;
  Index best = 0;
  bool best_is_ordered = false;
  for (std::uint16_t other = 0; other < streams_.size(); ++other) {
    if (other == slot) continue;
    const Index index = bins_of(other, zone).find(blocks_.data(), size, units(size));
    if (index == 0) continue;
    const bool ordered = is_ordered(blocks_[index], slot);
    if (!ordered && (!waits || order_ == nullptr)) continue;
    if (best != 0 &&
        (ordered != best_is_ordered ? best_is_ordered : blocks_[index].moment >= blocks_[best].moment)) {
      continue;
    }
    best = index;
    best_is_ordered = ordered;
  }
  if (best == 0 || !order(blocks_[best], slot)) return kNoOffset;
  counters_.cross += blocks_[best].moment != 0;
  return take_part(best, size, request.size, slot);
}

// --- a place for it: a window over free blocks and holes in a row ---

/// Bytes of granules that the block lacks for this range.
Size DevicePoolHeap::need_of(const Block& block, Range range) const noexcept {
  if (block.state != State::kHole) return 0;
  const Size granule = arena_->granule();
  const Offset begin = std::max(block.range.begin, align_down(range.begin, granule));
  const Offset end = std::min(block.range.end(), align_up(range.end(), granule));
  return begin < end ? end - begin : 0;
}

/// The window that needs the fewest granules, then the fewest waits, then lies lowest. Those that begin where
/// a block begins and those that end where one ends are all that matter.
void DevicePoolHeap::find_window(Window& best, Size size, Size alignment, std::uint16_t slot, bool waits,
                                 Zone zone) const noexcept {
  alignment = std::max(alignment, options_.alignment);
  Offset chain = 0;  // where the row of free blocks and holes began
  Index before = 0;  // its first block
  for (Index index = head_; index != 0; index = blocks_[index].after) {
    const Block& block = blocks_[index];
    if (block.state == State::kLive || block.zone != zone) {
      before = 0;
      continue;
    }
    if (before == 0) {
      before = index;
      chain = block.range.begin;
    }
    if (block.range.begin <= ~Size{0} - alignment) {
      const Offset begin = align_up(block.range.begin, alignment);
      if (begin < block.range.end()) weigh(best, begin, index, size, slot, waits);
    }
    if (block.range.end() - chain < size) continue;
    const Offset begin = align_down(block.range.end() - size, alignment);
    if (begin < chain) continue;
    Index first = index;
    while (blocks_[first].range.begin > begin) first = blocks_[first].before;
    weigh(best, begin, first, size, slot, waits);
  }
}

void DevicePoolHeap::weigh(Window& best, Offset begin, Index first, Size size, std::uint16_t slot,
                           bool waits) const noexcept {
  Window window{begin, first, 0, 0};
  if (size > arena_->capacity() - begin) return;
  const Range range{begin, size};
  for (Index index = first;; index = blocks_[index].after) {
    const Block& block = blocks_[index];
    if (index == 0 || block.state == State::kLive || block.zone != blocks_[first].zone) return;
    window.need += need_of(block, range);
    if (window.need > best.need) return;
    if (!is_ordered(block, slot)) {
      if (!waits || order_ == nullptr) return;
      ++window.waits;
    }
    if (block.range.end() >= range.end()) break;
  }
  if (window.need == best.need &&
      (window.waits > best.waits || (window.waits == best.waits && begin >= best.begin))) {
    return;
  }
  best = window;
}

Offset DevicePoolHeap::serve(const Window& window, const Request& request, Size size,
                             std::uint16_t slot) noexcept {
  const Range range{window.begin, size};
  Index first = window.first;
  if (!order_all(first, range, slot)) return kNoOffset;
  if (window.need != 0 && !commit_all(first, range, window.need)) return kNoOffset;
  return take_window(first, range, request.size, slot);
}

// --- streams ---

bool DevicePoolHeap::is_ordered(const Block& block, std::uint16_t slot) const noexcept {
  if (block.slot == slot || block.moment == 0) return true;
  return order_ != nullptr && order_->is_ordered(streams_[block.slot], block.moment, streams_[slot]);
}

bool DevicePoolHeap::order(const Block& block, std::uint16_t slot) noexcept {
  if (is_ordered(block, slot)) return true;
  if (order_ == nullptr || !order_->order(streams_[block.slot], block.moment, streams_[slot])) return false;
  ++counters_.waits;
  return true;
}

bool DevicePoolHeap::order_all(Index first, Range range, std::uint16_t slot) noexcept {
  bool cross = false;
  for (Index index = first; index != 0 && blocks_[index].range.begin < range.end();
       index = blocks_[index].after) {
    if (!order(blocks_[index], slot)) return false;
    cross |= blocks_[index].slot != slot && blocks_[index].moment != 0;
  }
  counters_.cross += cross;
  return true;
}

// --- memory for it ---

/// Commits what the range lacks, `need` bytes, moving idle memory where the policy or the cap says so.
/// `first` is the block that the range begins in, before and after. False when there is no memory: nothing is
/// lost.
bool DevicePoolHeap::commit_all(Index& first, Range range, Size need) noexcept {
  const Size granule = arena_->granule();
  const Size held = std::max(peak_held_, held_ + range.size);
  if (held == peak_held_) {
    ++counters_.repeated;
    if (detector_ != nullptr) detector_->wake();
  }
  const auto share = [&](double more) {
    return align_up(static_cast<Size>(std::min(static_cast<double>(held) * (1 + more), 0x1p62)), granule);
  };
  const Size committed = arena_->committed() + need;
  const Range keep{align_down(range.begin, granule),
                   align_up(range.end(), granule) - align_down(range.begin, granule)};
  bool moved = false;
  const auto move = [&](Size bytes) {
    const Size got = move_away(bytes, keep);
    first = block_at(range.begin);
    if (got == 0) return false;
    counters_.moves += !moved;
    moved = true;
    return true;
  };
  Size target = share(options_.slack);
  bool fills = false;
  if (aside_.size != 0 && treat_aside_ != Aside::kYield) {
    const bool is_aside = range.overlaps(aside_);
    const Size both = align_up(aside_.size + held_ - held_aside_ + (is_aside ? 0 : range.size), granule);
    fills = is_aside && treat_aside_ != Aside::kKeep;
    target = std::max(target, treat_aside_ == Aside::kShare ? std::min(both, share(kShareOfPeak)) : both);
  }
  const Size most = std::max(target, share(options_.excess));
  if (committed > target && (held > peak_held_ || fills || may_move(range.size))) {
    move(committed - target);
  } else if (committed > most) {
    move(committed - most);
  }
  if (commit_holes(first, range)) return true;
  // A cap, or a full device: as little as makes it fit. The shortage is unknown; `need` is the most that can
  // help.
  return move(need) && commit_holes(first, range);
}

/// Counts the moves for requests of this size; false when they have been enough.
bool DevicePoolHeap::may_move(Size size) noexcept {
  std::uint8_t& moves = moves_[(units(size) * 0x9e3779b97f4a7c15ull) >> (64 - kMoveBits)];
  if (moves >= options_.patience) return false;
  moves = static_cast<std::uint8_t>(std::min<Size>(moves + 1u, 254));
  return true;
}

bool DevicePoolHeap::commit_holes(Index first, Range range) noexcept {
  const Size granule = arena_->granule();
  for (Index index = first; index != 0 && blocks_[index].range.begin < range.end();
       index = blocks_[index].after) {
    const Block& block = blocks_[index];
    if (const Size need = need_of(block, range); need != 0) {
      const Offset begin = std::max(block.range.begin, align_down(range.begin, granule));
      if (!arena_->commit({begin, need})) {
        for (Index undo = first; undo != index; undo = blocks_[undo].after) {
          const Size done = need_of(blocks_[undo], range);
          if (done == 0) continue;
          arena_->decommit({std::max(blocks_[undo].range.begin, align_down(range.begin, granule)), done});
          ++counters_.decommits;
        }
        return false;
      }
      ++counters_.commits;
    }
  }
  return true;
}

/// The granules that lie wholly in a free block; empty when there are none.
Range DevicePoolHeap::idle(const Block& block) const noexcept {
  if (block.state != State::kFree || block.zone == Zone::kPlain) return {};
  const Offset begin = align_up(block.range.begin, arena_->granule());
  const Offset end = align_down(block.range.end(), arena_->granule());
  return begin < end ? Range{begin, end - begin} : Range{};
}

/// As move_away() finds them: neighbours of different streams count as one block where those can be ordered.
Size DevicePoolHeap::idle_bytes() noexcept {
  forget_recent();
  const bool joins = options_.wait_first && order_ != nullptr;
  Size bytes = 0;
  Block row;  // free blocks that lie side by side
  row.state = State::kLive;
  for (Index index = head_; index != 0; index = blocks_[index].after) {
    const Block& block = blocks_[index];
    if (block.state == State::kFree && row.state == State::kFree && block.zone == row.zone &&
        (joins || block.slot == row.slot)) {
      row.range.size += block.range.size;
      continue;
    }
    bytes += idle(row).size;
    row = block;
  }
  return bytes + idle(row).size;
}

/// Decommits up to `bytes` of idle memory outside of `keep`; gives back how much it was.
Size DevicePoolHeap::move_away(Size bytes, Range keep) noexcept {
  const Size done = move_pieces(bytes, keep);
  // Granules that two streams share are nobody's; rather a wait than a refusal.
  return done < bytes && options_.wait_first && join_across() ? done + move_pieces(bytes - done, keep) : done;
}

/// Joins free neighbours whatever streams they are of, as far as those can be ordered. True when there were
/// any.
bool DevicePoolHeap::join_across() noexcept {
  if (order_ == nullptr || streams_.size() == 1) return false;
  bool any = false;
  for (Index index = head_; index != 0;) {
    const Index after = blocks_[index].after;
    const Block& left = blocks_[index];
    const Block& right = blocks_[after];
    if (after == 0 || left.state != State::kFree || right.state != State::kFree || left.zone != right.zone ||
        !order(left, right.slot)) {
      index = after;
      continue;
    }
    take_from_bin(index);
    take_from_bin(after);
    const std::uint16_t slot = right.slot;
    join_after(index);
    blocks_[index].slot = slot;
    blocks_[index].moment = order_->now();  // what is queued on it by now comes after both
    put_in_bin(index);
    any = true;
  }
  return any;
}

/// Few pieces: the smallest that is enough, else the largest and so on.
Size DevicePoolHeap::move_pieces(Size bytes, Range keep) noexcept {
  Size done = 0;
  while (done < bytes && reserve_records(8)) {
    const Size wanted = bytes - done;
    Index best = 0;
    Size size = 0;
    for (Index index = head_; index != 0; index = blocks_[index].after) {
      const Range found = outside(idle(blocks_[index]), keep);
      if (found.size == 0) continue;
      if (best == 0 || (size < wanted ? found.size > size : found.size >= wanted && found.size < size)) {
        best = index;
        size = found.size;
      }
    }
    if (best == 0) break;
    const Range found = outside(idle(blocks_[best]), keep);
    const Size taken = std::min(wanted, found.size);
    make_hole(best, {found.end() - taken, taken});
    counters_.moved += taken;
    done += taken;
  }
  return done;
}

/// Decommits granules of a free block; gives back the hole.
DevicePoolHeap::Index DevicePoolHeap::make_hole(Index index, Range range) noexcept {
  take_from_bin(index);
  Index left = 0, right = 0;
  if (blocks_[index].range.begin < range.begin) {
    left = index;
    index = cut(index, range.begin);
  }
  if (range.end() < blocks_[index].range.end()) right = cut(index, range.end());
  arena_->decommit(range);
  ++counters_.decommits;
  blocks_[index].state = State::kHole;
  if (left != 0) put_in_bin(left);
  if (right != 0) put_in_bin(right);
  return settle(index);
}

// --- plain memory ---

Offset DevicePoolHeap::allocate_plain(const Request& request, Size size, std::uint16_t slot) noexcept {
  if (plain_ == nullptr || request.alignment > options_.alignment) return kNoOffset;
  const Index found = bins_of(slot, Zone::kPlain).find(blocks_.data(), size, units(size));
  if (found != 0) return take_part(found, size, request.size, slot);
  const Offset other = take_from_other(request, size, slot, Zone::kPlain, options_.wait_first);
  if (other != kNoOffset) return other;
  Size length = std::max(size, align_up(options_.plain_step, options_.alignment));
  Offset begin = plain_->take(length);
  if (begin == kNoOffset) {
    trim();  // the device is full: mapped memory that lies idle may make room
    begin = plain_->take(length);
  }
  if (begin == kNoOffset && length != size) begin = plain_->take(length = size);
  if (begin == kNoOffset) return kNoOffset;
  const Index index = take_record();
  Block& block = blocks_[index];
  block = {};
  block.range = {begin, length};
  block.slot = slot;
  block.zone = Zone::kPlain;
  put_in_bin(index);
  return take_part(index, size, request.size, slot);
}

void DevicePoolHeap::give_back_plain() noexcept {
  // Every record once: plain blocks are few, and in no row of their own.
  for (Index index = 1; index < blocks_.size(); ++index) {
    Block& block = blocks_[index];
    if (block.zone != Zone::kPlain || block.state != State::kFree || block.before != 0 || block.after != 0)
      continue;
    if (block.range.size == 0) continue;  // a record that was given up
    take_from_bin(index);
    plain_->give_back(block.range);
    block = {};
    block.after = unused_;
    unused_ = index;
  }
}

}  // namespace memoir
