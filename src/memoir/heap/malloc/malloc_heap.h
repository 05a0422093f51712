// SPDX-License-Identifier: Apache-2.0
//
// memoir's malloc as a heap like every other, for simulations: both of its levels (block_spans.h over
// lifetime_heap.h), what threads keep, large blocks, the learner and the background. What the malloc decides
// by is shared (span_rules.h, kept_blocks.h, upkeep_rules.h, sample_pace.h); written again is how blocks are
// listed, since a heap never touches its memory. tests/malloc/replay.cpp runs recorded programs under both.
//
//   size        up to 32 KiB          up to 512 KiB       larger, or aligned above 8 KiB
//   goes to     a span's block        a span of its own   pages of its own
//   row         learned of its site; or what the request says (0: short-lived, else long-lived)
//
// docs/concepts/simulation.md says what is not modelled.
#pragma once

#include "memoir/arena/address_range.h"
#include "memoir/arena/arena.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/live_objects.h"
#include "memoir/heap/lifetime/kept_blocks.h"
#include "memoir/heap/lifetime/lifetime_heap.h"
#include "memoir/heap/lifetime/lifetime_options.h"
#include "memoir/heap/lifetime/upkeep_rules.h"
#include "memoir/heap/malloc/block_spans.h"
#include "memoir/heap/plain/span_heap.h"
#include "memoir/predict/lifetime_learner.h"
#include "memoir/predict/sample_pace.h"

namespace memoir {

class MallocHeap final : public Heap, private BlockSpans::Pages {
 public:
  /// The arena is kept alive by the caller, and nobody else uses it. Its granule is a page, 4 KiB at most.
  explicit MallocHeap(Arena& arena, const LifetimeOptions& options = {}) noexcept;

  bool ok() const noexcept { return large_.ok() && arena_->granule() <= LifetimeHeap::kPage; }
  Offset allocate(const Request& request) noexcept override;
  /// As on the thread that allocated it.
  bool free(Offset offset) noexcept override { return free_on(kOwn, offset); }
  bool free_on(std::uint32_t thread, Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override { return objects_.size_of(offset); }
  void trim() noexcept override;
  /// A round of the background, ten times a second.
  Tick tick(Tick now) noexcept override;
  Size live() const noexcept override { return objects_.live(); }

  /// Bytes that the heap holds for objects: its spans, large blocks, and those that it keeps.
  Size held() const noexcept { return heap_.figures().used + large_live_ + kept_.bytes(); }
  const LifetimeHeap& regions() const noexcept { return heap_; }
  LifetimeLearner::Counts learned() const noexcept { return learner_.counts(); }
  bool split() const noexcept { return learner_.table().split(); }

 private:
  struct Note {
    LifetimeLearner::Sample sample = LifetimeLearner::kNoSample;
    std::uint32_t place = 0;  // of a block with a span of its own: Single; of a large block: in larges_
    Size born_at = 0;
  };
  /// A span of one block, in a Note.
  struct Single {
    std::uint32_t slots, row, thread;
    std::uint32_t packed() const noexcept { return slots | row << 8 | thread << 16; }
    static Single of(std::uint32_t place) noexcept { return {place & 255, place >> 8 & 255, place >> 16}; }
  };
  /// What the malloc's ThreadHeap has, but for its blocks.
  struct Thread {
    // Bytes until the slow path; what they were at first; those that allocated_ does not have yet.
    Size credit = 0, granted = 0, uncounted = 0;
    SampleCountdown sample;
    std::uint32_t counts = 0;
    std::uint32_t seen_calls = 0, rests = 0;
    // Kept spans of one block: a bit for each length - 1, and the first of each list in singles_.
    std::uint32_t single_slots = 0, most_single_slots = 0;
    std::uint64_t lengths[kLifetimeClasses] = {};
    std::uint32_t first[kLifetimeClasses][span_rules::kMostSingleSlots + 1] = {};
  };
  struct KeptSingle {
    Offset offset = 0;
    std::uint32_t next = 0;
  };
  static constexpr std::uint32_t kNobody = 0;               // owner of the samples' spans
  static constexpr std::uint32_t kOwn = ~std::uint32_t{0};  // no thread's number: who allocated frees
  static constexpr std::uint32_t kMostThreads = 1024;

  bool find_thread(std::uint32_t thread, std::uint32_t& number) noexcept;
  Offset place_block(const Request& request, std::uint32_t number, ContextKey key, bool told,
                     Note& note) noexcept;
  Offset place_single(Size size, size_t row, std::uint32_t thread, ContextKey key, bool told,
                      Note& note) noexcept;
  Offset place_large(Size size, Size alignment, Note& note) noexcept;
  void free_large(std::uint32_t place) noexcept;
  bool prepare(std::uint32_t owner, size_t size_class, LifetimeClass lifetime) noexcept;
  Offset new_span(Size size, LifetimeClass lifetime) noexcept;
  void end_span(Range span) noexcept;
  bool bring_back(Range page) noexcept override;
  void ended(Range span) noexcept override { end_span(span); }
  Size most_kept() const noexcept override { return span_rules::most_kept(held(), threads_.size()); }

  bool keep_single(Offset offset, Single single) noexcept;
  Offset take_single(Thread& thread, size_t row, size_t length) noexcept;
  LargeBlock map(Size size, Size alignment) noexcept;
  void unmap(const LargeBlock& block) noexcept;
  LargeBlock compose(Size size, Size alignment, bool huge) noexcept;
  void purge(unsigned age) noexcept;

  bool spend(Thread& thread, Size bytes) noexcept;
  bool count(Thread& thread, Size bytes) noexcept;
  void grown() noexcept;
  void sampled(ContextKey key, Note& note) noexcept;

  void run(bool everything) noexcept;
  void look_at_threads(bool everything) noexcept;
  void give_back(std::uint32_t thread) noexcept;
  void end_kept(std::uint32_t thread) noexcept;
  Size look_at_spans(bool everything) noexcept;
  void strip_candidates() noexcept;
  void give_back_slots(bool everything) noexcept;
  void restore_huge_pages() noexcept;

  Arena* arena_;
  const LifetimeOptions options_;
  const Size most_regions_;
  LifetimeHeap heap_;
  BlockSpans spans_;
  AddressRange addresses_;  // of the arena; the first part is the regions'
  SpanHeap large_;
  KeptBlocks kept_{true};
  MetadataArray<LargeBlock> larges_;  // live ones; of others `range` is the next that is none
  std::uint32_t no_large_ = 0;        // the first of these, plus 1
  LiveObjects<Note> objects_;
  Size large_live_ = 0, single_live_ = 0;  // bytes of pages; of slots
  LifetimeLearner learner_;
  SamplePace pace_;
  Size allocated_ = 0;             // bytes, ever, as far as threads have told
  MetadataArray<Thread> threads_;  // in the order in which they came
  MetadataArray<std::uint32_t>
      numbers_;                        // by the number that requests have for a thread: in threads_, plus 1
  MetadataArray<KeptSingle> singles_;  // [0] stands for none
  std::uint32_t unused_single_ = 0;
  unsigned opened_ = 0;  // regions that could be huge
  UpkeepRules rules_;
  Size rounds_ = 0;
  Tick next_round_ = 0, now_ = 0;
  bool told_ = false;  // the last request said its lifetime
  /// A span to be stripped.
  struct Candidate {
    std::uint32_t heap = 0;  // its thread's, plus 1; 0: the samples'
    std::uint32_t slot = 0;
    std::uint64_t pages = 0;
  };
  MetadataArray<Candidate> candidates_;
};

}  // namespace memoir
