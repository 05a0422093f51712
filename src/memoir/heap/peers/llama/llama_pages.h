// SPDX-License-Identifier: Apache-2.0
//
// Pages of 2 MiB in blocks of 8 KiB, a lifetime class for each page: the global level of the heap that the
// LLAMA paper describes (3.2 to 3.4).
//
//   free ---- a class needs a page ----> open ---- filled once ----> active ---- empty ----> free
//
//   open     one for each class; takes only blocks of that class. They are residual: expected to match it
//   active   its free blocks are for shorter classes, the longest page first; those blocks are not residual
//            no residual block left: all that lives there is shorter. It drops by a class, and all its blocks
//            become residual
//            past its deadline: it is longer-lived than it was thought to be, and rises by a class
//   free     has no memory
//
// The bits of a page:  live  11111100 11110000      an open page is filled from its first block to its last;
//                  residual  11111100 00000000      what became free meanwhile is filled once it is active
//
// Like every heap it speaks in offsets and never touches the memory. Not thread-safe.
#pragma once

#include <array>

#include "memoir/arena/arena.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/lifetime/slot_bits.h"
#include "memoir/heap/peers/llama/llama_options.h"
#include "memoir/predict/wall_classes.h"

namespace memoir {

class LlamaPages {
 public:
  static constexpr Size kBlock = 8 * kKiB;
  static constexpr Size kPage = 2 * kMiB;
  static constexpr size_t kBlocks = SlotBits::kBits;  // of a page
  static constexpr size_t kClasses = WallClasses::kCount;
  using PageIndex = std::uint32_t;
  static constexpr PageIndex kNoPage = ~PageIndex{0};

  /// The arena is kept alive by the caller, and nobody else uses it.
  LlamaPages(Arena& arena, const LlamaOptions& options) noexcept;

  /// `size` bytes in contiguous blocks, at a multiple of `alignment`, for objects of that class; both are
  /// multiples of kBlock. kNoOffset: no memory, and nothing changed.
  Offset allocate(Size size, Size alignment, size_t lifetime) noexcept;
  /// Blocks that allocate() gave at once.
  void free(Range blocks) noexcept;

  /// `now`: nanoseconds, never going back.
  void set_time(Tick now) noexcept { now_ = now; }
  /// A page whose deadline has passed rises by one class, and gets a new deadline. kNoPage: there is none.
  PageIndex expire_one() noexcept;

  struct PageView {
    bool used = false, open = false;
    size_t lifetime = 0;  // its class
    SlotBits live, residual;
    Tick deadline = 0;
  };
  /// Of a page that was used before, by its number: the offset divided by kPage.
  PageView page(PageIndex index) const noexcept;
  size_t pages() const noexcept { return pages_.size(); }

  struct Figures {
    Size pages = 0;    // open or active
    Size dropped = 0;  // reclassified downwards, ever
    Size risen = 0;    // upwards, ever
    Size holes = 0;    // bytes placed in pages of longer classes, ever
  };
  Figures figures() const noexcept { return figures_; }
  /// Recounts everything; false when a bit, a list or a state contradicts another. For tests.
  bool consistent() const noexcept;

 private:
  enum class State : std::uint8_t { kFree, kOpen, kActive };
  struct Page {
    SlotBits live, residual;
    std::uint16_t longest = 0;  // active: no run of free blocks is longer
    std::uint16_t filled = 0;   // open: blocks from here on were never handed out
    State state = State::kFree;
    std::uint8_t lifetime = 0;
    Tick deadline = 0;
    PageIndex next = kNoPage, previous = kNoPage;  // active: of its class, by deadline
  };
  struct List {
    PageIndex first = kNoPage, last = kNoPage;
  };

  Offset place_in_hole(size_t blocks, size_t alignment, size_t lifetime) noexcept;
  Offset place_in_open(size_t blocks, size_t alignment, size_t lifetime) noexcept;
  Offset place_in_pages(Size size, Size alignment, size_t lifetime) noexcept;
  Offset mark(PageIndex index, size_t at, size_t blocks, bool residual) noexcept;
  PageIndex find_free(size_t count, size_t alignment) const noexcept;
  bool commit(PageIndex index, size_t count, size_t lifetime) noexcept;
  void activate(PageIndex index) noexcept;
  void freed_in(PageIndex index, const SlotBits& blocks) noexcept;
  void end(PageIndex index) noexcept;
  void link(PageIndex index, size_t lifetime) noexcept;
  void unlink(PageIndex index) noexcept;
  static size_t first_run(const SlotBits& free, size_t blocks, size_t alignment) noexcept;

  Arena* arena_;
  WallClasses classes_;
  double deadline_;
  Tick now_ = 0;
  MetadataArray<Page> pages_;
  std::array<List, kClasses> active_;
  std::array<PageIndex, kClasses> open_;
  PageIndex lowest_free_ = 0;  // no page before it is free
  Figures figures_;
};

}  // namespace memoir
