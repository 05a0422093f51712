// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/live_figures.h"

#include <cstdio>

#include "memoir/malloc/background.h"
#include "memoir/malloc/central.h"
#include "memoir/malloc/foresight.h"

#define MEMOIR_EXPORT __attribute__((visibility("default"), used))

extern "C" {
extern memoir::malloc_::SiteFigures memoir_malloc_sites;  // live_samples.cc
MEMOIR_EXPORT constinit memoir::malloc_::LiveFigures memoir_malloc_figures{};
MEMOIR_EXPORT constinit char memoir_malloc_figure_names[2048] = "";
}

namespace memoir::malloc_ {

namespace {

class Writer {
 public:
  explicit Writer(bool names) noexcept : names_(names) {}
  void add(const char* name, Size value) noexcept { add(name, Size{0}, value); }
  /// A name with a number behind it.
  void add(const char* name, Size suffix, Size value) noexcept {
    if (count_ == LiveFigures::kMost) return;
    memoir_malloc_figures.number[count_++].store(value, std::memory_order_relaxed);
    if (!names_) return;
    char digits[24] = "";
    if (suffix != 0) std::snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(suffix));
    const int written = std::snprintf(memoir_malloc_figure_names + length_,
                                      sizeof memoir_malloc_figure_names - length_, "%s%s ", name, digits);
    if (written > 0) length_ += static_cast<size_t>(written);
  }
  size_t count() const noexcept { return count_; }

 private:
  bool names_;
  size_t count_ = 0, length_ = 0;
};

}  // namespace

namespace {
constexpr Size kRoundsOfSites = 10;  // sites cost a walk over all samples
}

void publish_figures(const Upkeep::Figures& upkeep, const LiveBySize& by_size) noexcept {
  Central& all = central();
  LifetimeHeap::Figures heap;
  {
    const LockGuard guard(all.lock);
    heap = all.heap.figures();
  }
  LifetimeLearner::Counts learned;
  size_t contexts = 0;
  if (all.sampler().active()) {
    learned = all.sampler().counts();
    contexts = all.sampler().long_contexts();
  }
  if (all.sampler().active() && upkeep.rounds % kRoundsOfSites == 0)
    all.live_samples.publish(memoir_malloc_sites, all.allocated(), all.sampler().horizon());
  LiveFigures& out = memoir_malloc_figures;
  const std::uint64_t before = out.changes.load(std::memory_order_relaxed);
  out.changes.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  Writer writer(out.count == 0);
  const Size large = all.large.live(), cached = all.large.cached();
  writer.add("live", upkeep.live + large);
  writer.add("held", heap.used + large);
  writer.add("resident", heap.resident + large + cached);
  writer.add("huge", heap.huge);
  writer.add("returned", upkeep.given_back);
  writer.add("allocated", all.allocated());
  writer.add("restored", upkeep.collapsed);
  writer.add("rounds", upkeep.rounds);
  writer.add("short_lived", heap.used_by_class[0]);
  writer.add("long_lived", heap.used_by_class[1]);
  writer.add("borrowed", heap.borrowed);
  writer.add("free_resident", heap.free_resident);
  writer.add("gone_in_spans", heap.gone_in_spans);
  writer.add("large", large);
  writer.add("large_cached", cached);
  const MemoryLimit::Figures limit = all.limit.figures();
  const bool limited = limit.limit != MemoryLimit::kNone;
  writer.add("limit", limited ? limit.limit : 0);
  writer.add("limit_left", limited ? limit.left : 0);
  writer.add("limit_returned", limit.given_back);
  writer.add("two_classes", all.sampler().split());
  writer.add("long_contexts", contexts);
  writer.add("samples", learned.samples);
  writer.add("long_samples", learned.long_samples);
  writer.add("mispredicted", learned.samples - learned.right);
  writer.add("long_called_short", learned.long_samples - learned.long_right);
  writer.add("foreseen", foresight().figures().all());
  for (size_t i = 0; i < size_classes::kCount; ++i)
    writer.add("size_", size_classes::kTables.size[i], by_size.bytes[i]);
  writer.add("size_larger", by_size.bytes[size_classes::kCount]);
  out.count = writer.count();
  out.changes.store(before + 2, std::memory_order_release);
}

}  // namespace memoir::malloc_
