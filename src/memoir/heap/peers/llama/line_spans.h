// SPDX-License-Identifier: Apache-2.0
//
// Small objects in spans of 16 KiB, two blocks of a page, in lines of 128 bytes: the local level of the heap
// that the LLAMA paper describes (3.5), after Immix.
//
//   span     | line 0 | line 1 | ...  128 lines; each counts the objects that touch it, the span all of them
//   cursor   -> objects are put one behind the other through a run of free lines; occupied lines are skipped
//
//   open     a thread allocates from it; a thread has two for each class: one to go through, and one that was
//            wholly free, for objects above a line that do not fit into the run
//   closed   wholly free: its blocks go back at once. Partly free: it waits
//   listed   closed, partly free, and its page is past its deadline: what lives there will stay, so it is
//            gone through again for objects of the page's class
//
// Not thread-safe.
#pragma once

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/peers/llama/llama_pages.h"

namespace memoir {

class LineSpans {
 public:
  static constexpr Size kSpan = 2 * LlamaPages::kBlock;
  static constexpr Size kLine = 128;
  static constexpr size_t kLines = kSpan / kLine;
  static constexpr Size kGrain = 16;  // sizes are rounded up to it
  static constexpr Size kLargest = LlamaPages::kBlock - kGrain;
  static constexpr Size kStrictest = 4 * kKiB;

  explicit LineSpans(LlamaPages& pages) noexcept : pages_(&pages) { listed_.fill(kNoSpan); }

  /// At a multiple of `alignment`, at most kStrictest, for an object of at most kLargest bytes. `thread`: any
  /// number. kNoOffset: no memory.
  Offset allocate(Size size, Size alignment, size_t lifetime, std::uint32_t thread) noexcept;
  /// The bytes that allocate() gave for that size. False when no span is there.
  bool free(Range object) noexcept;
  /// That page is past its deadline, and in the class it rose to.
  void list_spans(LlamaPages::PageIndex page) noexcept;
  /// Open spans without objects end.
  void trim() noexcept;

  Size spans() const noexcept { return spans_.size() - unused_.size(); }
  /// Objects that live in spans, by their counts. For tests.
  Size objects() const noexcept;

 private:
  using SpanIndex = std::uint32_t;
  static constexpr SpanIndex kNoSpan = ~SpanIndex{0};
  static constexpr std::uint32_t kMostThreads = 1024;  // threads beyond share the allocators of others

  enum class State : std::uint8_t { kUnused, kOpen, kClosed, kListed };
  struct Span {
    Offset begin = 0;
    std::uint16_t objects = 0;
    State state = State::kUnused;
    std::uint8_t lifetime = 0;  // listed: of which list
    SpanIndex next = kNoSpan, previous = kNoSpan;
    std::uint8_t line[kLines] = {};
  };
  /// Bytes [cursor, limit) of an open span have no object.
  struct Run {
    SpanIndex span = kNoSpan;
    Size cursor = 0, limit = 0;
  };
  struct Local {
    Run through, whole;
  };

  Offset bump(Run& run, Size size, Size alignment) noexcept;
  bool next_run(Run& run) noexcept;
  bool open_fresh(Run& run, size_t lifetime) noexcept;
  bool open_next(Run& run, size_t lifetime) noexcept;
  void close(Run& run) noexcept;
  void end(SpanIndex index) noexcept;
  void unlist(SpanIndex index) noexcept;
  Span* span_at(Offset offset) noexcept;

  LlamaPages* pages_;
  MetadataArray<Span> spans_;
  MetadataArray<SpanIndex> unused_;
  MetadataArray<std::uint32_t> by_block_;  // of every block: its span + 1, or 0
  MetadataArray<Local> locals_;            // of every thread, one for each class
  std::array<SpanIndex, LlamaPages::kClasses> listed_;
};

}  // namespace memoir
