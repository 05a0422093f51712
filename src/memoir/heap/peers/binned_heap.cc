// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/binned_heap.h"

#include <algorithm>
#include <bit>

namespace memoir {

namespace {

enum PhaseIndex : size_t {
  kPop,
  kDevice1,
  kCollect2,
  kReclaim3,
  kDevice4,
  kCollect5,
  kReclaim6,
  kDevice7,
  kReclaim8,
  kDevice9,
  kTick,
  kFree
};
constexpr const char* kPhases[] = {"0 pop",         "1 alloc",    "2 gc(false)", "3 reclaim",
                                   "4 alloc",       "5 gc(true)", "6 reclaim",   "7 alloc",
                                   "8 reclaim all", "9 alloc",    "tick",        "free"};

}  // namespace

BinnedHeap::BinnedHeap(Segments& segments, const BinnedOptions& options, Collector* collector,
                       StreamOrder* order, PhaseTable* phases) noexcept
    : segments_(&segments),
      options_(options),
      collector_(collector),
      order_(order),
      phases_(phases),
      delay_(options.least_delay) {
  if (options.largest > Size{1} << (kBins - 1) || !(options.least_delay > 0) ||
      !(options.most_delay >= options.least_delay)) {
    return;
  }
  if (phases != nullptr) phases->name(kPhases);
  ready_ = blocks_.push_back({});
}

Offset BinnedHeap::allocate(const Request& request) noexcept {
  if (!ready_ || request.size == 0 || !is_power_of_two(request.alignment) || request.alignment > kAlignment) {
    return kNoOffset;
  }
  if (!table_.reserve_one()) return kNoOffset;
  if (blocks_.capacity() == blocks_.size() && !blocks_.reserve(2 * blocks_.capacity())) return kNoOffset;
  // Above 2^63 no device answers, and the sum of sizes could overflow.
  if (request.size > ~Size{0} / 2) return kNoOffset;
  const bool exact = request.size > options_.largest;
  const unsigned bin = exact ? 0 : static_cast<unsigned>(std::bit_width(request.size - 1)) + 1;
  const Index index = find(bin, exact ? request.size : Size{1} << (bin - 1), request.stream);
  if (index == 0) return kNoOffset;
  if (bin != 0) {
    Bin& of = bins_[bin];
    ++of.used;
    of.usage = std::max(of.usage, of.usage_now());
  }
  Block& block = blocks_[index];
  block.asked = request.size;
  block.stream = request.stream;
  table_.insert(block.range.begin, index);
  live_ += request.size;
  return block.range.begin;
}

bool BinnedHeap::free(Offset offset) noexcept {
  const PhaseTable::Timer timer(phases_, kFree);
  const Index index = table_.take(offset);
  if (index == 0) return false;
  Block& block = blocks_[index];
  live_ -= block.asked;
  block.asked = 0;
  if (block.bin == 0) {
    give_back(index);
    return true;
  }
  if (order_ != nullptr) block.freed = order_->now();
  Bin& bin = bins_[block.bin];
  block.below = bin.top;
  bin.top = index;
  --bin.used;
  ++bin.available;
  bin.usage = std::max(bin.usage, bin.usage_now());
  return true;
}

Size BinnedHeap::size_of(Offset offset) const noexcept {
  const Index index = table_.find(offset);
  return index == 0 ? 0 : blocks_[index].range.size;
}

void BinnedHeap::trim() noexcept { reclaim(~Size{0}); }

Tick BinnedHeap::tick(Tick now) noexcept {
  if (!ready_) return kNever;
  if (now < due_) return due_;
  collect(false);
  const PhaseTable::Timer timer(phases_, kTick);
  bool changed = false;
  for (unsigned at = kBins; at > 0; --at) {
    Bin& bin = bins_[at];
    if (bin.blocks() == 0) {
      bin = {};
      continue;
    }
    std::rotate(bin.history.begin(), bin.history.begin() + 1, bin.history.end());
    bin.history.back() = bin.usage;
    changed |= bin.usage != bin.usage_now();
    bin.usage = bin.usage_now();
    const double needed = std::max(bin.usage, *std::max_element(bin.history.begin(), bin.history.end()));
    const auto idle = static_cast<Size>((1 - needed) * static_cast<double>(bin.blocks()));
    for (Size i = std::min(idle, bin.available); i > 0; --i) give_back_top(bin);
  }
  delay_ = changed ? options_.least_delay : std::min(2 * delay_, options_.most_delay);
  const double wait = delay_ * 1e9;
  due_ = wait < static_cast<double>(kNever - now) ? now + static_cast<Tick>(wait) : kNever;
  return due_;
}

// --- the ladder ---

/// A block of the bin (0: exact) that is neither live nor available, or 0.
BinnedHeap::Index BinnedHeap::find(unsigned bin, Size size, StreamId stream) noexcept {
  const auto timed_pop = [&](PhaseIndex phase) {
    const PhaseTable::Timer timer(phases_, phase);
    return pop(bin, stream);
  };
  const auto timed_take = [&](PhaseIndex phase) {
    const PhaseTable::Timer timer(phases_, phase);
    return take(bin, size);
  };
  const auto timed_reclaim = [&](PhaseIndex phase, Size target) {
    const PhaseTable::Timer timer(phases_, phase);
    reclaim(target);
  };
  const auto timed_collect = [&](PhaseIndex phase, bool full) {
    const PhaseTable::Timer timer(phases_, phase);
    collect(full);
    return pop(bin, stream);
  };
  Index index = timed_pop(kPop);
  if (index == 0) index = timed_take(kDevice1);
  if (index == 0) index = timed_collect(kCollect2, false);
  if (index == 0) {
    timed_reclaim(kReclaim3, size);
    index = timed_take(kDevice4);
  }
  if (index == 0) index = timed_collect(kCollect5, true);
  if (index == 0) {
    timed_reclaim(kReclaim6, size);
    index = timed_take(kDevice7);
  }
  if (index == 0) {
    timed_reclaim(kReclaim8, ~Size{0});
    index = timed_take(kDevice9);
  }
  return index;
}

BinnedHeap::Index BinnedHeap::pop(unsigned bin, StreamId stream) noexcept {
  if (bin == 0) return 0;
  Bin& of = bins_[bin];
  Index* at = &of.top;
  while (*at != 0 && !is_usable(blocks_[*at], stream)) at = &blocks_[*at].below;
  const Index index = *at;
  if (index == 0) return 0;
  *at = blocks_[index].below;
  --of.available;
  return index;
}

BinnedHeap::Index BinnedHeap::take(unsigned bin, Size size) noexcept {
  if (options_.cap != 0 && (size > options_.cap || held_ > options_.cap - size)) return 0;
  const Offset offset = segments_->take(size);
  if (offset == kNoOffset) return 0;
  Index index = unused_;
  if (index != 0) {
    unused_ = blocks_[index].below;
  } else {
    index = static_cast<Index>(blocks_.size());
    blocks_.push_back({});  // allocate() has reserved room
  }
  blocks_[index] = {.range = {offset, size}, .bin = bin};
  held_ += size;
  return index;
}

/// Gives back available blocks, largest first, until they were `target` bytes.
void BinnedHeap::reclaim(Size target) noexcept {
  for (unsigned at = kBins; at > 0; --at) {
    Bin& bin = bins_[at];
    while (bin.top != 0) {
      const Size size = blocks_[bin.top].range.size;
      give_back_top(bin);
      if (size >= target) return;
      target -= size;
    }
  }
}

void BinnedHeap::give_back_top(Bin& bin) noexcept {
  const Index index = bin.top;
  bin.top = blocks_[index].below;
  --bin.available;
  give_back(index);
}

void BinnedHeap::collect(bool full) noexcept {
  if (collector_ != nullptr) collector_->collect(full);
}

/// True when `stream` may have a block that its last stream freed; makes it so where it can.
bool BinnedHeap::is_usable(const Block& block, StreamId stream) noexcept {
  return order_ == nullptr || block.stream == stream ||
         order_->is_ordered(block.stream, block.freed, stream) ||
         order_->order(block.stream, block.freed, stream);
}

void BinnedHeap::give_back(Index index) noexcept {
  segments_->give_back(blocks_[index].range);
  held_ -= blocks_[index].range.size;
  blocks_[index].below = unused_;
  unused_ = index;
}

}  // namespace memoir
