// SPDX-License-Identifier: Apache-2.0
//
// DevicePoolHeap: what it does when no committed block of the request's own stream holds it. It ends in a
// device call, a wait, or a rare find, after a number of steps that does not grow with the blocks.
#include <algorithm>

#include "memoir/heap/pool/device_pool_heap.h"

namespace memoir {

namespace {
constexpr Size kLeastApart = 64;  // granules of addresses
// At free blocks of one stream, for what to move: those that are enough, and others.
constexpr int kFewLooks = 16, kLooks = 96;
constexpr double kReserve = 0.02;  // of peak live bytes: most that a move takes away beyond its need
// of peak live bytes: what the pool may grow by for every request that was served by a move; the most of it
constexpr double kBoughtByMove = 0.00005, kMostBought = 0.05;
// of peak live bytes, and bytes: what growth maps beyond its need, for the growth to come
constexpr double kAhead = 0.005;
constexpr Size kMostAhead = 20 * kMiB;
// Of peak live bytes: room in which the pool is as tight as it can be; else what it may grow by, of that
// room, and at most.
constexpr double kNearlyFull = 0.1, kEaseOfRoom = 0.125, kMostEase = 0.1;
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
  if (order_ != nullptr) row_.note_done(order_->all_done());
  row_.forget_recent();
  if (counters_.moves >= kFreeMoves && !asked_apart_) {
    asked_apart_ = true;
    keeps_apart_ = row_.begin_small(kLeastApart * arena_->granule(), arena_->granule());
  }
  const Zone zone = zone_for(size);
  const Offset found = allocate_in(zone, request, size, slot);
  return found == kNoOffset && zone != Zone::kCommon ? allocate_in(Zone::kCommon, request, size, slot)
                                                     : found;
}

Offset DevicePoolHeap::allocate_in(Zone zone, const Request& request, Size size,
                                   std::uint16_t slot) noexcept {
  const bool waits = options_.wait_first;
  if (request.alignment <= options_.alignment) {
    Index index = row_.find(slot, zone, size);
    if (index != 0 && may_fit_better(index, size)) {
      const PoolWindows::Wish wish{size, options_.alignment, slot, waits};
      const Window window = windows_.find_fit(wish, index);
      if (window.need != 0) {
        const Offset served = serve(window, request, size, slot);
        if (served != kNoOffset) return served;
        index = row_.find(slot, zone, size);  // idle memory may have gone from the block
      }
    }
    if (index != 0) {
      if (is_much_too_large(index, size)) {
        const Offset found = take_smaller_of_other(request, size, slot, zone, row_[index].range.size);
        if (found != kNoOffset) return found;
      }
      return begin_life(row_.take_part(index, size, request.size, slot, end_for(size)));
    }
    if (aside_.shares()) {
      const Index aside = row_.find(slot, Zone::kAside, size);
      if (aside != 0) return begin_life(row_.take_part(aside, size, request.size, slot, end_for(size)));
    }
    const Offset found = take_from_other(request, size, slot, zone, waits);
    if (found != kNoOffset) return found;
  }
  const Offset found = try_windows(request, size, slot, zone, waits);
  // A full device: rather a wait than a refusal; and no wait when the streams cannot be ordered.
  return found == kNoOffset && order_ != nullptr && row_.slots() > 1
             ? try_windows(request, size, slot, zone, !waits)
             : found;
}

Offset DevicePoolHeap::try_windows(const Request& request, Size size, std::uint16_t slot, Zone zone,
                                   bool waits) noexcept {
  const PoolWindows::Wish wish{size, std::max(request.alignment, options_.alignment), slot, waits};
  Window window = windows_.find(wish, zone);
  if (aside_.yields()) window = windows_.find(wish, Zone::kAside, window);
  if (window.first != 0) {
    const Offset served = serve(window, request, size, slot);
    if (served != kNoOffset) return served;
  }
  if (!aside_.is_set() || aside_.yields()) return kNoOffset;
  // A full device: what is set aside is better used than refused.
  const Window aside = windows_.find(wish, Zone::kAside);
  return aside.first != 0 ? serve(aside, request, size, slot) : kNoOffset;
}

/// A committed block that another stream freed: one that is ordered already, else the one freed first.
Offset DevicePoolHeap::take_from_other(const Request& request, Size size, std::uint16_t slot, Zone zone,
                                       bool waits) noexcept {
  if (order_ == nullptr && row_.slots() == 1) return kNoOffset;
  Index best = 0;
  bool best_is_ordered = false;
  for (std::uint16_t other = 0; other < row_.slots(); ++other) {
    if (other == slot) continue;
    const Index index = row_.find(other, zone, size);
    if (index == 0) continue;
    const bool ordered = windows_.is_ordered(row_[index], slot);
    if (!ordered && (!waits || order_ == nullptr)) continue;
    if (best != 0 &&
        (ordered != best_is_ordered ? best_is_ordered : row_[index].moment >= row_[best].moment)) {
      continue;
    }
    best = index;
    best_is_ordered = ordered;
  }
  if (best == 0 || !order(row_[best], slot)) return kNoOffset;
  counters_.cross += row_[best].moment != 0;
  return begin_life(row_.take_part(best, size, request.size, slot, end_for(size)));
}

/// A committed block of fewer than `most` bytes whose stream is done with it: the smallest of several
/// streams'.
Offset DevicePoolHeap::take_smaller_of_other(const Request& request, Size size, std::uint16_t slot, Zone zone,
                                             Size most) noexcept {
  Index best = 0;
  for (std::uint16_t other = 0; other < row_.slots(); ++other) {
    if (other == slot) continue;
    const Index index = row_.find(other, zone, size);
    if (index == 0 || row_[index].range.size >= most || !windows_.is_ordered(row_[index], slot)) continue;
    best = index;
    most = row_[index].range.size;
  }
  if (best == 0) return kNoOffset;
  counters_.cross += row_[best].moment != 0;
  return begin_life(row_.take_part(best, size, request.size, slot, end_for(size)));
}

Offset DevicePoolHeap::serve(const Window& window, const Request& request, Size size,
                             std::uint16_t slot) noexcept {
  const Range range{window.begin, size};
  Index first = window.first;
  if (!order_all(first, range, slot)) return kNoOffset;
  Size ahead = 0;
  if (window.need != 0 && !commit_all(first, range, window.need, ahead)) return kNoOffset;
  return begin_life(row_.take_window(first, range, arena_->granule(), request.size, slot, ahead));
}

// --- streams ---

bool DevicePoolHeap::order(const Block& block, std::uint16_t slot) noexcept {
  if (windows_.is_ordered(block, slot)) return true;
  if (order_ == nullptr || !order_->order(row_.stream_of(block.slot), block.moment, row_.stream_of(slot)))
    return false;
  ++counters_.waits;
  return true;
}

bool DevicePoolHeap::order_all(Index first, Range range, std::uint16_t slot) noexcept {
  bool cross = false;
  for (Index index = first; index != 0 && row_[index].range.begin < range.end(); index = row_[index].after) {
    if (!order(row_[index], slot)) return false;
    cross |= row_[index].slot != slot && row_[index].moment != 0;
  }
  counters_.cross += cross;
  return true;
}

// --- memory for it ---

/// Commits what the range lacks, `need` bytes, moving idle memory where the policy or the cap says so.
/// `first` is the block that the range begins in, before and after. A pool that grows commits `ahead` bytes
/// more of the hole that the range ends in. False when there is no memory: nothing is lost.
bool DevicePoolHeap::commit_all(Index& first, Range range, Size need, Size& ahead) noexcept {
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
  const Size reserve = align_down(static_cast<Size>(static_cast<double>(held) * kReserve), granule);
  bool moved = false;
  // What lies before the row of free blocks and holes stays as it is.
  Index anchor = first;
  while (anchor != 0 && row_[anchor].state != State::kLive) anchor = row_[anchor].before;
  const auto move = [&](Size bytes) {
    const Size got = move_away(bytes, reserve, keep);
    first = row_.block_from(anchor == 0 ? row_.head() : anchor, range.begin);
    if (got == 0) return false;
    counters_.moves += !moved;
    moved = true;
    return true;
  };
  // Rent or buy: who had to move memory often grows rather than go on so.
  const std::uint64_t rented = counters_.moves - std::min(counters_.moves, kFreeMoves);
  const double bought = std::min(static_cast<double>(rented) * kBoughtByMove, kMostBought);
  const double ease = ease_of(held);
  Size target = share(std::max({options_.slack, bought, ease}));
  const bool fills = aside_.fills(range);
  if (aside_.is_set() && !aside_.yields()) {
    const Size both = align_up(aside_.needed_with(held_, range), granule);
    target = std::max(target, aside_.shares() ? std::min(both, share(kShareOfPeak)) : both);
  }
  const Size most = std::max(target, share(std::max(options_.excess + bought, ease)));
  if (committed > target && (held > peak_held_ || fills || may_move(range.size))) {
    move(committed - target);
  } else if (committed > most) {
    move(committed - most);
  }
  if (!moved && (ahead = ahead_of(first, range, held, committed)) != 0) {
    if (commit_holes(first, range, ahead)) return true;
    ahead = 0;
  }
  if (commit_holes(first, range)) return true;
  // A cap, or a full device: as little as makes it fit. The shortage is unknown; `need` is the most that can
  // help.
  return move(need) && commit_holes(first, range);
}

/// How much more than the peak the pool may hold because the device is far from full, as a share of it:
/// moving memory costs time, and memory that nobody else wants costs nothing. Little when there is little
/// room, so that a device that is nearly full, or a cap, is filled as tightly as without.
double DevicePoolHeap::ease_of(Size held) noexcept {
  if (held == 0) return 0;
  const double room = static_cast<double>(arena_->room()) / static_cast<double>(held);
  return room < kNearlyFull ? 0 : std::min(room * kEaseOfRoom, kMostEase);
}

/// Counts the moves for requests of this size; false when they have been enough.
bool DevicePoolHeap::may_move(Size size) noexcept {
  std::uint8_t& moves = moves_[slot_of_size(size)];
  if (moves >= options_.patience) return false;
  moves = static_cast<std::uint8_t>(std::min<Size>(moves + 1u, 254));
  return true;
}

/// Counts the request.
bool DevicePoolHeap::is_frequent(Size size) noexcept {
  if (size >= arena_->granule()) return false;
  std::uint8_t& requests = requests_[slot_of_size(size)];
  if (requests < kFrequent) ++requests;
  return requests == kFrequent;
}

/// What growth may commit beyond its need, where the range ends in addresses that nobody has used: a pool
/// that holds `held` bytes, with so many `committed` after this.
Size DevicePoolHeap::ahead_of(Index first, Range range, Size held, Size committed) const noexcept {
  if (aside_.is_set()) return 0;
  const Index last = row_.block_from(first, range.end() - 1);
  const Block& block = row_[last];
  const Size granule = arena_->granule();
  const Offset from = align_up(range.end(), granule);
  if (block.state != State::kHole || block.moment != 0 || block.range.end() <= from) return 0;
  const Size aim =
      align_down(held + std::min(static_cast<Size>(static_cast<double>(held) * kAhead), kMostAhead), granule);
  return aim <= committed ? 0 : std::min(aim - committed, align_down(block.range.end(), granule) - from);
}

/// And `ahead` bytes more of the hole that the range ends in.
bool DevicePoolHeap::commit_holes(Index first, Range range, Size ahead) noexcept {
  const Size granule = arena_->granule();
  for (Index index = first; index != 0 && row_[index].range.begin < range.end(); index = row_[index].after) {
    const Block& block = row_[index];
    if (const Size need = windows_.need_of(block, range); need != 0) {
      const Offset begin = std::max(block.range.begin, align_down(range.begin, granule));
      if (!arena_->commit({begin, need + (block.range.end() > range.end() ? ahead : 0)})) {
        for (Index undo = first; undo != index; undo = row_[undo].after) {
          const Size done = windows_.need_of(row_[undo], range);
          if (done == 0) continue;
          arena_->take_away({std::max(row_[undo].range.begin, align_down(range.begin, granule)), done});
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
  row_.forget_recent();
  const bool joins = options_.wait_first && order_ != nullptr;
  Size bytes = 0;
  Block row;  // free blocks that lie side by side
  row.state = State::kLive;
  for (Index index = row_.head(); index != 0; index = row_[index].after) {
    const Block& block = row_[index];
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

/// Decommits `bytes` of idle memory outside of `keep`, or what there is, and up to `more` on the same
/// occasion; gives back how much it was.
Size DevicePoolHeap::move_away(Size bytes, Size more, Range keep) noexcept {
  const Size done = move_pieces(bytes, more, keep);
  // Granules that two streams share are nobody's; rather a wait than a refusal.
  return done < bytes && options_.wait_first && join_across() ? done + move_pieces(bytes - done, more, keep)
                                                              : done;
}

/// Joins free neighbours whatever streams they are of, as far as those can be ordered. True when there were
/// any.
bool DevicePoolHeap::join_across() noexcept {
  if (order_ == nullptr || row_.slots() == 1) return false;
  bool any = false;
  for (Index index = row_.head(); index != 0;) {
    const Index after = row_[index].after;
    const Block& left = row_[index];
    const Block& right = row_[after];
    if (after == 0 || left.state != State::kFree || right.state != State::kFree || left.zone != right.zone ||
        !order(left, right.slot)) {
      index = after;
      continue;
    }
    row_.join_free(index, order_->now());  // what is queued on it by now comes after both
    any = true;
  }
  return any;
}

/// Few pieces: the smallest that is enough, else the largest and so on, as far as a few looks tell.
Size DevicePoolHeap::move_pieces(Size bytes, Size more, Range keep) noexcept {
  Size done = 0;
  while (done < bytes && row_.reserve_records(8)) {
    const Size wanted = bytes + more - done;
    Index best = 0;
    Size size = 0;
    bool hidden = false;  // by what is kept
    const auto look = [&](Index index) {
      const Range whole = idle(row_[index]), found = outside(whole, keep);
      hidden |= found.size != whole.size;
      if (found.size == 0) return;
      if (best == 0 || (size < wanted ? found.size > size : found.size >= wanted && found.size < size)) {
        best = index;
        size = found.size;
      }
    };
    for (std::uint16_t slot = 0; slot < row_.slots(); ++slot) {
      for (const Zone zone : {Zone::kCommon, Zone::kSmall, Zone::kAside}) {
        const FreeBins& bins = row_.free_bins(slot, zone);
        bins.visit_upwards(row_.blocks(), row_.units(wanted), kFewLooks, [&](Index index) {
          look(index);
          return true;
        });
        if (size >= wanted) continue;
        bins.visit_downwards(row_.blocks(), row_.units(arena_->granule()), kLooks, [&](Index index) {
          if (row_[index].range.size <= size) return false;  // nor do those to come hold more
          look(index);
          return true;
        });
      }
    }
    if (best == 0 && hidden) {  // a slab's window covers most of the row: rare
      for (Index index = row_.head(); index != 0; index = row_[index].after) look(index);
    }
    if (best == 0) break;
    const Range found = outside(idle(row_[best]), keep);
    const Size taken = std::min(wanted, found.size);
    arena_->take_away({found.end() - taken, taken});
    ++counters_.decommits;
    row_.make_hole(best, {found.end() - taken, taken});
    counters_.moved += taken;
    done += taken;
  }
  return done;
}

// --- plain memory ---

Offset DevicePoolHeap::allocate_plain(const Request& request, Size size, std::uint16_t slot) noexcept {
  if (plain_ == nullptr || request.alignment > options_.alignment) return kNoOffset;
  const Index found = row_.find(slot, Zone::kPlain, size);
  if (found != 0) return begin_life(row_.take_part(found, size, request.size, slot, end_for(size)));
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
  return begin_life(
      row_.take_part(row_.add_plain({begin, length}, slot), size, request.size, slot, end_for(size)));
}

void DevicePoolHeap::give_back_plain() noexcept {
  // Every record once: plain blocks are few, and in no row of their own.
  for (Index index = 1; index < row_.records(); ++index) {
    const Block& block = row_[index];
    if (block.zone != Zone::kPlain || block.state != State::kFree || block.before != 0 || block.after != 0)
      continue;
    if (block.range.size == 0) continue;  // a record that was given up
    plain_->give_back(block.range);
    row_.drop_plain(index);
  }
}

}  // namespace memoir
