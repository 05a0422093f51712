// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "memoir/malloc/background.h"
#include "memoir/malloc/foresight.h"
#include "memoir/malloc/thread_heap.h"

namespace memoir::malloc_ {

RegionFigures figures_of_regions() noexcept {
  Central& all = central();
  RegionFigures found;
  const LockGuard guard(all.lock);
  for (size_t region = 0; region < all.heap.regions(); ++region) {
    if (!all.heap.region_used(region)) continue;
    const size_t first = region * LifetimeHeap::kSlots;
    for (size_t slot = first; slot < first + LifetimeHeap::kSlots;) {
      const Span* const span = span_at(slot);
      const HeapId owner = span->owner.load(std::memory_order_acquire);
      if (owner == kNobody) {  // no span begins here
        ++slot;
        continue;
      }
      // A span that was cut again since then may have any class.
      const size_t row = std::min<size_t>(span->row, kRows - 1), size_class = span->size_class;
      if (owner == kCentral) {
        found.live += span->slots * size_classes::kSlot;
      } else if (size_class < kClasses) {
        const std::uint16_t blocks = span->blocks, used = std::min(span->used(), blocks);
        found.live += used * size_classes::kTables.size[size_class];
        found.free_blocks[row][size_class] += static_cast<Size>(blocks - used);
      }
      slot += std::max<size_t>(span->slots, 1);
    }
  }
  return found;
}

size_t write_statistics(char* out, size_t room) noexcept {
  Central& all = central();
  LifetimeHeap::Figures heap;
  double touched = 1;
  {
    const LockGuard guard(all.lock);
    heap = all.heap.figures();
    touched = all.huge_pages.touched();
  }
  const Upkeep::Figures upkeep = upkeep_figures();
  const LifetimeLearner::Counts learned = all.sampler().counts();
  const auto mib = [](Size bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); };
  const auto seconds = [](Tick time) { return static_cast<double>(time) / 1e9; };
  const auto number = [](Size value) { return static_cast<unsigned long long>(value); };
  const Size short_samples = learned.samples - learned.long_samples;
  const double samples = learned.samples == 0 ? 1 : static_cast<double>(learned.samples);
  const int length = std::snprintf(
      out, room,
      "memoir: malloc: held %.1f MiB (short-lived %.1f, long-lived %.1f, large %.1f, large and free %.1f), "
      "resident %.1f,"
      " huge %.1f, gone inside spans %.1f\n"
      "memoir: malloc: allocated %.1f MiB, given back %.1f, huge pages restored %llu, spans borrowed %zu, "
      "touched %.2f, rounds %llu, of %.3f s, for huge pages %.3f\n"
      "memoir: malloc: lifetimes: %s, %llu samples, %.2f%% long-lived, precision %.2f, recall %.2f, "
      "%zu long-lived contexts\n"
      "memoir: malloc: as predicted: %.1f%% weighted by bytes, %.1f%% by contexts; short-lived %llu, and "
      "%llu "
      "called long-lived; long-lived %llu, and %llu called short-lived\n",
      mib(heap.used), mib(heap.used_by_class[0]), mib(heap.used_by_class[1]), mib(all.large.live()),
      mib(all.large.cached()), mib(heap.resident), mib(heap.huge), mib(heap.gone_in_spans),
      mib(all.allocated()), mib(upkeep.given_back), static_cast<unsigned long long>(upkeep.collapsed),
      heap.borrowed, touched, static_cast<unsigned long long>(upkeep.rounds), seconds(upkeep.cpu),
      seconds(all.huge_pages.extra()), all.sampler().split() ? "two classes" : "one class",
      static_cast<unsigned long long>(learned.samples),
      100 * static_cast<double>(learned.long_samples) / samples, learned.precision, learned.recall,
      all.sampler().long_contexts(), 100 * static_cast<double>(learned.right) / samples,
      100 * all.sampler().right_by_context(), number(learned.right - learned.long_right),
      number(short_samples - (learned.right - learned.long_right)), number(learned.long_right),
      number(learned.long_samples - learned.long_right));
  size_t written = length < 0 ? 0 : std::min(static_cast<size_t>(length), room - 1);
  if (const MemoryLimit::Figures limit = all.limit.figures(); limit.limit != MemoryLimit::kNone) {
    const int more = std::snprintf(out + written, room - written,
                                   "memoir: malloc: limit of memory %.1f MiB, of which %.1f were left; given "
                                   "back for it %.1f MiB\n",
                                   mib(limit.limit), mib(limit.left), mib(limit.given_back));
    if (more > 0) written = std::min(written + static_cast<size_t>(more), room - 1);
  }
  if (const char* const why = background_missing(); why != nullptr) {
    const int more =
        std::snprintf(out + written, room - written,
                      "memoir: malloc: there is no background thread (%s): the program's own threads "
                      "give memory back when they allocate\n",
                      why);
    if (more > 0) written = std::min(written + static_cast<size_t>(more), room - 1);
  }
  if (foresight().active()) {
    const Foreseen seen = foresight().figures();
    const int more =
        std::snprintf(out + written, room - written,
                      "memoir: malloc: model: %llu contexts known by address, %llu looked at, answered by "
                      "address %llu, names %llu, "
                      "near %llu, words %llu, network %llu, %llu called long-lived\n",
                      number(seen.known), number(seen.asked), number(seen.by_stage[0]),
                      number(seen.by_stage[1]), number(seen.by_stage[2]), number(seen.by_stage[3]),
                      number(seen.by_stage[4]), number(seen.long_lived));
    if (more > 0) written = std::min(written + static_cast<size_t>(more), room - 1);
  }
  return written;
}

}  // namespace memoir::malloc_
