// SPDX-License-Identifier: Apache-2.0
//
// The record of a span: 64 bytes for each slot of the arena, valid where a span begins. A byte per slot says
// how many slots back its span begins, so that a free finds its record with one look at each.
//
//   free        what the owner's next allocations take, and what it frees, the last first; linked through
//               the blocks' first words
//   local_free  blocks that the slow path puts aside, and in the checked build what the owner frees;
//               becomes `free` when that is empty
//   remote      what other threads have freed: a stack that only its owner empties
//
//   used() = blocks handed out and not yet in free or local_free (a block in `remote` counts as used)
//   blocks of a span: used | in free or local_free | in remote | on gone pages | not yet linked (>= linked)
#pragma once

#include <atomic>
#include <bit>

#include "memoir/base/units.h"
#include "memoir/heap/lifetime/size_classes.h"
#include "memoir/malloc/blocks/owners_word.h"

namespace memoir::malloc_ {

using HeapId = std::uint32_t;
inline constexpr HeapId kNobody = 0;

enum class SpanState : std::uint8_t {
  kNone,       // no span begins here
  kCurrent,    // its owner allocates from it
  kAvailable,  // in its owner's list of spans with free blocks
  kEmpty,      // without used blocks, kept by its owner for what it needs next
  kFull,       // in no list; offered again when a few of its blocks are free
  kSingle,     // one block, larger than those of the classes
};

struct alignas(64) Span {
  std::atomic<void*> free;
  void* local_free;
  std::atomic<HeapId> owner;
  std::atomic<std::uint16_t> above;  // used() - notify: a free that brings it to zero tells the slow path
  std::atomic<std::uint16_t> notify;
  std::atomic<std::uint64_t> remote;  // RemoteList
  OwnersWord<std::uint64_t> gone;     // 4 KiB pages that were given back; no linked block touches them
  std::uint32_t next, previous;       // slots of spans in the owner's list
  std::uint32_t queue_next;           // slot + 1 in the owner's queue of spans with remote frees
  OwnersWord<std::uint16_t> blocks;
  OwnersWord<std::uint16_t> linked;     // the first `linked` blocks were handed out or linked once
  std::atomic<std::uint16_t> seen;      // used() when the background last looked
  OwnersWord<std::uint8_t> size_class;  // a kept span may be cut again, with its owner unchanged
  OwnersWord<std::uint8_t> row;
  std::uint8_t slots;  // stays until the span ends
  std::atomic<SpanState> state;
  bool releasing;              // pages are being given back: the span may not end, nor pages come back
  std::atomic<bool> stripped;  // its free pages were given back when used() was `seen`

  /// For the owner. Others may read it while it changes, and find any number up to `blocks`.
  std::uint16_t used() const noexcept {
    const auto now = static_cast<std::uint16_t>(above.load(std::memory_order_relaxed) +
                                                notify.load(std::memory_order_relaxed));
    const std::uint16_t most = blocks;
    return now < most ? now : most;
  }
  void set_used(size_t used) noexcept {
    above.store(static_cast<std::uint16_t>(used - notify.load(std::memory_order_relaxed)),
                std::memory_order_relaxed);
  }
  /// used() stays what it is.
  void set_notify(size_t at) noexcept {
    const std::uint16_t now = used();
    notify.store(static_cast<std::uint16_t>(at), std::memory_order_relaxed);
    set_used(now);
  }
  bool at_notify() const noexcept { return used() <= notify.load(std::memory_order_relaxed); }
  /// A block leaves, on the fast path. Only the owner counts, so that no other processor's line is locked:
  /// one instruction, of which compilers make three.
  [[gnu::always_inline]] void count_up() noexcept {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    asm volatile("incw %0" : "+m"(reinterpret_cast<std::uint16_t&>(above)) : : "cc");
#else
    above.store(static_cast<std::uint16_t>(above.load(std::memory_order_relaxed) + 1),
                std::memory_order_relaxed);
#endif
  }
  /// A block comes back. True when the slow path is to be told.
  [[gnu::always_inline]] bool count_down() noexcept {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    bool zero;
    asm volatile("decw %0" : "+m"(reinterpret_cast<std::uint16_t&>(above)), "=@ccz"(zero));
    return zero;
#else
    const auto now = static_cast<std::uint16_t>(above.load(std::memory_order_relaxed) - 1);
    above.store(now, std::memory_order_relaxed);
    return now == 0;
#endif
  }

  Size block_size() const noexcept {
    return state.load(std::memory_order_relaxed) == SpanState::kSingle
               ? slots * size_classes::kSlot
               : size_classes::kTables.size[size_class];
  }
};
static_assert(sizeof(Span) == 64 && alignof(Span) == 64);

/// The runs of a mask of pages, the lowest first.
class PageRuns {
 public:
  explicit PageRuns(std::uint64_t pages) noexcept : rest_(pages) {}
  bool next() noexcept {
    if (rest_ == 0) return false;
    first_ = std::countr_zero(rest_);
    count_ = std::countr_one(rest_ >> first_);
    rest_ &= ~mask();
    return true;
  }
  Size first() const noexcept { return static_cast<Size>(first_); }
  Size count() const noexcept { return static_cast<Size>(count_); }
  std::uint64_t mask() const noexcept { return ~std::uint64_t{0} >> (64 - count_) << first_; }

 private:
  std::uint64_t rest_;
  int first_ = 0, count_ = 0;
};

inline void*& link_of(void* block) noexcept { return *static_cast<void**>(block); }

/// The packed head of a span's remote frees: where the first block lies, how many there are, whether the
/// owner's queue has the span.
struct RemoteList {
  std::uint64_t word;

  static constexpr unsigned kCountBits = 16, kOffsetBits = 40;  // offsets below 16 TiB, in units of 16 bytes
  static RemoteList make(Offset first, std::uint64_t count, bool queued) noexcept {
    return {(first >> 4) | count << kOffsetBits | std::uint64_t{queued} << (kOffsetBits + kCountBits)};
  }
  Offset first() const noexcept { return (word & ((std::uint64_t{1} << kOffsetBits) - 1)) << 4; }
  std::uint64_t count() const noexcept { return word >> kOffsetBits & ((1u << kCountBits) - 1); }
  bool queued() const noexcept { return (word >> (kOffsetBits + kCountBits) & 1) != 0; }
};

}  // namespace memoir::malloc_
