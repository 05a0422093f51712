// SPDX-License-Identifier: Apache-2.0
//
// A malloc with size classes, as TCMalloc is one, that gives every free span back at once: the baseline of
// heaps that know lifetimes. The LLAMA paper reconstructs TCMalloc's use of 2 MiB pages in this way: what
// threads keep in caches and what waits to be given back is left out, so a real one needs more.
//
//   objects up to 32 KiB   in spans of their size class, those of all threads together
//   spans, larger objects  best fit by address, in steps of 8 KiB
//   pages                  of 8 KiB and up, with memory as long as a span touches them
#pragma once

#include <tuple>

#include "memoir/arena/address_range.h"
#include "memoir/arena/arena.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/live_objects.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/malloc/block_spans.h"
#include "memoir/heap/plain/span_heap.h"

namespace memoir {

struct SizeClassOptions {
  Size page = 8 * kKiB;
};

class SizeClassHeap final : public Heap, private BlockSpans::Pages {
 public:
  /// The arena is kept alive by the caller, and nobody else uses it. A page is a power of two from 8 KiB.
  explicit SizeClassHeap(Arena& arena, const SizeClassOptions& options = {}) noexcept;

  bool ok() const noexcept { return spans_.ok() && is_power_of_two(page_) && page_ >= size_classes::kSlot; }
  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override { return objects_.size_of(offset); }
  void trim() noexcept override;
  Size live() const noexcept override { return objects_.live(); }

 private:
  bool bring_back(Range) noexcept override { return true; }
  Offset place_block(size_t size_class) noexcept;
  Offset new_span(Size size, Size alignment) noexcept;
  void end_span(Range span) noexcept;
  bool use(Range span) noexcept;
  void disuse(Range span) noexcept;

  Arena* arena_;
  const Size page_;
  AddressRange addresses_;
  SpanHeap spans_;
  BlockSpans blocks_;
  LiveObjects<> objects_;
  OffsetTable users_;  // of pages that a span begins or ends in: how many spans touch them
};

}  // namespace memoir
