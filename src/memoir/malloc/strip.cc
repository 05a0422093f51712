// SPDX-License-Identifier: Apache-2.0
//
// Pages inside a span that no used block touches: how they leave the free lists.
#include <algorithm>

#include "memoir/malloc/blocks/free_list.h"
#include "memoir/malloc/thread_heap.h"

namespace memoir::malloc_ {

namespace {

using size_classes::kSlot;
using size_classes::kTables;
using span_rules::kPage;
constexpr size_t kMostBlocks = kTables.blocks[0];  // of the smallest size
static_assert(*std::max_element(kTables.blocks.begin(), kTables.blocks.end()) == kMostBlocks);
static_assert(*std::max_element(kTables.slots.begin(), kTables.slots.end()) * kSlot / kPage <= 64);

class BlockBits {
 public:
  void set(size_t i) noexcept { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
  bool test(size_t i) const noexcept { return (words_[i / 64] >> (i % 64) & 1) != 0; }

 private:
  std::uint64_t words_[(kMostBlocks + 63) / 64] = {};
};

}  // namespace

std::uint64_t ThreadHeap::strip(Span* span) noexcept {
  collect(span);
  const SpanState state = span->state.load(std::memory_order_relaxed);
  if (span->releasing || (state != SpanState::kFull && state != SpanState::kAvailable)) return 0;
  const Size size = kTables.size[span->size_class];
  char* const start = static_cast<char*>(start_of(span));
  BlockBits is_free;
  for (void* list : {span->free.load(std::memory_order_relaxed), span->local_free}) {
    for (; list != nullptr; list = free_list::next_of(list)) {
      const size_t block = static_cast<Size>(static_cast<char*>(list) - start) / size;
      if (kChecked && is_free.test(block)) damaged(list);
      is_free.set(block);
    }
  }
  const span_rules::Shape shape{span->slots * kSlot, size, span->linked};
  const auto listed = [&](size_t block) { return is_free.test(block); };
  std::uint64_t absent = 0;  // a region that became a huge page has pages again that its spans think gone
  {
    const LockGuard guard(central().lock);
    absent = central().heap.gone_pages({slot_of(span) * kSlot, span->slots * kSlot});
  }
  const std::uint64_t leaving = span_rules::unused_pages(shape, span->gone, listed) & ~absent;
  if (leaving == 0) return 0;

  const std::uint64_t gone = span->gone | leaving;
  void* list = nullptr;
  span_rules::list_the_rest(shape, gone, listed, [&](size_t block) {
    free_list::link(start + block * size, list);
    list = start + block * size;
  });
  span->local_free = list;
  span->free.store(nullptr, std::memory_order_relaxed);
  span->gone = gone;
  span->releasing = true;
  return leaving;
}

void ThreadHeap::stripped(Span* span, std::uint64_t pages, std::uint64_t went) noexcept {
  span->releasing = false;
  const Offset start = slot_of(span) * kSlot;
  {
    const LockGuard guard(central().lock);
    for (PageRuns runs(went); runs.next();)
      central().heap.pages_gone({start + runs.first() * kPage, runs.count() * kPage});
    if (went != pages) central().heap.refused(start);
  }
  if (went != pages) span->stripped.store(false, std::memory_order_relaxed);  // to be looked at again
  collect(span);
  end_if_empty(span, false);
}

}  // namespace memoir::malloc_
