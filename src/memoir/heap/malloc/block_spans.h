// SPDX-License-Identifier: Apache-2.0
//
// Blocks of size classes in spans, each of one owner (a thread and a row): the level above LifetimeHeap as
// memoir's malloc has it, without what makes that concurrent. malloc keeps its lists inside the blocks;
// here they are apart, since a heap never touches the memory that it manages.
//
//   current     its owner allocates from it: first what `free` lists, the last freed first, then what was put
//               aside, then pages that went, one by one, then blocks that were never handed out
//   full        in no list; offered again when a few of its blocks are free
//   available   free for its owner to make current. Empty, it is kept or ends, unless it is the last one in
//               its list
//   kept        empty: its thread uses it for whatever class it needs next
//
// A block that another thread frees counts as used until its owner takes it in: it is held back by who freed
// it, then handed over to the span, of which its owner hears through a queue.
//
// Owner 0 is no thread's: what is freed there is put aside, and nothing is kept.
//
// Not thread-safe.
#pragma once

#include <algorithm>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/lifetime/size_classes.h"
#include "memoir/heap/lifetime/span_rules.h"

namespace memoir {

class BlockSpans {
 public:
  static constexpr Size kPage = span_rules::kPage;

  class Pages {
   public:
    virtual ~Pages() = default;
    /// Brings the memory of pages back that strip() gave away. False: there is none now.
    virtual bool bring_back(Range page) noexcept = 0;
    /// Bytes of empty spans that a thread may keep.
    virtual Size most_kept() const noexcept { return 0; }
    /// A span ended when its owner took in what others had freed.
    virtual void ended(Range /*span*/) noexcept {}
  };
  /// Kept alive by the caller.
  explicit BlockSpans(Pages& pages) noexcept : pages_(&pages) {}

  /// What allocates in a row of a thread's.
  static constexpr std::uint32_t owner_of(std::uint32_t thread, size_t row) noexcept {
    return 1 + 2 * thread + static_cast<std::uint32_t>(row);
  }
  /// Whether take() has a block of the class at once.
  bool has(std::uint32_t owner, size_t size_class) const noexcept {
    const size_t local = owner * size_classes::kCount + size_class;
    return local < locals_.size() && spans_[locals_[local].current].free != 0;
  }
  /// Makes it so. False: the owner needs a span more, unless starved().
  bool prepare(std::uint32_t owner, size_t size_class) noexcept;
  /// A block of the class, after one of these.
  Offset take(std::uint32_t owner, size_t size_class) noexcept;
  Offset allocate(std::uint32_t owner, size_t size_class) noexcept {
    return prepare(owner, size_class) ? take(owner, size_class) : kNoOffset;
  }
  /// The last prepare() failed since pages of its span cannot be brought back: there is no memory.
  bool starved() const noexcept { return starved_; }
  /// An empty span at `begin`, of kTables.slots[size_class] slots. False when there is no metadata memory.
  bool add_span(std::uint32_t owner, size_t size_class, Offset begin) noexcept;

  using Index = std::uint32_t;  // of a span; 0 is none
  /// The span where the offset lies.
  Index find(Offset offset) const noexcept { return index_at(offset / size_classes::kSlot); }
  /// Bytes of blocks in the span where the offset lies; 0: no span is there.
  Size block_size(Offset offset) const noexcept {
    const Span* const span = at(offset);
    return span == nullptr ? 0 : size_classes::kTables.size[span->size_class];
  }
  /// Takes a block back from the thread that owns the span. The span's range when it ended by that, else an
  /// empty one.
  Range free(Offset block) noexcept { return free_own(index_at(block / size_classes::kSlot), block); }
  /// A block of that span, from any thread for which add_thread() was called; ~0: from the one that owns it.
  Range free(Index index, Offset block, std::uint32_t thread) noexcept {
    const std::uint32_t owner = owner_of(spans_[index]);
    if (owner == 0 || thread == ~std::uint32_t{0} || thread_of(owner) == thread)
      return free_own(index, block);
    hold(threads_[thread], index, block);
    return {};
  }
  /// The next number of a thread. False when there is no metadata memory.
  bool add_thread() noexcept { return threads_.push_back({}); }
  /// How often a thread took a slow path.
  std::uint32_t slow_calls(std::uint32_t thread) const noexcept { return threads_[thread].slow_calls; }
  void count_slow_call(std::uint32_t thread) noexcept { ++threads_[thread].slow_calls; }
  bool hears_of_frees(std::uint32_t thread) const noexcept { return threads_[thread].queue != 0; }
  bool holds_blocks(std::uint32_t thread) const noexcept { return threads_[thread].holds; }
  /// Hands over what the thread holds back.
  void flush_held(std::uint32_t thread) noexcept;
  /// Takes in what others freed into spans that the thread hears of.
  void drain_queue(std::uint32_t thread) noexcept;

  /// What is to be known of the span that begins in a slot.
  struct View {
    Range range;  // empty: no span begins here
    std::uint32_t owner = 0;
    size_t used = 0, blocks = 0;
    size_t others_freed = 0;  // of the used ones: handed over
    Size block_size = 0;
    size_t seen = 0;        // blocks used when look() was last asked
    bool stripped = false;  // since then strip() was
    bool current = false;
  };
  View view(size_t slot) const noexcept;
  /// Remembers how many blocks are used now, and whether the span was stripped at that.
  void look(size_t slot, bool stripped) noexcept;
  /// Pages of a span that no used block touches leave its lists: bit i for page i. Not those that went
  /// before, nor those of `absent`.
  std::uint64_t strip(size_t slot, std::uint64_t absent) noexcept;
  /// Ends the span in that slot if it is empty and not current; its range, or an empty one.
  Range end_if_empty(size_t slot) noexcept;
  /// No span is current any more.
  void set_current_aside() noexcept { set_current_aside(0, locals_.size()); }
  /// Nor one of that owner's.
  void set_current_aside(std::uint32_t owner) noexcept {
    set_current_aside(owner * size_classes::kCount, (owner + 1) * size_classes::kCount);
  }

  bool keeps(std::uint32_t thread) const noexcept { return kept_slots(owner_of(thread, 0)) != 0; }
  /// Ends what a thread keeps; calls `body(range)` with each.
  template <class Body>
  void end_kept(std::uint32_t thread, Body body) noexcept {
    for (std::uint32_t owner = owner_of(thread, 0); owner <= owner_of(thread, 1); ++owner) {
      for (size_t slots = 1; owner < kept_.size() && slots <= span_rules::kMostKeptSlots; ++slots) {
        while (kept_[owner].first[slots] != 0) body(end(kept_[owner].first[slots]));
      }
    }
  }
  /// As end_if_empty() for the spans in an owner's lists.
  template <class Body>
  void end_empty_of(std::uint32_t owner, Body body) noexcept {
    const size_t last = std::min<size_t>((owner + 1) * size_classes::kCount, locals_.size());
    for (size_t local = owner * size_classes::kCount; local < last; ++local) {
      for (Index index = locals_[local].available; index != 0;) {
        const Index next = spans_[index].next;
        if (spans_[index].used == 0 && !spans_[index].queued) body(end(index));
        index = next;
      }
    }
  }

  /// As end_if_empty() for every span; calls `body(range)` with those that end.
  template <class Body>
  void end_empty(Body body) noexcept {
    for (Index index = 1; index < spans_.size(); ++index) {
      const Span& span = spans_[index];
      if (span.state == State::kUnused || span.state == State::kCurrent || span.used != 0 || span.queued)
        continue;
      body(end(index));
    }
  }

 private:
  static constexpr size_t kMostBlocks = 512;       // of a span
  static constexpr size_t kPart = 256;             // slots, of which all have an entry or none
  static constexpr std::uint16_t kNever = 0xffff;  // no count of used blocks

  enum class State : std::uint8_t { kUnused, kCurrent, kFull, kAvailable, kKept };
  struct Span {
    Offset begin = 0;
    std::uint64_t gone = 0;  // pages; no listed block touches them
    Index next = 0, previous = 0;
    std::uint32_t local = 0;
    std::uint16_t free = 0, local_free = 0;  // first blocks of the lists, plus 1
    std::uint16_t used = 0, linked = 0, blocks = 0, notify = kNever, seen = 0;
    std::uint16_t remote = 0, remote_count = 0;  // what others freed: first block of the list, plus 1
    Index queue_next = 0;
    bool queued = false;
    std::uint8_t size_class = 0;
    State state = State::kUnused;
    bool stripped = false;
    std::uint16_t link[kMostBlocks];
  };
  struct Local {
    Index current = 0, available = 0;
  };
  /// Blocks of one span that a thread holds back.
  struct Held {
    Index span = 0;
    std::uint16_t first = 0, last = 0, count = 0;  // plus 1
  };
  struct Thread {
    Held held[span_rules::kHeldSpans] = {};
    bool holds = false;
    Index queue = 0;
    std::uint32_t slow_calls = 0;
  };
  struct Kept {
    Index first[span_rules::kMostKeptSlots + 1] = {};  // by slots
    std::uint32_t slots = 0;                           // of a thread's: with both its rows
  };

  static std::uint32_t owner_of(const Span& span) noexcept { return span.local / size_classes::kCount; }
  static std::uint32_t thread_of(std::uint32_t owner) noexcept { return (owner - 1) / 2; }
  std::uint32_t kept_slots(std::uint32_t owner) const noexcept {
    const std::uint32_t first = owner_of(thread_of(owner), 0);
    return first < kept_.size() ? kept_[first].slots : 0;
  }
  Range free_own(Index index, Offset block) noexcept;
  void hold(Thread& thread, Index index, Offset block) noexcept;
  void hand_over(Held& held) noexcept;
  void collect(Index index) noexcept;
  void put_aside(Span& span, std::uint16_t first) noexcept;
  static void start(Span& span, std::uint32_t local, size_t size_class) noexcept;
  bool keep(Index index) noexcept;
  void unkeep(Index index) noexcept;
  Index take_kept(std::uint32_t owner, size_t size_class) noexcept;
  void set_current_aside(size_t first, size_t end) noexcept;
  bool refill(Span& span) noexcept;
  void set_available(Index index) noexcept;
  void set_full(Index index) noexcept;
  void unlink(Index index) noexcept;
  Range end(Index index) noexcept;
  const Span* at(Offset offset) const noexcept {
    const Index index = index_at(offset / size_classes::kSlot);
    return index != 0 ? &spans_[index] : nullptr;
  }
  /// The span that a slot is of.
  Index index_at(size_t slot) const noexcept {
    const OffsetTable::Index part = parts_.find(slot / kPart);
    return part != 0 ? by_slot_[(part - 1) * kPart + slot % kPart] : 0;
  }
  void set_slots(size_t first, size_t count, Index index) noexcept;

  Pages* pages_;
  MetadataArray<Span> spans_;  // [0] stands for none
  MetadataArray<Index> unused_;
  OffsetTable parts_;             // of slots that had a span: spans may lie far apart
  MetadataArray<Index> by_slot_;  // of these parts, in the order in which they came
  MetadataArray<Local> locals_;   // of every owner, one for each size class
  MetadataArray<Kept> kept_;      // of every owner
  MetadataArray<Thread> threads_;
  bool starved_ = false;
};

}  // namespace memoir
