// SPDX-License-Identifier: Apache-2.0
//
// A recorded plan made ready to be followed at speed: built once, immutable from then on, shared by every
// heap that follows it. What nobody follows any more can be built again for another plan, in the memory it
// has.
//
// The one question that must be cheap and exact is "is this planned range free now?". The begins and ends of
// all planned ranges cut the arena into cells; each range is a run of whole cells, so a bit per cell answers
// it:
//
//   offset  0        64       128            256
//           |   a    |        |              |       a = cells [0, 1)
//           |        b        |              |       b = cells [0, 2)
//                    |           c           |       c = cells [1, 3)
//   cell    0        1           2               live bits 0b001: a is live, so b is not free and c is
#pragma once

#include <span>

#include "memoir/base/metadata.h"
#include "memoir/plan/recorded_plan.h"

namespace memoir {

/// Which requests an entry is for.
enum class PlannedFit : std::uint8_t {
  kExact,
  kSmallerToo,  // of at least half of its size too: the sizes of the plan were guessed, rather too large
};

class PlannedLayout {
 public:
  /// One recorded allocation. `offset` is kNoOffset when it was left out of the plan (it escaped its pass).
  struct Entry {
    Size size = 0;
    SiteId site = kNoSite;
    Offset offset = kNoOffset;
    std::uint32_t alignment_log2 = 0;
    std::uint32_t start = 0;       // which of the starts() this range begins at
    std::uint32_t first_cell = 0;  // its range is cells [first_cell, end_cell)
    std::uint32_t end_cell = 0;
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// Takes a plan that passes check(). ok() is false when it does not fit: no metadata memory, 2^31
  /// allocations or more, a range outside the arena, an alignment that is not a power of two.
  /// `takes_guests`: what the plan has no place for may be served from its free room (PlannedHeap).
  explicit PlannedLayout(const RecordedPlan& plan, PlannedFit fit = PlannedFit::kExact,
                         bool takes_guests = false) noexcept;

  /// The same for another plan. No heap follows this one.
  void build_again(const RecordedPlan& plan, PlannedFit fit, bool takes_guests) noexcept;

  bool ok() const noexcept { return ok_; }
  std::span<const Entry> entries() const noexcept { return {entries_.data(), entries_.size()}; }
  PlannedFit fit() const noexcept { return fit_; }
  bool takes_guests() const noexcept { return takes_guests_; }
  Size arena_size() const noexcept { return arena_size_; }
  size_t cells() const noexcept { return cells_; }
  size_t starts() const noexcept { return start_offsets_.size(); }

  /// The start at exactly this offset, or kNone.
  std::uint32_t start_at(Offset offset) const noexcept {
    if (lookup_.empty()) return kNone;
    for (size_t at = slot_of(offset);; at = (at + 1) & (lookup_.size() - 1)) {
      const std::uint32_t start = lookup_[at];
      if (start == kNone || start_offsets_[start] == offset) return start;
    }
  }

  /// True when an allocation of that site was left out of the plan.
  bool escapes(SiteId site) const noexcept;

  /// The recorded allocations of one site and size, as indices of entries() in order of time.
  std::span<const std::uint32_t> occurrences(SiteId site, Size size) const noexcept;

 private:
  size_t slot_of(Offset offset) const noexcept {
    return static_cast<size_t>((offset * 0x9e3779b97f4a7c15ull) >> lookup_shift_);
  }
  bool build(const RecordedPlan& plan) noexcept;
  bool index_starts() noexcept;

  MetadataArray<Offset> cuts_;  // of use while it is built
  MetadataArray<Entry> entries_;
  MetadataArray<std::uint32_t> by_site_;  // indices of entries_, sorted by (site, size, index)
  MetadataArray<Offset> start_offsets_;   // every offset at which a range begins, ascending
  // open addressing: offset -> index of start_offsets_; at most half full
  MetadataArray<std::uint32_t> lookup_;
  int lookup_shift_ = 63;
  size_t cells_ = 0;
  Size arena_size_ = 0;
  PlannedFit fit_;
  bool takes_guests_ = false;
  bool ok_ = false;
};

}  // namespace memoir
