// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/malloc/malloc_heap.h"

#include <algorithm>
#include <bit>

namespace memoir {

using size_classes::kSlot;
using size_classes::kTables;

namespace {

using span_rules::kCounted, span_rules::kCountedTogether, span_rules::kLargestSpan, span_rules::kMostCounted;
constexpr Size kPage = LifetimeHeap::kPage, kRegion = LifetimeHeap::kRegion;
constexpr Size kMost = Size{1} << 60;
constexpr std::uint32_t kFirstThread = 4;  // the malloc's number of its first thread
constexpr Size kNoBlock = Size{1} << 62;   // a LargeBlock's address is that plus its offset: never 0

bool is_of_a_class(Size size, Size alignment) noexcept {
  return size <= size_classes::kLargest && alignment <= kSlot &&
         align_up(size, alignment) <= size_classes::kLargest;
}

}  // namespace

MallocHeap::MallocHeap(Arena& arena, const LifetimeOptions& options) noexcept
    : arena_(&arena),
      options_(options),
      most_regions_(arena.capacity() / 2 / kRegion),
      spans_(static_cast<BlockSpans::Pages&>(*this)),
      addresses_(arena.capacity()),
      large_(addresses_) {
  if (most_regions_ != 0) large_.allocate({most_regions_ * kRegion, 1});  // at 0
}

// ------------------------------------------------------------------------------------------------- placing

Offset MallocHeap::allocate(const Request& request) noexcept {
  if (request.size == 0 || request.size > kMost) return kNoOffset;
  if (!is_power_of_two(request.alignment) || request.alignment > kMost || !objects_.reserve_one())
    return kNoOffset;
  std::uint32_t thread = 0;
  if (!find_thread(request.thread % kMostThreads, thread)) return kNoOffset;
  const ContextKey key = ContextTable::key_of(request.site, 0);
  const bool told = told_ = request.lifetime != Request::kNoLifetime;
  const Size alignment = std::max<Size>(request.alignment, 16);
  Note note;
  Offset offset = kNoOffset;
  if (is_of_a_class(request.size, alignment)) {
    offset = place_block(request, thread, key, told, note);
  } else {
    const Size size = std::max(request.size, size_classes::kLargest + 1);
    if (size <= kLargestSpan && alignment <= kSlot) {
      const size_t row = told ? request.lifetime != 0 : learner_.table().row_of(key);
      offset = place_single(size, row, thread, key, told, note);
    } else {
      offset = place_large(size, alignment, note);
    }
    grown();
  }
  if (offset != kNoOffset) objects_.insert(offset, {request.size, note});
  return offset;
}

/// False when there is no memory for another one.
bool MallocHeap::find_thread(std::uint32_t thread, std::uint32_t& number) noexcept {
  while (numbers_.size() <= thread) {
    if (!numbers_.push_back(0)) return false;
  }
  if (numbers_[thread] == 0) {
    if (!threads_.reserve(threads_.size() + 1) || !spans_.add_thread()) return false;
    threads_.push_back({});
    numbers_[thread] = static_cast<std::uint32_t>(threads_.size());
  }
  number = numbers_[thread] - 1;
  return true;
}

Offset MallocHeap::place_block(const Request& request, std::uint32_t number, ContextKey key, bool told,
                               Note& note) noexcept {
  // Sizes of classes are multiples of every power of two that a request is a multiple of.
  const Size size = align_up(request.size, std::max<Size>(request.alignment, kCounted));
  const size_t size_class = size_classes::class_of(size);
  const size_t row = told ? request.lifetime != 0 : learner_.table().row_of(key);
  const std::uint32_t owner = BlockSpans::owner_of(number, row);
  Thread& thread = threads_[number];
  const Size units = align_up(size, kCounted);
  if (spans_.has(owner, size_class) && spend(thread, units)) return spans_.take(owner, size_class);
  spans_.count_slow_call(number);
  if (!prepare(owner, size_class, static_cast<LifetimeClass>(row))) return kNoOffset;
  const Size block = kTables.size[size_class];
  const std::uint32_t counts = thread.counts;
  const bool due = !spend(thread, block) && count(thread, block) && !told;
  Offset offset = kNoOffset;
  if (due) {
    if (prepare(kNobody, size_class, LifetimeClass::kShort)) offset = spans_.take(kNobody, size_class);
    if (offset != kNoOffset) sampled(key, note);
  } else {
    offset = spans_.take(owner, size_class);
  }
  if (thread.counts != counts && thread.counts % 4 == 0) grown();
  return offset;
}

Offset MallocHeap::place_single(Size size, size_t row, std::uint32_t number, ContextKey key, bool told,
                                Note& note) noexcept {
  Thread& thread = threads_[number];
  size_t slots = align_up(size, kSlot) / kSlot;
  Offset offset = kNoOffset;
  bool counted = false;
  if (const size_t length = span_rules::single_to_take(thread.lengths[row], slots); length != 0) {
    spans_.count_slow_call(number);
    spans_.drain_queue(number);
    offset = take_single(thread, row, length);
    slots = length;
    const Size counts = std::min(slots * kSlot, kMostCounted);
    counted = thread.uncounted < span_rules::kMostUncounted && spend(thread, counts);
    if (counted) thread.uncounted += slots * kSlot - counts;
  } else {
    offset = new_span(slots * kSlot, static_cast<LifetimeClass>(row));
    if (offset == kNoOffset) return kNoOffset;
  }
  note.place = Single{static_cast<std::uint32_t>(slots), static_cast<std::uint32_t>(row), number}.packed();
  single_live_ += slots * kSlot;
  if (counted) return offset;
  const Size counts = std::min(slots * kSlot, kMostCounted);
  thread.uncounted += slots * kSlot - counts;
  if (count(thread, counts) && !told) sampled(key, note);
  return offset;
}

Offset MallocHeap::place_large(Size size, Size alignment, Note& note) noexcept {
  if (no_large_ == 0) {
    if (!larges_.push_back({})) return kNoOffset;
    no_large_ = static_cast<std::uint32_t>(larges_.size());
  }
  const Size bytes = align_up(size, kPage);
  const bool huge = options_.huge && bytes >= KeptBlocks::kHugeFrom;
  alignment = std::max(alignment, kPage);
  auto [block, rest] = kept_.take_fitting(bytes, alignment, huge);
  if (rest != nullptr) {  // a place is not cut: what stays has it, and the block gets another
    rest->address = block.address;
    arena_->decommit({rest->address - kNoBlock + rest->size, block.size});
    block = map(block.size, alignment);
  }
  if (block.address == 0 && kept_.bytes() != 0) block = compose(bytes, alignment, huge);
  if (block.address == 0) block = map(bytes, alignment);
  if (block.address == 0) return kNoOffset;
  note.place = no_large_ - 1;
  no_large_ = larges_[note.place].range;
  larges_[note.place] = block;
  large_live_ += block.size;
  allocated_ += size;
  return block.address - kNoBlock;
}

LargeBlock MallocHeap::map(Size size, Size alignment) noexcept {
  LargeBlock block;
  const Offset offset = large_.allocate({size, alignment});
  if (offset == kNoOffset) return block;
  if (!arena_->commit({offset, size})) {
    large_.free(offset);
    return block;
  }
  block.address = kNoBlock + offset;
  block.size = size;
  return block;
}

void MallocHeap::unmap(const LargeBlock& block) noexcept {
  arena_->decommit({block.address - kNoBlock, block.size});
  large_.free(block.address - kNoBlock);
}

/// A new place for pages of blocks that are kept.
LargeBlock MallocHeap::compose(Size bytes, Size alignment, bool huge) noexcept {
  const Size size = KeptBlocks::composed_size(bytes, huge);
  LargeBlock made;
  Size filled = 0;
  for (size_t i = 0; filled < size && i < LargeBlock::kMostParts - 1; ++i) {
    const auto drop = [&](std::uintptr_t address, Size ragged) {
      arena_->decommit({address - kNoBlock, ragged});
      return true;
    };
    const LargeBlock part = kept_.take_part(size - filled, huge, drop);
    if (part.address == 0) break;
    arena_->decommit({part.address - kNoBlock, part.size});
    large_.free(part.address - kNoBlock);  // where a whole one was taken; its end is no block
    filled += part.size;
    if (filled < size) made.cuts[i] = filled;
  }
  if (filled == 0) return {};
  const LargeBlock place = map(size, alignment);
  made.address = place.address;
  made.size = place.size;
  return made;
}

void MallocHeap::purge(unsigned age) noexcept {
  kept_.begin_purge();
  while (kept_.is_due(age, large_live_)) unmap(kept_.take_oldest());
}

bool MallocHeap::prepare(std::uint32_t owner, size_t size_class, LifetimeClass lifetime) noexcept {
  if (spans_.prepare(owner, size_class)) return true;
  if (spans_.starved()) return false;
  const Size size = kTables.slots[size_class] * kSlot;
  const Offset span = new_span(size, lifetime);
  if (span == kNoOffset) return false;
  if (!spans_.add_span(owner, size_class, span)) {
    end_span({span, size});
    return false;
  }
  return spans_.prepare(owner, size_class);
}

Offset MallocHeap::new_span(Size size, LifetimeClass lifetime) noexcept {
  for (bool huge = options_.huge && held() >= options_.background_from;; huge = false) {
    LifetimeHeap::Placement placed = heap_.allocate(size, lifetime, huge);
    const Size more = std::min(most_regions_ - heap_.regions(), span_rules::kGrowth / kRegion);
    if (!placed && more != 0 && heap_.add_regions(more)) placed = heap_.allocate(size, lifetime, huge);
    if (!placed) return kNoOffset;
    const Range region{align_down(placed.offset, kRegion), kRegion}, span{placed.offset, size};
    const bool whole = huge && placed.new_region;
    if (arena_->commit(whole ? region : span)) {
      if (whole && ++opened_ % span_rules::kSparedOf == 0) heap_.break_huge(region.begin);
      return placed.offset;
    }
    // No memory: what the heap took for granted is not there.
    if (whole) heap_.break_huge(region.begin);
    arena_->decommit(whole ? region : span);
    heap_.pages_gone(whole ? region : span);
    heap_.free(span);
    if (!whole) return kNoOffset;
  }
}

void MallocHeap::end_span(Range span) noexcept {
  if (span.size != 0) heap_.free(span);
}

bool MallocHeap::free_on(std::uint32_t thread, Offset offset) noexcept {
  const auto object = objects_.take(offset);
  if (object.size == 0) return false;
  if (object.note.sample != LifetimeLearner::kNoSample) {
    learner_.advance(allocated_, held());
    learner_.freed(object.note.sample, object.note.born_at);
  }
  if (const BlockSpans::Index span = spans_.find(offset); span != 0) {
    std::uint32_t number = 0;
    if (thread == kOwn || !find_thread(thread % kMostThreads, number)) number = kOwn;
    if (const Range ended = spans_.free(span, offset, number); ended.size != 0) {
      end_span(ended);
      grown();
    }
  } else if (offset < most_regions_ * kRegion) {
    Single single = Single::of(object.note.place);
    if (thread != kOwn) find_thread(thread % kMostThreads, single.thread);
    single_live_ -= single.slots * kSlot;
    if (!keep_single(offset, single)) end_span({offset, single.slots * kSlot});
  } else {
    free_large(object.note.place);
  }
  return true;
}

void MallocHeap::free_large(std::uint32_t place) noexcept {
  const LargeBlock block = larges_[place];
  larges_[place].range = no_large_;
  no_large_ = place + 1;
  large_live_ -= block.size;
  if (block.size > options_.cache) return unmap(block);
  while (!kept_.has_room(block.size, options_.cache)) unmap(kept_.take_oldest());
  kept_.add(block);
  if (kept_.keeps_much(large_live_)) grown();
}

bool MallocHeap::keep_single(Offset offset, Single single) noexcept {
  Thread& thread = threads_[single.thread];
  if (single.slots > span_rules::kMostSingleSlots ||
      thread.single_slots + single.slots > thread.most_single_slots)
    return false;
  if (singles_.empty() && !singles_.push_back({})) return false;
  std::uint32_t index = unused_single_;
  if (index == 0) {
    index = static_cast<std::uint32_t>(singles_.size());
    if (!singles_.push_back({})) return false;
  } else {
    unused_single_ = singles_[index].next;
  }
  std::uint32_t& first = thread.first[single.row][single.slots];
  singles_[index] = {offset, first};
  first = index;
  thread.lengths[single.row] |= std::uint64_t{1} << (single.slots - 1);
  thread.single_slots += single.slots;
  return true;
}

Offset MallocHeap::take_single(Thread& thread, size_t row, size_t length) noexcept {
  std::uint32_t& first = thread.first[row][length];
  const std::uint32_t index = first;
  first = singles_[index].next;
  if (first == 0) thread.lengths[row] &= ~(std::uint64_t{1} << (length - 1));
  thread.single_slots -= static_cast<std::uint32_t>(length);
  singles_[index].next = unused_single_;
  unused_single_ = index;
  return singles_[index].offset;
}

bool MallocHeap::bring_back(Range page) noexcept {
  if (!arena_->commit(page)) return false;
  heap_.pages_back(page);
  return true;
}

bool MallocHeap::spend(Thread& thread, Size bytes) noexcept {
  if (thread.credit < bytes) return false;
  thread.credit -= bytes;
  return true;
}

/// As ThreadHeap::count(). True: the thread's next sample is due.
bool MallocHeap::count(Thread& thread, Size bytes) noexcept {
  const Size all = thread.granted - thread.credit + bytes;
  thread.uncounted += all;
  if (thread.uncounted >= kCountedTogether) {
    ++thread.counts;
    allocated_ += thread.uncounted;
    thread.uncounted = 0;
  }
  const bool samples = learner_.started();
  const auto number = static_cast<std::uint32_t>(&thread - threads_.data()) + kFirstThread;
  const bool due = samples && thread.sample.count_down(all, number, pace_.every());
  Size more = kCountedTogether - thread.uncounted;
  if (samples) more = std::min(more, thread.sample.left());
  thread.credit = thread.granted = align_down(more, kCounted);
  thread.most_single_slots = static_cast<std::uint32_t>(most_kept() / kSlot);
  return due;
}

/// The learner starts when the heap has outgrown its limit, unless requests say their lifetimes.
void MallocHeap::grown() noexcept {
  if (told_ || !options_.split || learner_.started() || held() < options_.split_from) return;
  if (learner_.start({options_.tau, options_.sample})) pace_.start(now_, learner_);
}

void MallocHeap::sampled(ContextKey key, Note& note) noexcept {
  learner_.advance(allocated_, held());
  pace_.sampled(learner_, [this] { return now_; });
  note.sample = learner_.born(key);
  note.born_at = learner_.clock();
}

// -------------------------------------------------------------------------------------------------- upkeep

Tick MallocHeap::tick(Tick now) noexcept {
  // After a long silence there is nothing more to do than after three seconds of it.
  constexpr Tick kMostRounds = 30;
  if (now > next_round_ + kMostRounds * UpkeepRules::kRound)
    next_round_ = now - kMostRounds * UpkeepRules::kRound;
  for (; next_round_ <= now; next_round_ += UpkeepRules::kRound) {
    now_ = next_round_;
    if (held() >= options_.background_from || kept_.keeps_much(large_live_) || rounds_ != 0) run(false);
  }
  now_ = now;
  // Sooner than a round is due, since samples look at the clock too.
  constexpr Tick kClock = 1'000'000;
  return std::min(next_round_, now + kClock);
}

void MallocHeap::trim() noexcept {
  for (std::uint32_t thread = 0; thread < threads_.size(); ++thread) give_back(thread);
  spans_.set_current_aside();
  // Twice: what the first round empties becomes free slots for the second.
  run(true);
  run(true);
}

void MallocHeap::run(bool everything) noexcept {
  ++rounds_;
  if (learner_.started()) learner_.advance(allocated_, held());
  heap_.begin_round();
  rules_.begin(heap_.figures());
  if (options_.release) {
    look_at_threads(everything);
    if (everything || UpkeepRules::looks(rounds_, heap_.regions()))
      rules_.saw_live(look_at_spans(everything));
    give_back_slots(everything);
    purge(everything ? 0 : UpkeepRules::kWindow);
  }
  if (options_.huge && !everything) restore_huge_pages();
  rules_.end(heap_.figures());
}

void MallocHeap::look_at_threads(bool everything) noexcept {
  constexpr std::uint32_t kAsleep = 1000;  // it gave up its spans
  constexpr size_t kCrowd = 64;
  const std::uint32_t long_rest = span_rules::long_rest(threads_.size() >= kCrowd);
  for (std::uint32_t number = 0; number < threads_.size(); ++number) {
    Thread& thread = threads_[number];
    const std::uint32_t calls = spans_.slow_calls(number);
    const bool at_work = thread.seen_calls != calls;
    thread.seen_calls = calls;
    if (at_work) thread.rests = 0;
    else if (thread.rests < kAsleep) ++thread.rests;
    const bool sleeps = thread.rests >= long_rest && thread.rests < kAsleep;
    const bool has_some = spans_.hears_of_frees(number) || spans_.holds_blocks(number) ||
                          spans_.keeps(number) || thread.single_slots != 0;
    if (!everything && (at_work || !(has_some || sleeps))) continue;
    spans_.flush_held(number);
    spans_.drain_queue(number);
    end_kept(number);
    if (!sleeps) continue;
    give_back(number);
    thread.rests = kAsleep;
  }
}

void MallocHeap::end_kept(std::uint32_t number) noexcept {
  spans_.end_kept(number, [this](Range span) { end_span(span); });
  Thread& thread = threads_[number];
  for (size_t row = 0; row < kLifetimeClasses; ++row) {
    while (thread.lengths[row] != 0) {
      const auto length = static_cast<size_t>(std::countr_zero(thread.lengths[row])) + 1;
      end_span({take_single(thread, row, length), length * kSlot});
    }
  }
}

/// As ThreadHeap::give_back().
void MallocHeap::give_back(std::uint32_t number) noexcept {
  spans_.flush_held(number);
  spans_.drain_queue(number);
  end_kept(number);
  Thread& thread = threads_[number];
  thread.uncounted += thread.granted - thread.credit;
  thread.granted = thread.credit = 0;
  ++thread.counts;
  allocated_ += thread.uncounted;
  thread.uncounted = 0;
  for (size_t row = 0; row < kLifetimeClasses; ++row) {
    const std::uint32_t owner = BlockSpans::owner_of(number, row);
    spans_.set_current_aside(owner);
    spans_.end_empty_of(owner, [this](Range span) { end_span(span); });
  }
}

Size MallocHeap::look_at_spans(bool everything) noexcept {
  Size live = single_live_;
  candidates_.clear();
  for (size_t region = 0; region < heap_.regions(); ++region) {
    if (!heap_.region_used(region)) continue;
    const size_t first = region * LifetimeHeap::kSlots;
    const size_t had = candidates_.size();
    double pages = 0;
    for (size_t slot = first; slot < first + LifetimeHeap::kSlots; ++slot) {
      const BlockSpans::View span = spans_.view(slot);
      if (span.range.size == 0) continue;
      live += span.used * span.block_size;
      if (!everything && span.used > span.seen) {  // it is being filled
        spans_.look(slot, false);
        continue;
      }
      const bool empty = span.used <= span.others_freed;
      if (!everything && !rules_.worth_a_look({span.used, span.seen, span.stripped, empty})) continue;
      if (span.current && !everything) continue;
      const double share =
          empty ? 1 : UpkeepRules::expected_free_pages(span.used, span.blocks, span.block_size);
      if (share < UpkeepRules::kLeastShare) continue;
      pages += share * static_cast<double>(span.range.size / kPage);
      candidates_.push_back({(span.owner + 1) / 2, static_cast<std::uint32_t>(slot), 0});
    }
    if (!everything && !rules_.worth_breaking(pages, heap_.resident_share(region)))
      candidates_.resize_down(had);
  }
  strip_candidates();
  return live;
}

/// In the order and the batches of Upkeep::strip_candidates().
void MallocHeap::strip_candidates() noexcept {
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.heap != b.heap ? a.heap < b.heap : a.slot < b.slot;
  });
  for (size_t begin = 0, end = 0; begin < candidates_.size(); begin = end) {
    for (; end < candidates_.size() && end - begin < span_rules::kBatch &&
           candidates_[end].heap == candidates_[begin].heap;
         ++end) {
      Candidate& one = candidates_[end];
      one.pages = spans_.strip(one.slot, heap_.gone_pages(spans_.view(one.slot).range));
      spans_.look(one.slot, true);
      if (one.pages == 0) end_span(spans_.end_if_empty(one.slot));
    }
    for (size_t i = begin; i < end; ++i) {
      const Offset span = candidates_[i].slot * kSlot;
      std::uint64_t rest = candidates_[i].pages;
      if (rest == 0) continue;
      heap_.break_huge(span);
      while (rest != 0) {
        const int first = std::countr_zero(rest), count = std::countr_one(rest >> first);
        const Range pages{span + first * kPage, count * kPage};
        arena_->decommit(pages);
        heap_.pages_gone(pages);
        rest = first + count == 64 ? 0 : rest >> (first + count) << (first + count);
      }
      end_span(spans_.end_if_empty(candidates_[i].slot));
    }
  }
}

void MallocHeap::give_back_slots(bool everything) noexcept {
  constexpr size_t kBatch = 64;
  const Size unused = everything ? kMost : rules_.unused(held(), options_.slack);
  if (unused < UpkeepRules::kLeast) return;
  LifetimeHeap::Release releases[kBatch];
  for (Size done = 0; done < unused;) {
    const size_t count =
        heap_.take_releases(releases, kBatch, unused - done, everything ? 1.1 : rules_.fullest(), everything);
    for (size_t i = 0; i < count; ++i) {
      arena_->decommit(releases[i].range);
      heap_.released(releases[i].range, true);
      done += releases[i].range.size;
    }
    if (count < kBatch) break;
  }
}

void MallocHeap::restore_huge_pages() noexcept {
  if (held() < options_.background_from) return;
  for (int done = 0; done < 256; ++done) {
    const Offset region = heap_.take_collapse(rules_.least_used(), rules_.most_gone());
    if (region == kNoOffset) return;
    const bool collapsed = arena_->commit({region, kRegion});
    heap_.collapsed(region, collapsed);
    for (size_t slot = region / kSlot; collapsed && slot < region / kSlot + LifetimeHeap::kSlots; ++slot) {
      if (spans_.view(slot).range.size != 0) spans_.look(slot, false);
    }
  }
}

}  // namespace memoir
