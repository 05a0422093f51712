// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/thread_heap.h"

#include <algorithm>
#include <bit>
#include <new>

#include "memoir/malloc/blocks/free_list.h"
#include "memoir/malloc/blocks/store_barrier.h"
#include "memoir/malloc/malloc.h"

namespace memoir::malloc_ {

namespace {

using size_classes::kSlot;
using size_classes::kTables;
using span_rules::kPage;
constexpr std::uint64_t kQueued = std::uint64_t{1} << (RemoteList::kOffsetBits + RemoteList::kCountBits);

SpanState state_of(const Span* span) noexcept { return span->state.load(std::memory_order_relaxed); }

/// What other threads have freed into the span, taken from it. Mostly nothing, and a look costs far less.
RemoteList take_remote(Span* span) noexcept {
  if (RemoteList{span->remote.load(std::memory_order_relaxed)}.count() == 0) return {0};
  return {span->remote.fetch_and(kQueued, std::memory_order_acquire)};
}

}  // namespace

// ----------------------------------------------------------------------------------------------------
// allocation

void* ThreadHeap::allocate(size_t row, size_t size_class, bool* sample_due) noexcept {
  count_slow_call();
  Span* span = current(row, size_class);
  // Mostly the current span has nothing left and the next one of the list has.
  if (const std::uint32_t next = available_[row][size_class]; next != 0)
    __builtin_prefetch(span_at(next - 1), 1);
  while (span == &no_span || (span->free.load(std::memory_order_relaxed) == nullptr && !refill(span))) {
    if (span != &no_span) set_full(span);
    if (queue_waits()) drain_queue();
    span = next_span(row, size_class);
    set_current(row, size_class, span == nullptr ? &no_span : span);
    if (span == nullptr) return nullptr;
  }
  const Size size = kTables.size[size_class];
  if (sample_due != nullptr && !spend(size) && (*sample_due = count(size))) return nullptr;
  void* const block = span->free.load(std::memory_order_relaxed);
  span->free.store(free_list::take(block), std::memory_order_relaxed);
  span->set_used(span->used() + 1u);
  return block;
}

void ThreadHeap::count_slow_call() noexcept {
  slow_calls.store(slow_calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void ThreadHeap::set_current(size_t row, size_t size_class, Span* span) noexcept {
  for (size_t place = kPlacesOf.first[size_class]; place <= kPlacesOf.last[size_class]; ++place)
    direct[row][place].store(span, std::memory_order_release);
}

bool ThreadHeap::count(Size bytes) noexcept {
  const Size all = static_cast<Size>(granted_ - credit) * kUnit + bytes;
  uncounted_ += all;
  if (uncounted_ >= span_rules::kCountedTogether) count_allocated();
  LiveLearner& sampler = central().sampler();
  const bool samples = sampler.active();
  const bool due = samples && sample_.count_down(all, id_, sampler.every());
  constexpr Size kShared = 512;
  Size bytes_more = span_rules::kCountedTogether - uncounted_;
  if (central().shared_upkeep.load(std::memory_order_relaxed)) bytes_more = std::min(bytes_more, kShared);
  if (samples) bytes_more = std::min(bytes_more, sample_.left());
  credit = granted_ = static_cast<std::int64_t>(bytes_more / kUnit);
  most_single_slots_ = static_cast<std::uint32_t>(most_kept() / kSlot);
  return due;
}

void ThreadHeap::count_allocated() noexcept {
  grew_ = (++counts_ & 3) == 0;
  central().add_allocated(uncounted_);
  uncounted_ = 0;
}

bool ThreadHeap::refill(Span* span) noexcept {
  if (span->local_free != nullptr) {
    span->free.store(span->local_free, std::memory_order_relaxed);
    span->local_free = nullptr;
    return true;
  }
  const RemoteList remote = take_remote(span);
  if (remote.count() != 0) {
    span->free.store(address_of(remote.first()), std::memory_order_relaxed);
    span->set_used(span->used() - remote.count());
    return true;
  }
  if (span->gone != 0 && !span->releasing) {
    while (span->gone != 0) {
      if (bring_page_back(span)) return true;
    }
  }
  return span->gone == 0 && link_more(span);
}

bool ThreadHeap::link_more(Span* span) noexcept {
  if (span->linked == span->blocks) return false;
  const Size size = kTables.size[span->size_class];
  const size_t count = span_rules::blocks_to_list(size, span->blocks - span->linked);
  char* const first = static_cast<char*>(start_of(span)) + span->linked * size;
  span->linked = static_cast<std::uint16_t>(span->linked + count);
  if constexpr (kChecked) {
    span->free.store(free_list::link_shuffled(first, size, count), std::memory_order_relaxed);
    return true;
  }
  for (size_t i = 0; i + 1 < count; ++i) link_of(first + i * size) = first + (i + 1) * size;
  link_of(first + (count - 1) * size) = nullptr;
  span->free.store(first, std::memory_order_relaxed);
  return true;
}

bool ThreadHeap::bring_page_back(Span* span) noexcept {
  const Size size = kTables.size[span->size_class];
  const std::uint64_t gone = span->gone;
  const auto page = static_cast<Size>(std::countr_zero(gone));
  span->gone = gone & (gone - 1);
  {
    const LockGuard guard(central().lock);
    central().heap.pages_back({slot_of(span) * kSlot + page * kPage, kPage});
  }
  void* list = nullptr;
  span_rules::list_those_on({span->slots * kSlot, size, span->linked}, page, span->gone, [&](Size block) {
    void* const at = static_cast<char*>(start_of(span)) + block * size;
    free_list::link(at, list);
    list = at;
  });
  span->free.store(list, std::memory_order_relaxed);
  return list != nullptr;
}

Span* ThreadHeap::next_span(size_t row, size_t size_class) noexcept {
  if (available_[row][size_class] != 0) {
    Span* const span = span_at(available_[row][size_class] - 1);
    unlink(span);
    span->state.store(SpanState::kCurrent, std::memory_order_relaxed);
    span->set_notify(kNeverNotify);
    return span;
  }
  if (Span* const span = take_kept(row, size_class); span != nullptr) return span;
  bool zero = false;
  Span* const span = central().new_span(kTables.slots[size_class], static_cast<LifetimeClass>(row), zero);
  if (span == nullptr) return nullptr;
  span->slots = kTables.slots[size_class];
  start(span, row, size_class);
  span->owner.store(id_, std::memory_order_release);
  return span;
}

void ThreadHeap::start(Span* span, size_t row, size_t size_class) noexcept {
  span->free.store(nullptr, std::memory_order_relaxed);
  span->local_free = nullptr;
  span->remote.store(0, std::memory_order_relaxed);
  span->gone = 0;
  span->next = span->previous = span->queue_next = 0;
  span->blocks = kTables.blocks[size_class];
  span->set_used(0);
  span->set_notify(kNeverNotify);
  span->linked = 0;
  span->seen.store(0, std::memory_order_relaxed);
  span->size_class = static_cast<std::uint8_t>(size_class);
  span->row = static_cast<std::uint8_t>(row);
  span->releasing = false;
  span->stripped.store(false, std::memory_order_relaxed);
  span->state.store(SpanState::kCurrent, std::memory_order_relaxed);
}

Span* ThreadHeap::take_kept(size_t row, size_t size_class) noexcept {
  const size_t slots = kTables.slots[size_class];
  const std::uint32_t first = slots > kMostSlots ? 0 : kept_[row][slots];
  if (first == 0) return nullptr;
  Span* span = span_at(first - 1);
  for (int look = 1; span->size_class != size_class && look < span_rules::kLooks && span->next != 0; ++look)
    span = span_at(span->next - 1);
  if (span->size_class != size_class) span = span_at(first - 1);
  unkeep(span);
  if (span->size_class != size_class) {
    start(span, row, size_class);
  } else {  // its blocks are linked
    span->state.store(SpanState::kCurrent, std::memory_order_relaxed);
    span->set_notify(kNeverNotify);
  }
  return span;
}

Size ThreadHeap::most_kept() noexcept {
  return span_rules::most_kept(central().held(), registry().end() - kFirstThreadHeap);
}

bool ThreadHeap::keep(Span* span) noexcept {
  if (id_ < kFirstThreadHeap || span->slots > kMostSlots || span->gone != 0) return false;
  const std::uint32_t slots = kept_slots_.load(std::memory_order_relaxed) + span->slots;
  if ((slots - single_slots_) * kSlot > most_kept()) return false;
  kept_slots_.store(slots, std::memory_order_relaxed);
  span->state.store(SpanState::kEmpty, std::memory_order_relaxed);
  std::uint32_t& first = kept_[span->row][span->slots];
  span->previous = 0;
  span->next = first;
  const auto self = static_cast<std::uint32_t>(slot_of(span) + 1);
  if (first != 0) span_at(first - 1)->previous = self;
  first = self;
  return true;
}

void ThreadHeap::unkeep(Span* span) noexcept {
  if (span->previous != 0) span_at(span->previous - 1)->next = span->next;
  else kept_[span->row][span->slots] = span->next;
  if (span->next != 0) span_at(span->next - 1)->previous = span->previous;
  span->next = span->previous = 0;
  kept_slots_.store(kept_slots_.load(std::memory_order_relaxed) - span->slots, std::memory_order_relaxed);
}

bool ThreadHeap::keep_single(Span* span) noexcept {
  const std::uint32_t length = span->slots;
  if (length > kMostSingleSlots || single_slots_ + length > most_single_slots_ || central().limit.near())
    return false;
  single_slots_ += length;
  kept_slots_.store(kept_slots_.load(std::memory_order_relaxed) + length, std::memory_order_relaxed);
  // As one that ended: nobody sees it until it is taken.
  span->state.store(SpanState::kNone, std::memory_order_relaxed);
  span->owner.store(kNobody, std::memory_order_relaxed);
  std::uint32_t& first = singles_[span->row][length];
  span->next = first;
  first = static_cast<std::uint32_t>(slot_of(span) + 1);
  single_lengths_[span->row] |= std::uint64_t{1} << (length - 1);
  return true;
}

Span* ThreadHeap::take_single(size_t row, size_t slots) noexcept {
  const size_t length = span_rules::single_to_take(single_lengths_[row], slots);
  if (length == 0) return nullptr;
  count_slow_call();
  if (queue_waits()) drain_queue();
  return pop_single(row, length);
}

Span* ThreadHeap::pop_single(size_t row, size_t length) noexcept {
  std::uint32_t& first = singles_[row][length];
  Span* const span = span_at(first - 1);
  first = span->next;
  if (first == 0) single_lengths_[row] &= ~(std::uint64_t{1} << (length - 1));
  span->next = 0;
  single_slots_ -= static_cast<std::uint32_t>(length);
  kept_slots_.store(kept_slots_.load(std::memory_order_relaxed) - static_cast<std::uint32_t>(length),
                    std::memory_order_relaxed);
  return span;
}

void ThreadHeap::end_kept() noexcept {
  for (auto& row : kept_) {
    for (std::uint32_t& first : row) {
      while (first != 0) end_if_empty(span_at(first - 1), false);
    }
  }
  for (size_t row = 0; row < kRows; ++row) {
    while (single_lengths_[row] != 0)
      central().end_span(pop_single(row, static_cast<size_t>(std::countr_zero(single_lengths_[row])) + 1));
  }
}

// --------------------------------------------------------------------------------------------- states of a
// span

void ThreadHeap::set_full(Span* span) noexcept {
  span->state.store(SpanState::kFull, std::memory_order_relaxed);
  span->set_notify(static_cast<std::uint16_t>(span->blocks - span_rules::blocks_to_offer(span->blocks)));
  // Its free blocks may lie on pages that are being given back: it is offered when that is done.
  if (!span->releasing && span->at_notify()) set_available(span);
}

void ThreadHeap::set_available(Span* span) noexcept {
  span->state.store(SpanState::kAvailable, std::memory_order_relaxed);
  span->set_notify(0);
  std::uint32_t& first = available_[span->row][span->size_class];
  const auto self = static_cast<std::uint32_t>(slot_of(span) + 1);
  span->previous = 0;
  span->next = first;
  if (first != 0) span_at(first - 1)->previous = self;
  first = self;
}

void ThreadHeap::unlink(Span* span) noexcept {
  std::uint32_t& first = available_[span->row][span->size_class];
  if (first == static_cast<std::uint32_t>(slot_of(span) + 1)) {  // the next one's record is not touched
    first = span->next;
  } else {
    span_at(span->previous - 1)->next = span->next;
    if (span->next != 0) span_at(span->next - 1)->previous = span->previous;
  }
  span->next = span->previous = 0;
}

bool ThreadHeap::notified(Span* span) noexcept {
  // Between the free and the lock the background may have been here.
  if (span->owner.load(std::memory_order_relaxed) != id_) return false;
  if (state_of(span) == SpanState::kFull && span->at_notify()) set_available(span);
  return end_if_empty(span, true);
}

bool ThreadHeap::end_if_empty(Span* span, bool keep_it) noexcept {
  const SpanState state = state_of(span);
  if (state == SpanState::kEmpty) {
    if (keep_it) return false;
    unkeep(span);
  } else {
    if (state != SpanState::kAvailable || span->used() != 0 || span->releasing) return false;
    if ((span->remote.load(std::memory_order_acquire) & kQueued) != 0)
      return false;  // ends when it leaves the queue
    if (keep_it && span->next == 0 &&
        available_[span->row][span->size_class] == static_cast<std::uint32_t>(slot_of(span) + 1))
      return false;  // the last of its list
    unlink(span);
    if (keep_it && keep(span)) return false;
  }
  central().end_span(span);
  return true;
}

void ThreadHeap::free(Span* span, void* block) noexcept {
  free_list::link(block, span->local_free);
  span->local_free = block;
  if (span->count_down()) notified(span);
}

void ThreadHeap::collect(Span* span) noexcept {
  const RemoteList remote = take_remote(span);
  if (remote.count() != 0) {
    void* const first = address_of(remote.first());
    if (span->local_free == nullptr) {
      span->local_free = first;
    } else if (span->free.load(std::memory_order_relaxed) == nullptr) {
      span->free.store(first, std::memory_order_relaxed);
    } else {  // a walk over blocks that another thread wrote to: dear
      free_list::link(free_list::last_of(span, first), span->local_free);
      span->local_free = first;
    }
    span->set_used(span->used() - remote.count());
  }
  if (state_of(span) == SpanState::kFull && span->at_notify()) set_available(span);
}

// ---------------------------------------------------------------------------------------- frees of other
// threads

void ThreadHeap::push_remote(Span* span, void* first, void* last, std::uint64_t count) noexcept {
  const std::uint64_t limit = span_rules::blocks_to_tell(span->blocks);
  RemoteList old{span->remote.load(std::memory_order_relaxed)}, wanted{};
  do {
    free_list::link(last, old.count() == 0 ? nullptr : address_of(old.first()));
    wanted =
        RemoteList::make(offset_of(first), old.count() + count, old.queued() || old.count() + count >= limit);
  } while (!span->remote.compare_exchange_weak(old.word, wanted.word, std::memory_order_acq_rel,
                                               std::memory_order_relaxed));
  if (old.queued() || !wanted.queued()) return;
  // Nobody else queues the span now, and it does not end while it is queued.
  ThreadHeap* const owner = registry().find(span->owner.load(std::memory_order_relaxed));
  std::uint32_t head = owner->queue_.load(std::memory_order_relaxed);
  do {
    span->queue_next = head;
  } while (!owner->queue_.compare_exchange_weak(head, static_cast<std::uint32_t>(slot_of(span) + 1),
                                                std::memory_order_release, std::memory_order_relaxed));
}

void ThreadHeap::drain_queue() noexcept {
  for (std::uint32_t next = queue_.exchange(0, std::memory_order_acquire); next != 0;) {
    Span* const span = span_at(next - 1);
    next = span->queue_next;
    span->remote.fetch_and(~kQueued, std::memory_order_acq_rel);
    collect(span);
    end_if_empty(span, true);
  }
}

void ThreadHeap::hold_remote(Span* span, void* block) noexcept {
  const Size size = kTables.size[span->size_class];
  if (size >= span_rules::kHeldBytes) return push_remote(span, block, block, 1);
  Held& held = held_[span_rules::held_place(slot_of(span), registry().crowded())];
  if (held.span != span) {
    flush(held);
    count_slow_call();
    if (queue_waits()) drain_queue();  // for the background, a thread that only frees is at work too
    holds_.store(true, std::memory_order_relaxed);
    held.span = span;
    held.first = held.last = block;
    free_list::link(block, nullptr);
    held.count = 1;
    return;
  }
  free_list::link(block, held.first);
  held.first = block;
  if (span_rules::holds_enough(++held.count, size)) flush(held);
}

void ThreadHeap::flush(Held& held) noexcept {
  if (held.count != 0) push_remote(held.span, held.first, held.last, held.count);
  held = {};
}

void ThreadHeap::flush_held() noexcept {
  for (Held& held : held_) flush(held);
  holds_.store(false, std::memory_order_relaxed);
}

void ThreadHeap::give_back() noexcept {
  flush_held();
  drain_queue();
  end_kept();
  uncounted_ += static_cast<Size>(granted_ - credit) * kUnit;
  granted_ = 0;
  credit = 0;
  count_allocated();
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t size_class = 0; size_class < kClasses; ++size_class) {
      if (Span* const span = current(row, size_class); span != &no_span) {
        set_current(row, size_class, &no_span);
        span->state.store(SpanState::kFull, std::memory_order_relaxed);
        if (void* const rest = span->free.exchange(nullptr, std::memory_order_relaxed); rest != nullptr) {
          free_list::link(free_list::last_of(span, rest), span->local_free);
          span->local_free = rest;
        }
        set_available(span);
      }
      for (std::uint32_t next = available_[row][size_class]; next != 0;) {
        Span* const span = span_at(next - 1);
        next = span->next;
        end_if_empty(span, false);
      }
    }
  }
}

// --------------------------------------------------------------------------------------------------------
// pauses

void ThreadHeap::divert() noexcept {
  kept_token_ = token.load(std::memory_order_relaxed);
  token.store(kNoToken, std::memory_order_relaxed);
}

bool ThreadHeap::wait_outside() noexcept {
  for (int spin = 0; spin < 20000; ++spin) {
    if (busy.load(std::memory_order_acquire) == 0) return true;
  }
  return false;
}

bool ThreadHeap::pause() noexcept {
  // All are diverted already while this thread forks.
  if (forking_thread.load(std::memory_order_relaxed) == current_thread()) return false;
  divert();
  if (this != this_heap) until_stores_are_seen(&lock_);
  if (wait_outside()) return true;
  resume();
  return false;
}

void ThreadHeap::resume() noexcept { token.store(kept_token_, std::memory_order_release); }

// ------------------------------------------------------------------------------------------------------
// registry

ThreadHeap* HeapRegistry::take() noexcept {
  const LockGuard guard(lock_);
  if (ThreadHeap* const heap = idle_; heap != nullptr) {
    idle_ = heap->next_idle;
    heap->next_idle = nullptr;
    heap->idle = false;
    taken_.fetch_add(1, std::memory_order_relaxed);
    return heap;
  }
  const HeapId id = kFirstThreadHeap + made_.load(std::memory_order_relaxed);
  if (id >= kMostHeaps) return nullptr;
  void* const room = map_metadata(sizeof(ThreadHeap));
  if (room == nullptr) return nullptr;
  auto* const heap = new (room) ThreadHeap(id, kNoToken);
  heaps_[id].store(heap, std::memory_order_release);
  made_.store(id + 1 - kFirstThreadHeap, std::memory_order_release);
  taken_.fetch_add(1, std::memory_order_relaxed);
  return heap;
}

void HeapRegistry::put_back(ThreadHeap* heap) noexcept {
  const LockGuard guard(lock_);
  heap->idle = true;
  heap->next_idle = idle_;
  idle_ = heap;
  taken_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace memoir::malloc_
