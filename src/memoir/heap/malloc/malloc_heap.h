// SPDX-License-Identifier: Apache-2.0
//
// memoir's malloc as a heap like every other: both of its levels (block_spans.h over lifetime_heap.h), its
// learner and its background, for simulations. malloc has the same levels with what makes them
// concurrent and fast.
//
//   size        up to 32 KiB          up to 512 KiB       larger, or aligned above 8 KiB
//   goes to     a span's block        a span of its own   pages of its own
//   row         learned of its site; or what the request says (0: short-lived, else long-lived)
//
// Two things of the malloc are not here: the cache of freed large blocks, which are gone at once, and frees
// that wait for their owner, since a free reaches this heap at its event.
#pragma once

#include "memoir/arena/address_range.h"
#include "memoir/arena/arena.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/live_objects.h"
#include "memoir/heap/lifetime/lifetime_heap.h"
#include "memoir/heap/lifetime/lifetime_options.h"
#include "memoir/heap/lifetime/upkeep_rules.h"
#include "memoir/heap/malloc/block_spans.h"
#include "memoir/heap/plain/span_heap.h"
#include "memoir/predict/lifetime_learner.h"

namespace memoir {

class MallocHeap final : public Heap, private BlockSpans::Pages {
 public:
  /// The arena is kept alive by the caller, and nobody else uses it. Its granule is a page, 4 KiB at most.
  explicit MallocHeap(Arena& arena, const LifetimeOptions& options = {}) noexcept;

  bool ok() const noexcept { return large_.ok() && arena_->granule() <= LifetimeHeap::kPage; }
  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override { return objects_.size_of(offset); }
  void trim() noexcept override;
  /// A round of the background, ten times a second.
  Tick tick(Tick now) noexcept override;
  Size live() const noexcept override { return objects_.live(); }

  const LifetimeHeap& regions() const noexcept { return heap_; }
  LifetimeLearner::Counts learned() const noexcept { return learner_.counts(); }
  bool split() const noexcept { return learner_.table().split(); }

 private:
  struct Note {
    LifetimeLearner::Sample sample = LifetimeLearner::kNoSample;
    Size born_at = 0;
  };
  static constexpr Size kLargestSpan = 512 * kKiB;
  static constexpr std::uint32_t kSamples = 0;  // owner of the samples' spans
  static constexpr std::uint32_t kMostThreads = 1024;

  Offset place(const Request& request, size_t row, bool sampled) noexcept;
  Offset place_block(size_t size_class, std::uint32_t owner, LifetimeClass lifetime) noexcept;
  Offset new_span(Size size, LifetimeClass lifetime) noexcept;
  void end_span(Range span) noexcept;
  bool bring_back(Range page) noexcept override;

  bool sample_is_due(Size bytes) noexcept;
  Size held() const noexcept { return heap_.figures().used + large_live_; }

  void run(bool everything) noexcept;
  Size look_at_spans(bool everything) noexcept;
  void strip(size_t slot) noexcept;
  void give_back_slots(bool everything) noexcept;
  void restore_huge_pages() noexcept;

  Arena* arena_;
  const LifetimeOptions options_;
  const Size most_regions_;
  LifetimeHeap heap_;
  BlockSpans spans_;
  AddressRange addresses_;  // of the arena; the first part is the regions'
  SpanHeap large_;
  LiveObjects<Note> objects_;
  Size large_live_ = 0;  // bytes of pages
  LifetimeLearner learner_;
  Size allocated_ = 0;  // bytes, ever
  Size until_sample_ = 0;
  std::uint64_t random_ = 0x9e3779b97f4a7c15ull;
  UpkeepRules rules_;
  Size rounds_ = 0;
  Tick next_round_ = 0;
  MetadataArray<std::uint32_t> candidates_;  // slots of spans to be stripped
};

}  // namespace memoir
