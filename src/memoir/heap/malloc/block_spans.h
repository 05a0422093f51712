// SPDX-License-Identifier: Apache-2.0
//
// Blocks of size classes in spans, each of one owner (a thread and a row): the level above LifetimeHeap as
// memoir's malloc has it, without what makes that concurrent. malloc keeps its lists inside the blocks;
// here they are apart, since a heap never touches the memory that it manages.
//
//   current     its owner allocates from it: first what `free` lists, then what was freed meanwhile, then
//               pages that went, one by one, then blocks that were never handed out
//   full        in no list; offered again when 1/8 of it is free
//   available   free for its owner to make current. Empty, it ends, unless it is the last one in its list
//
// Not thread-safe.
#pragma once

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/lifetime/size_classes.h"

namespace memoir {

class BlockSpans {
 public:
  static constexpr Size kPage = 4 * kKiB;

  /// Who brings the memory of pages back that strip() gave away. False: there is none now.
  class Pages {
   public:
    virtual ~Pages() = default;
    virtual bool bring_back(Range page) noexcept = 0;
  };
  /// Kept alive by the caller.
  explicit BlockSpans(Pages& pages) noexcept : pages_(&pages) {}

  /// A block of the class. kNoOffset: the owner needs a span more, unless starved(). `owner`: a small number.
  Offset allocate(std::uint32_t owner, size_t size_class) noexcept;
  /// The last allocate() failed since pages of its span cannot be brought back: there is no memory.
  bool starved() const noexcept { return starved_; }
  /// An empty span at `begin`, of kTables.slots[size_class] slots. False when there is no metadata memory.
  bool add_span(std::uint32_t owner, size_t size_class, Offset begin) noexcept;

  /// Bytes of blocks in the span where the offset lies; 0: no span is there.
  Size block_size(Offset offset) const noexcept {
    const Span* const span = at(offset);
    return span == nullptr ? 0 : size_classes::kTables.size[span->size_class];
  }
  /// Takes a block back. The span's range when it ended by that, else an empty one.
  Range free(Offset block) noexcept;

  /// What is to be known of the span that begins in a slot.
  struct View {
    Range range;  // empty: no span begins here
    size_t used = 0, blocks = 0;
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
  void set_current_aside() noexcept;

  /// As end_if_empty() for every span; calls `body(range)` with those that end.
  template <class Body>
  void end_empty(Body body) noexcept {
    for (Index index = 1; index < spans_.size(); ++index) {
      const Span& span = spans_[index];
      if (span.state == State::kUnused || span.state == State::kCurrent || span.used != 0) continue;
      body(end(index));
    }
  }

 private:
  using Index = std::uint32_t;                     // of a span; 0 is none
  static constexpr size_t kMostBlocks = 512;       // of a span
  static constexpr size_t kPart = 256;             // slots, of which all have an entry or none
  static constexpr std::uint16_t kNever = 0xffff;  // no count of used blocks

  enum class State : std::uint8_t { kUnused, kCurrent, kFull, kAvailable };
  struct Span {
    Offset begin = 0;
    std::uint64_t gone = 0;  // pages; no listed block touches them
    Index next = 0, previous = 0;
    std::uint32_t local = 0;
    std::uint16_t free = 0, local_free = 0;  // first blocks of the lists, plus 1
    std::uint16_t used = 0, linked = 0, blocks = 0, notify = kNever, seen = 0;
    std::uint8_t size_class = 0;
    State state = State::kUnused;
    bool stripped = false;
    std::uint16_t link[kMostBlocks];
  };
  struct Local {
    Index current = 0, available = 0;
  };

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
  bool starved_ = false;
};

}  // namespace memoir
