// SPDX-License-Identifier: Apache-2.0
#include "memoir/host/malloc/thread_heap.h"

#include <algorithm>
#include <bit>
#include <new>

#include "memoir/host/malloc/blocks/free_list.h"
#include "memoir/host/malloc/blocks/pause.h"

namespace memoir::host_malloc {

namespace {

using size_classes::kSlot;
using size_classes::kTables;
constexpr Size kPage = 4 * kKiB;
constexpr std::uint64_t kQueued = std::uint64_t{1} << (RemoteList::kOffsetBits + RemoteList::kCountBits);

std::uint16_t used_of(const Span* span) noexcept { return span->used.load(std::memory_order_relaxed); }
void set_used(Span* span, size_t used) noexcept {
  span->used.store(static_cast<std::uint16_t>(used), std::memory_order_relaxed);
}
SpanState state_of(const Span* span) noexcept { return span->state.load(std::memory_order_relaxed); }

/// Other threads' frees make a span heard of when they come to 1/8 of it.
std::uint64_t remote_limit(const Span* span) noexcept { return std::max(1, span->blocks / 8); }

}  // namespace

// ----------------------------------------------------------------------------------------------------
// allocation

void* ThreadHeap::allocate(size_t row, size_t size_class, bool* sample_due) noexcept {
  slow_calls.store(slow_calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  SpanPlace& place = direct[row][size_class];
  Span* span = place.load(std::memory_order_relaxed);
  while (span == &no_span || (span->free.load(std::memory_order_relaxed) == nullptr && !refill(span))) {
    if (span != &no_span) set_full(span);
    if (queue_waits()) drain_queue();
    span = next_span(row, size_class);
    place.store(span == nullptr ? &no_span : span, std::memory_order_release);
    if (span == nullptr) return nullptr;
  }
  if (sample_due != nullptr) {
    // What is free in the span now is handed out before the slow path comes here again.
    const Size bytes = static_cast<Size>(span->linked - used_of(span)) * kTables.size[size_class];
    uncounted_ += bytes;
    if (uncounted_ >= kCountedTogether) count_allocated();
    if ((*sample_due = count_down(bytes))) return nullptr;
  }
  void* const block = span->free.load(std::memory_order_relaxed);
  span->free.store(free_list::take(block), std::memory_order_relaxed);
  set_used(span, used_of(span) + 1u);
  return block;
}

void ThreadHeap::count_allocated() noexcept {
  grew_ = true;
  central().add_allocated(uncounted_);
  uncounted_ = 0;
}

bool ThreadHeap::count_down(Size bytes) noexcept {
  if (!central().sampler.active()) return false;
  if (random_ == 0) {
    random_ = (std::uint64_t{id_} + 1) * 0x9e3779b97f4a7c15ull;
    until_sample_ = 0;
  } else if (bytes < until_sample_) {
    until_sample_ -= bytes;
    return false;
  }
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  until_sample_ = central().sampler.interval(random_ * 2685821657736338717ull);
  return true;
}

bool ThreadHeap::refill(Span* span) noexcept {
  if (span->local_free != nullptr) {
    span->free.store(span->local_free, std::memory_order_relaxed);
    span->local_free = nullptr;
    return true;
  }
  const RemoteList remote{span->remote.fetch_and(kQueued, std::memory_order_acquire)};
  if (remote.count() != 0) {
    span->free.store(address_of(remote.first()), std::memory_order_relaxed);
    set_used(span, used_of(span) - remote.count());
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
  const Size size = kTables.size[span->size_class];
  const size_t count = std::min<size_t>(std::max<Size>(kPage / size, 1), span->blocks - span->linked);
  if (count == 0) return false;
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
  const auto page = static_cast<Size>(std::countr_zero(span->gone));
  span->gone &= span->gone - 1;
  {
    const LockGuard guard(central().lock);
    central().heap.pages_back({slot_of(span) * kSlot + page * kPage, kPage});
  }
  // Blocks on this page that lie on no other gone page are linked again.
  void* list = nullptr;
  const Size last = std::min<Size>((page * kPage + kPage - 1) / size, span->linked - Size{1});
  for (Size block = last + 1; block-- > page * kPage / size;) {
    const Size low = block * size / kPage, high = (block * size + size - 1) / kPage;
    const std::uint64_t pages = (~std::uint64_t{0} >> (63 - (high - low))) << low;
    if (block >= span->linked || (pages & span->gone) != 0) continue;
    void* const at = static_cast<char*>(start_of(span)) + block * size;
    free_list::link(at, list);
    list = at;
  }
  span->free.store(list, std::memory_order_relaxed);
  return list != nullptr;
}

Span* ThreadHeap::next_span(size_t row, size_t size_class) noexcept {
  if (available_[row][size_class] != 0) {
    Span* const span = span_at(available_[row][size_class] - 1);
    unlink(span);
    span->state.store(SpanState::kCurrent, std::memory_order_relaxed);
    span->notify = kNeverNotify;
    return span;
  }
  bool zero = false;
  Span* const span = central().new_span(kTables.slots[size_class], static_cast<LifetimeClass>(row), zero);
  if (span == nullptr) return nullptr;
  grew_ = true;
  span->free.store(nullptr, std::memory_order_relaxed);
  span->local_free = nullptr;
  set_used(span, 0);
  span->notify = kNeverNotify;
  span->remote.store(0, std::memory_order_relaxed);
  span->gone = 0;
  span->next = span->previous = span->queue_next = 0;
  span->blocks = kTables.blocks[size_class];
  span->linked = 0;
  span->seen.store(0, std::memory_order_relaxed);
  span->size_class = static_cast<std::uint8_t>(size_class);
  span->row = static_cast<std::uint8_t>(row);
  span->slots = kTables.slots[size_class];
  span->releasing = false;
  span->stripped.store(false, std::memory_order_relaxed);
  span->state.store(SpanState::kCurrent, std::memory_order_relaxed);
  span->owner.store(id_, std::memory_order_release);
  return span;
}

// --------------------------------------------------------------------------------------------- states of a
// span

void ThreadHeap::set_full(Span* span) noexcept {
  span->state.store(SpanState::kFull, std::memory_order_relaxed);
  span->notify = static_cast<std::uint16_t>(span->blocks - std::max(1, span->blocks / 8));
  // Its free blocks may lie on pages that are being given back: it is offered when that is done.
  if (!span->releasing && used_of(span) <= span->notify) set_available(span);
}

void ThreadHeap::set_available(Span* span) noexcept {
  span->state.store(SpanState::kAvailable, std::memory_order_relaxed);
  span->notify = 0;
  std::uint32_t& first = available_[span->row][span->size_class];
  const auto self = static_cast<std::uint32_t>(slot_of(span) + 1);
  span->previous = 0;
  span->next = first;
  if (first != 0) span_at(first - 1)->previous = self;
  first = self;
}

void ThreadHeap::unlink(Span* span) noexcept {
  if (span->previous != 0) span_at(span->previous - 1)->next = span->next;
  else available_[span->row][span->size_class] = span->next;
  if (span->next != 0) span_at(span->next - 1)->previous = span->previous;
  span->next = span->previous = 0;
}

void ThreadHeap::notified(Span* span) noexcept {
  // Between the free and the lock the background may have been here.
  if (span->owner.load(std::memory_order_relaxed) != id_) return;
  if (state_of(span) == SpanState::kFull && used_of(span) <= span->notify) set_available(span);
  end_if_empty(span, true);
}

bool ThreadHeap::end_if_empty(Span* span, bool keep_one) noexcept {
  if (state_of(span) != SpanState::kAvailable || used_of(span) != 0 || span->releasing) return false;
  if ((span->remote.load(std::memory_order_acquire) & kQueued) != 0)
    return false;  // ends when it leaves the queue
  if (keep_one && span->next == 0 && span->previous == 0) return false;
  unlink(span);
  central().end_span(span);
  return true;
}

void ThreadHeap::free(Span* span, void* block) noexcept {
  free_list::link(block, span->local_free);
  span->local_free = block;
  set_used(span, used_of(span) - 1u);
  if (used_of(span) == span->notify) notified(span);
}

void ThreadHeap::collect(Span* span) noexcept {
  const RemoteList remote{span->remote.fetch_and(kQueued, std::memory_order_acquire)};
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
    set_used(span, used_of(span) - remote.count());
  }
  if (state_of(span) == SpanState::kFull && used_of(span) <= span->notify) set_available(span);
}

// ---------------------------------------------------------------------------------------- frees of other
// threads

void ThreadHeap::push_remote(Span* span, void* first, void* last, std::uint64_t count) noexcept {
  const std::uint64_t limit = remote_limit(span);
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
  Held& held = held_[slot_of(span) * 0x9e3779b1u >> 16 & (kHeldSpans - 1)];
  if (held.span != span) {
    flush(held);
    held.span = span;
    held.first = held.last = block;
    free_list::link(block, nullptr);
    held.count = 1;
    return;
  }
  free_list::link(block, held.first);
  held.first = block;
  if (++held.count >= kHeldBlocks || held.count * kTables.size[span->size_class] >= kHeldBytes) flush(held);
}

void ThreadHeap::flush(Held& held) noexcept {
  if (held.count != 0) push_remote(held.span, held.first, held.last, held.count);
  held = {};
}

void ThreadHeap::give_back() noexcept {
  for (Held& held : held_) flush(held);
  drain_queue();
  count_allocated();
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t size_class = 0; size_class < kClasses; ++size_class) {
      SpanPlace& place = direct[row][size_class];
      if (Span* const span = place.load(std::memory_order_relaxed); span != &no_span && span != nullptr) {
        place.store(&no_span, std::memory_order_release);
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
  if (!pauses_possible()) return false;
  divert();
  barrier_on_every_thread();
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
    return heap;
  }
  const HeapId id = end_.load(std::memory_order_relaxed);
  if (id >= kMostHeaps) return nullptr;
  void* const room = map_metadata(sizeof(ThreadHeap));
  if (room == nullptr) return nullptr;
  auto* const heap = new (room) ThreadHeap(id, kNoToken);
  heaps_[id].store(heap, std::memory_order_release);
  end_.store(id + 1, std::memory_order_release);
  return heap;
}

void HeapRegistry::put_back(ThreadHeap* heap) noexcept {
  const LockGuard guard(lock_);
  heap->idle = true;
  heap->next_idle = idle_;
  idle_ = heap;
}

}  // namespace memoir::host_malloc
