// SPDX-License-Identifier: Apache-2.0
//
// The record of a span: 64 bytes for each slot of the arena, valid where a span begins. A byte per slot says
// how many slots back its span begins, so that a free finds its record with one look at each.
//
//   free        what the owner's next allocations take, linked through the blocks' first words
//   local_free  what the owner has freed since; becomes `free` when that is empty, in the slow path
//   remote      what other threads have freed: a stack that only its owner empties
//
//   used = blocks handed out and not yet in free or local_free (a block in `remote` counts as used)
//   blocks of a span: used | in free or local_free | in remote | on gone pages | not yet linked (>= linked)
#pragma once

#include <atomic>
#include <bit>

#include "memoir/base/units.h"
#include "memoir/heap/lifetime/size_classes.h"

namespace memoir::host_malloc {

using HeapId = std::uint32_t;
inline constexpr HeapId kNobody = 0;

enum class SpanState : std::uint8_t {
  kNone,       // no span begins here
  kCurrent,    // its owner allocates from it
  kAvailable,  // in its owner's list of spans with free blocks
  kFull,       // in no list; offered again when 1/8 of it is free
  kSingle,     // one block, larger than those of the classes
};

struct alignas(64) Span {
  std::atomic<void*> free;
  void* local_free;
  std::atomic<HeapId> owner;
  std::atomic<std::uint16_t> used;
  std::uint16_t notify;               // a free that brings `used` to this tells the slow path
  std::atomic<std::uint64_t> remote;  // RemoteList
  std::uint64_t gone;            // 4 KiB pages of the span that were given back; no linked block touches them
  std::uint32_t next, previous;  // slots of spans in the owner's list
  std::uint32_t queue_next;      // slot + 1 in the owner's queue of spans with remote frees
  std::uint16_t blocks;
  std::uint16_t linked;             // the first `linked` blocks were handed out or linked once
  std::atomic<std::uint16_t> seen;  // `used` when the background last looked
  std::uint8_t size_class;
  std::uint8_t row;
  std::uint8_t slots;
  std::atomic<SpanState> state;
  bool releasing;              // pages are being given back: the span may not end, nor pages come back
  std::atomic<bool> stripped;  // its free pages were given back when `used` was `seen`

  Size block_size() const noexcept {
    return state.load(std::memory_order_relaxed) == SpanState::kSingle
               ? slots * size_classes::kSlot
               : size_classes::kTables.size[size_class];
  }
};
static_assert(sizeof(Span) == 64 && alignof(Span) == 64);

inline void*& link_of(void* block) noexcept { return *static_cast<void**>(block); }

/// The packed head of a span's remote frees: where the first block lies, how many there are, whether the
/// owner's queue has the span.
struct RemoteList {
  std::uint64_t word;

  static constexpr unsigned kCountBits = 16, kOffsetBits = 34;  // offsets below 256 GiB, in units of 16 bytes
  static RemoteList make(Offset first, std::uint64_t count, bool queued) noexcept {
    return {(first >> 4) | count << kOffsetBits | std::uint64_t{queued} << (kOffsetBits + kCountBits)};
  }
  Offset first() const noexcept { return (word & ((std::uint64_t{1} << kOffsetBits) - 1)) << 4; }
  std::uint64_t count() const noexcept { return word >> kOffsetBits & ((1u << kCountBits) - 1); }
  bool queued() const noexcept { return (word >> (kOffsetBits + kCountBits) & 1) != 0; }
};

}  // namespace memoir::host_malloc
