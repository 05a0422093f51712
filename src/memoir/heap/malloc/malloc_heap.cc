// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/malloc/malloc_heap.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace memoir {

using size_classes::kSlot;
using size_classes::kTables;

namespace {

constexpr Size kPage = LifetimeHeap::kPage, kRegion = LifetimeHeap::kRegion;
constexpr Size kMost = Size{1} << 60;

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
  const ContextKey key = ContextTable::key_of(request.site, 0);
  const bool is_told = request.lifetime != Request::kNoLifetime;
  const size_t row = is_told ? request.lifetime != 0 : learner_.table().row_of(key);
  if (options_.split && !is_told && !learner_.started() && held() >= options_.split_from)
    learner_.start({options_.tau, options_.sample});
  const bool sampled = !is_told && sample_is_due(request.size);
  const Offset offset = place(request, row, sampled);
  if (offset == kNoOffset) return kNoOffset;
  allocated_ += request.size;
  Note note;
  if (sampled) {
    learner_.advance(allocated_, held());
    note = {learner_.born(key), learner_.clock()};
  }
  objects_.insert(offset, {request.size, note});
  return offset;
}

Offset MallocHeap::place(const Request& request, size_t row, bool sampled) noexcept {
  const Size alignment = std::max<Size>(request.alignment, 16);
  const auto lifetime = static_cast<LifetimeClass>(row);
  if (is_of_a_class(request.size, alignment)) {
    // Sizes of classes are multiples of every power of two that a request is a multiple of.
    const size_t size_class = size_classes::class_of(align_up(request.size, alignment));
    const std::uint32_t thread = request.thread % kMostThreads;
    if (sampled) return place_block(size_class, kSamples, LifetimeClass::kShort);
    return place_block(size_class, 1 + 2 * thread + static_cast<std::uint32_t>(row), lifetime);
  }
  if (request.size <= kLargestSpan && alignment <= kSlot)
    return new_span(align_up(request.size, kSlot), lifetime);
  const Size size = align_up(request.size, kPage);
  const Offset offset = large_.allocate({size, std::max(alignment, kPage)});
  if (offset == kNoOffset) return kNoOffset;
  if (!arena_->commit({offset, size})) {
    large_.free(offset);
    return kNoOffset;
  }
  large_live_ += size;
  return offset;
}

Offset MallocHeap::place_block(size_t size_class, std::uint32_t owner, LifetimeClass lifetime) noexcept {
  const Offset block = spans_.allocate(owner, size_class);
  if (block != kNoOffset || spans_.starved()) return block;
  const Size size = kTables.slots[size_class] * kSlot;
  const Offset span = new_span(size, lifetime);
  if (span == kNoOffset) return kNoOffset;
  if (!spans_.add_span(owner, size_class, span)) {
    end_span({span, size});
    return kNoOffset;
  }
  return spans_.allocate(owner, size_class);
}

Offset MallocHeap::new_span(Size size, LifetimeClass lifetime) noexcept {
  for (bool huge = options_.huge && held() >= options_.background_from;; huge = false) {
    LifetimeHeap::Placement placed = heap_.allocate(size, lifetime, huge);
    if (!placed && heap_.regions() < most_regions_ && heap_.add_regions(1))
      placed = heap_.allocate(size, lifetime, huge);
    if (!placed) return kNoOffset;
    const Range region{align_down(placed.offset, kRegion), kRegion}, span{placed.offset, size};
    const bool whole = huge && placed.new_region;
    if (arena_->commit(whole ? region : span)) return placed.offset;
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

bool MallocHeap::free(Offset offset) noexcept {
  const auto object = objects_.take(offset);
  if (object.size == 0) return false;
  if (object.note.sample != LifetimeLearner::kNoSample) {
    learner_.advance(allocated_, held());
    learner_.freed(object.note.sample, object.note.born_at);
  }
  if (spans_.block_size(offset) != 0) {
    end_span(spans_.free(offset));
  } else if (offset < most_regions_ * kRegion) {
    end_span({offset, align_up(object.size, kSlot)});
  } else {
    const Size size = large_.size_of(offset);
    large_.free(offset);
    arena_->decommit({offset, size});
    large_live_ -= size;
  }
  return true;
}

bool MallocHeap::bring_back(Range page) noexcept {
  if (!arena_->commit(page)) return false;
  heap_.pages_back(page);
  return true;
}

/// Distances between samples are exponential, as the malloc's are.
bool MallocHeap::sample_is_due(Size bytes) noexcept {
  if (!learner_.started()) return false;
  if (bytes < until_sample_) {
    until_sample_ -= bytes;
    return false;
  }
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const double uniform = static_cast<double>((random_ >> 11) + 1) * 0x1p-53;
  until_sample_ = static_cast<Size>(-std::log(uniform) * static_cast<double>(learner_.sample_every()));
  return true;
}

// -------------------------------------------------------------------------------------------------- upkeep

Tick MallocHeap::tick(Tick now) noexcept {
  // After a long silence there is nothing more to do than after three seconds of it.
  constexpr Tick kMostRounds = 30;
  if (now > next_round_ + kMostRounds * UpkeepRules::kRound)
    next_round_ = now - kMostRounds * UpkeepRules::kRound;
  for (; next_round_ <= now; next_round_ += UpkeepRules::kRound) {
    if (held() >= options_.background_from || rounds_ != 0) run(false);
  }
  return next_round_;
}

void MallocHeap::trim() noexcept {
  spans_.set_current_aside();
  run(true);
  run(true);
}

void MallocHeap::run(bool everything) noexcept {
  ++rounds_;
  if (learner_.started()) learner_.advance(allocated_, held());
  rules_.begin(heap_.figures());
  if (options_.release) {
    if (everything || UpkeepRules::looks(rounds_, heap_.regions()))
      rules_.saw_live(look_at_spans(everything));
    give_back_slots(everything);
  }
  if (options_.huge && !everything) restore_huge_pages();
  rules_.end(heap_.figures());
}

Size MallocHeap::look_at_spans(bool everything) noexcept {
  Size live = 0;
  for (size_t region = 0; region < heap_.regions(); ++region) {
    if (!heap_.region_used(region)) continue;
    const size_t first = region * LifetimeHeap::kSlots;
    candidates_.clear();
    double pages = 0;
    for (size_t slot = first; slot < first + LifetimeHeap::kSlots; ++slot) {
      const BlockSpans::View span = spans_.view(slot);
      if (span.range.size == 0) {
        // A large block counts by its slots, as every slot of a span with classes does by its blocks.
        live += heap_.slot_used(slot) && spans_.block_size(slot * kSlot) == 0 ? kSlot : 0;
        continue;
      }
      live += span.used * span.block_size;
      if (!everything && span.used > span.seen) {  // it is being filled
        spans_.look(slot, false);
        continue;
      }
      const bool empty = span.used == 0;
      if (!everything && !rules_.worth_a_look({span.used, span.seen, span.stripped, empty})) continue;
      if (span.current) continue;
      const double share =
          empty ? 1 : UpkeepRules::expected_free_pages(span.used, span.blocks, span.block_size);
      if (share < UpkeepRules::kLeastShare) continue;
      pages += share * static_cast<double>(span.range.size / kPage);
      candidates_.push_back(static_cast<std::uint32_t>(slot));
    }
    if (!everything && !rules_.worth_breaking(pages, heap_.resident_share(region))) continue;
    for (const std::uint32_t slot : candidates_) strip(slot);
  }
  return live;
}

void MallocHeap::strip(size_t slot) noexcept {
  spans_.look(slot, true);
  const Range ended = spans_.end_if_empty(slot);
  if (ended.size != 0) return end_span(ended);
  const Range span = spans_.view(slot).range;
  for (std::uint64_t rest = spans_.strip(slot, heap_.gone_pages(span)); rest != 0;) {
    const int first = std::countr_zero(rest), count = std::countr_one(rest >> first);
    const Range pages{span.begin + first * kPage, count * kPage};
    heap_.break_huge(span.begin);
    arena_->decommit(pages);
    heap_.pages_gone(pages);
    rest = first + count == 64 ? 0 : rest >> (first + count) << (first + count);
  }
}

void MallocHeap::give_back_slots(bool everything) noexcept {
  constexpr size_t kBatch = 64;
  const Size unused = everything ? kMost : rules_.unused(held(), options_.slack);
  if (unused < UpkeepRules::kLeast) return;
  LifetimeHeap::Release releases[kBatch];
  for (Size done = 0; done < unused;) {
    const size_t count =
        heap_.take_releases(releases, kBatch, unused - done, everything ? 1.1 : rules_.fullest());
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
