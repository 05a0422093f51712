// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/size_class_heap.h"

#include <algorithm>

namespace memoir {

using size_classes::kSlot;
using size_classes::kTables;

namespace {
constexpr Size kMost = Size{1} << 60;
}

SizeClassHeap::SizeClassHeap(Arena& arena, const SizeClassOptions& options) noexcept
    : arena_(&arena),
      page_(options.page),
      addresses_(align_down(arena.capacity(), is_power_of_two(options.page) ? options.page : 1)),
      spans_(addresses_),
      blocks_(static_cast<BlockSpans::Pages&>(*this)) {}

Offset SizeClassHeap::allocate(const Request& request) noexcept {
  if (request.size == 0 || request.size > kMost) return kNoOffset;
  if (!is_power_of_two(request.alignment) || request.alignment > kMost || !objects_.reserve_one())
    return kNoOffset;
  const Size alignment = std::max<Size>(request.alignment, 16), size = align_up(request.size, alignment);
  // Sizes of classes are multiples of every power of two that a request is a multiple of.
  const bool has_class = alignment <= kSlot && size <= size_classes::kLargest;
  const Offset offset = has_class ? place_block(size_classes::class_of(size))
                                  : new_span(align_up(request.size, kSlot), std::max(alignment, kSlot));
  if (offset != kNoOffset) objects_.insert(offset, {request.size});
  return offset;
}

Offset SizeClassHeap::place_block(size_t size_class) noexcept {
  if (const Offset block = blocks_.allocate(0, size_class); block != kNoOffset) return block;
  const Size size = kTables.slots[size_class] * kSlot;
  const Offset span = new_span(size, kSlot);
  if (span == kNoOffset) return kNoOffset;
  if (!blocks_.add_span(0, size_class, span)) {
    end_span({span, size});
    return kNoOffset;
  }
  return blocks_.allocate(0, size_class);
}

Offset SizeClassHeap::new_span(Size size, Size alignment) noexcept {
  const Offset offset = spans_.allocate({size, alignment});
  if (offset == kNoOffset) return kNoOffset;
  if (use({offset, size})) return offset;
  spans_.free(offset);
  return kNoOffset;
}

void SizeClassHeap::end_span(Range span) noexcept {
  if (span.size == 0) return;
  spans_.free(span.begin);
  disuse(span);
}

bool SizeClassHeap::free(Offset offset) noexcept {
  const Size size = objects_.take(offset).size;
  if (size == 0) return false;
  end_span(blocks_.block_size(offset) != 0 ? blocks_.free(offset) : Range{offset, align_up(size, kSlot)});
  return true;
}

void SizeClassHeap::trim() noexcept {
  blocks_.set_current_aside();
  blocks_.end_empty([this](Range span) { end_span(span); });
}

/// A page has memory from its first span on. Only a span's first and last page may be of others too, so that
/// a span of any length costs the same.
bool SizeClassHeap::use(Range span) noexcept {
  const Offset first = align_down(span.begin, page_), last = align_down(span.end() - 1, page_);
  if (!users_.reserve(users_.size() + 2) || !arena_->commit({first, last + page_ - first})) return false;
  users_.insert(first, users_.take(first) + 1);
  if (last != first) users_.insert(last, users_.take(last) + 1);
  return true;
}

void SizeClassHeap::disuse(Range span) noexcept {
  const Offset first = align_down(span.begin, page_), last = align_down(span.end() - 1, page_);
  const auto leave = [&](Offset page) {
    const OffsetTable::Index others = users_.take(page) - 1;
    if (others == 0) arena_->decommit({page, page_});
    else users_.insert(page, others);
  };
  leave(first);
  if (last == first) return;
  leave(last);
  if (last != first + page_) arena_->decommit({first + page_, last - first - page_});
}

}  // namespace memoir
