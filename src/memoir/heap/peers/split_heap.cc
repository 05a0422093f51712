// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/split_heap.h"

#include <algorithm>

namespace memoir {

namespace {

constexpr Size kSmallUnit = 512, kLargeUnit = 128 * kKiB, kHugeUnit = kMiB;

// Of one of the three phases; the first has no kCollect.
enum PhaseIndex : size_t {
  kCollect,
  kRepopulate,
  kCompact,
  kScan,
  kDevice3,
  kReclaim4,
  kDevice4,
  kReclaim5,
  kDevice5,
  kPerPhase
};
constexpr const char* kPhases[] = {
    "1.1a repopulate", "1.1b compact", "1.2 scan",      "1.3 alloc",       "1.4a reclaim", "1.4b alloc",
    "1.5a reclaim",    "1.5b alloc",   "2.0 gc(false)", "2.1a repopulate", "2.1b compact", "2.2 scan",
    "2.3 alloc",       "2.4a reclaim", "2.4b alloc",    "2.5a reclaim",    "2.5b alloc",   "3.0 gc(true)",
    "3.1a repopulate", "3.1b compact", "3.2 scan",      "3.3 alloc",       "3.4a reclaim", "3.4b alloc",
    "3.5a reclaim",    "3.5b alloc",   "free"};
/// Where it stands in that list.
constexpr size_t in_phase(unsigned phase, PhaseIndex at) { return phase * kPerPhase + at - 1; }
constexpr size_t kFree = in_phase(3, kCollect);  // behind them all
static_assert(std::size(kPhases) <= PhaseTable::kMost);

}  // namespace

SplitHeap::SplitHeap(Segments& segments, const SplitOptions& options, Collector* collector,
                     StreamOrder* order, PhaseTable* phases) noexcept
    : segments_(&segments), options_(options), collector_(collector), order_(order), phases_(phases) {
  // Multiples of the next class's unit: a size that is rounded up never lands below its class.
  if (options.small == 0 || options.small % kLargeUnit != 0 || options.large < options.small ||
      options.large % kHugeUnit != 0 || options.large > ~Size{0} / 4) {
    return;
  }
  if (phases != nullptr) phases->name(kPhases);
  ready_ = blocks_.start();
}

Offset SplitHeap::allocate(const Request& request) noexcept {
  if (!ready_ || request.size == 0 || request.size > ~Size{0} / 2 || !is_power_of_two(request.alignment) ||
      request.alignment > kAlignment) {
    return kNoOffset;
  }
  // Room for the segment's block, the rest that is cut off, and the object: from here on nothing fails
  // half-way.
  if (!blocks_.reserve(2) || !table_.reserve_one()) return kNoOffset;
  const Size size = round(request.size);
  const Index index = find(size, request.stream);
  if (index == 0) return kNoOffset;
  const Class own = class_of(size);
  const Size rest = blocks_[index].range.size - size;
  if (own != kHuge && rest != 0 && class_of(rest) == own) {
    const Index second = blocks_.cut(index, size);
    blocks_[second].id = next_id();
    blocks_[second].stream = blocks_[index].stream;
    blocks_[second].freed = blocks_[index].freed;
    blocks_[second].state = State::kAvailable;
    insert(second);
  }
  SplitBlock& block = blocks_[index];
  block.state = State::kAllocated;
  block.asked = request.size;
  block.stream = request.stream;
  table_.insert(block.range.begin, index);
  live_ += request.size;
  return block.range.begin;
}

bool SplitHeap::free(Offset offset) noexcept {
  const PhaseTable::Timer timer(phases_, kFree);
  const Index index = table_.take(offset);
  if (index == 0) return false;
  SplitBlock& block = blocks_[index];
  live_ -= block.asked;
  block.state = State::kFreed;
  if (order_ != nullptr) block.freed = order_->now();
  block.next_freed = freed_;
  freed_ = index;
  return true;
}

Size SplitHeap::size_of(Offset offset) const noexcept {
  const Index index = table_.find(offset);
  return index == 0 ? 0 : blocks_[index].range.size;
}

void SplitHeap::trim() noexcept {
  if (!ready_) return;
  settle(0);
  reclaim_all();
}

Size SplitHeap::round(Size size) const noexcept {
  return align_up(size, size <= options_.small   ? kSmallUnit
                        : size <= options_.large ? kLargeUnit
                                                 : kHugeUnit);
}

SplitHeap::Class SplitHeap::class_of(Size size) const noexcept {
  return size <= options_.small ? kSmall : size <= options_.large ? kLarge : kHuge;
}

// --- the ladder ---

/// A block of at least `size` bytes that is neither live nor available, or 0.
SplitHeap::Index SplitHeap::find(Size size, StreamId stream) noexcept {
  for (unsigned phase = 0; phase < 3; ++phase) {
    if (phase != 0) {
      const PhaseTable::Timer timer(phases_, in_phase(phase, kCollect));
      if (collector_ != nullptr) collector_->collect(phase == 2);
    }
    const auto timed_take = [&](PhaseIndex at) {
      const PhaseTable::Timer timer(phases_, in_phase(phase, at));
      return take(size);
    };
    settle(phase);
    {
      const PhaseTable::Timer timer(phases_, in_phase(phase, kScan));
      if (const Index index = scan(size, stream); index != 0) return index;
    }
    if (const Index index = timed_take(kDevice3); index != 0) return index;
    for (const Class from : {kHuge, kLarge, kSmall}) {
      {
        const PhaseTable::Timer timer(phases_, in_phase(phase, kReclaim4));
        reclaim(from, size);
      }
      if (const Index index = timed_take(kDevice4); index != 0) return index;
    }
    {
      const PhaseTable::Timer timer(phases_, in_phase(phase, kReclaim5));
      reclaim_all();
    }
    if (const Index index = timed_take(kDevice5); index != 0) return index;
  }
  return 0;
}

/// Brings what was freed back into the classes, joined with its free neighbours.
void SplitHeap::settle(unsigned phase) noexcept {
  if (freed_ == 0) return;
  const Index queued = freed_;
  {
    const PhaseTable::Timer timer(phases_, in_phase(phase, kRepopulate));
    repopulate();
  }
  const PhaseTable::Timer timer(phases_, in_phase(phase, kCompact));
  compact(queued);
}

/// Makes what is queued available. It enters the index of its class when compact() has joined it: the
/// original enters it here, and takes it out there.
void SplitHeap::repopulate() noexcept {
  for (Index index = freed_; index != 0; index = blocks_[index].next_freed) {
    blocks_[index].state = State::kAvailable;
    blocks_[index].is_queued = true;
  }
  freed_ = 0;
}

/// Joins every block of the queue with the available ones on both its sides.
void SplitHeap::compact(Index queued) noexcept {
  while (queued != 0) {
    const Index index = queued;
    queued = blocks_[index].next_freed;
    blocks_[index].is_queued = false;
    if (blocks_[index].state == State::kInvalid) {  // joined to one that came before it in the queue
      blocks_.drop(index);
      continue;
    }
    if (blocks_[index].is_indexed) continue;  // it was the head of one: nothing is left to join
    Index head = index;
    for (Index before; (before = blocks_[head].before) != 0 && blocks_[before].state == State::kAvailable &&
                       join_streams(before, head);) {
      head = before;
    }
    erase(head);
    for (Index after; (after = blocks_[head].after) != 0 && blocks_[after].state == State::kAvailable &&
                      join_streams(head, after);) {
      erase(after);
      blocks_.join_after(head);
      blocks_[after].state = State::kInvalid;
      if (!blocks_[after].is_queued) blocks_.drop(after);
    }
    insert(head);
  }
}

/// True when two available blocks may be one: whoever may have the one may then have the other.
bool SplitHeap::join_streams(Index index, Index other) noexcept {
  SplitBlock& first = blocks_[index];
  SplitBlock& second = blocks_[other];
  if (order_ == nullptr) return true;
  if (first.stream != second.stream) {
    if (!order_->is_ordered(second.stream, second.freed, first.stream) &&
        !order_->order(second.stream, second.freed, first.stream)) {
      return false;
    }
    second.stream = first.stream;
    second.freed = order_->now();
  }
  first.freed = second.freed = std::max(first.freed, second.freed);
  return true;
}

/// The least (size, id) that fits, taken out of its class, or 0.
SplitHeap::Index SplitHeap::scan(Size size, StreamId stream) noexcept {
  auto& blocks = available(size);
  Index index = blocks.lower_bound(blocks_.data(), {size, 0});
  while (index != 0 && !is_usable(blocks_[index], stream)) index = blocks.next(blocks_.data(), index);
  if (index == 0) return 0;
  const Size overhead = blocks_[index].range.size - size;
  if (class_of(size) == kHuge && overhead > options_.huge_overhead) return 0;
  erase(index);
  return index;
}

/// True when `stream` may have a block that its last stream freed; makes it so where it can.
bool SplitHeap::is_usable(const SplitBlock& block, StreamId stream) noexcept {
  return order_ == nullptr || block.stream == stream ||
         order_->is_ordered(block.stream, block.freed, stream) ||
         order_->order(block.stream, block.freed, stream);
}

SplitHeap::Index SplitHeap::take(Size size) noexcept {
  if (options_.cap != 0 && (size > options_.cap || held_ > options_.cap - size)) return 0;
  const Offset offset = segments_->take(size);
  if (offset == kNoOffset) return 0;
  const Index index = blocks_.add({offset, size});  // allocate() has reserved room
  blocks_[index].id = next_id();
  held_ += size;
  return index;
}

/// Gives back whole available segments of a class, smallest first, until they were `target` bytes.
void SplitHeap::reclaim(Class from, Size target) noexcept {
  auto& blocks = available_[from];
  Size given = 0;
  for (Index next, index = blocks.lower_bound(blocks_.data(), {1, 0}); index != 0 && given < target;
       index = next) {
    next = blocks.next(blocks_.data(), index);
    if (!blocks_.is_whole(index)) continue;
    const Range range = blocks_[index].range;
    erase(index);
    blocks_[index].state = State::kInvalid;
    blocks_.drop(index);
    segments_->give_back(range);
    held_ -= range.size;
    given += range.size;
  }
}

void SplitHeap::reclaim_all() noexcept {
  for (const Class from : {kHuge, kLarge, kSmall}) reclaim(from, ~Size{0});
}

// --- the classes ---

void SplitHeap::insert(Index index) noexcept {
  auto& blocks = available(blocks_[index].range.size);
  blocks.insert(blocks_.data(), index);
  blocks_[index].is_indexed = true;
}

/// Takes a block out of its class, if it is there.
void SplitHeap::erase(Index index) noexcept {
  if (!blocks_[index].is_indexed) return;
  available(blocks_[index].range.size).erase(blocks_.data(), index);
  blocks_[index].is_indexed = false;
}

std::uint64_t SplitHeap::next_id() noexcept { return ++last_id_; }

}  // namespace memoir
