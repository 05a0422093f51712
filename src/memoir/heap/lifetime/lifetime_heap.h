// SPDX-License-Identifier: Apache-2.0
//
// Where spans go, and which pages go back: the heap of memoir's malloc, above the threads' free lists.
//
//   arena    | region 0 | region 1 | region 2 | ...       a region is 2 MiB, the size of a huge page
//   region   | 256 slots of 8 KiB |                       spans are runs of slots inside one region
//
// A region holds spans of one lifetime class, so that the regions of short-lived objects empty as a whole
// when load falls. Spans go into the fullest region of their class that has room: the emptiest get a chance
// to drain. A class without room takes an empty region; before a region that never had memory gets some, it
// may borrow free slots, with memory under them, from a region of the other class.
//
//   page    resident, or gone (given back; reads as zero)
//   slot    used (in a span), free, or held (its pages are being given back: nobody gets it meanwhile)
//   A page inside a used span may be gone too, when no object of the span touches it.
//
// Like every heap it speaks in offsets, never touches the memory that it manages, is single-threaded and
// calls no malloc. The owner carries out what it decides: it gives pages back and asks for huge pages.
#pragma once

#include <array>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/lifetime/size_classes.h"
#include "memoir/heap/lifetime/slot_bits.h"
#include "memoir/predict/lifetime_class.h"

namespace memoir {

class LifetimeHeap {
 public:
  static constexpr Size kSlot = size_classes::kSlot;
  static constexpr Size kPage = 4 * kKiB;
  static constexpr Size kRegion = 2 * kMiB;
  static constexpr size_t kSlots = kRegion / kSlot;  // of a region

  /// The arena has `count` regions more, at the end of what it had, none of them with memory. `gap`: nor will
  /// they ever have any, since their addresses are somebody else's.
  bool add_regions(size_t count, bool gap = false) noexcept;
  /// Whether as many can be added: then add_regions() does not fail.
  bool make_room(size_t count) noexcept;
  /// A region without spans and memory, whose addresses may go back to the system: from now on nobody gets
  /// it. kNoOffset when there is none.
  Offset take_away() noexcept;
  /// One of those that were taken away; kNoOffset when there is none.
  Offset away() const noexcept;
  /// Its addresses are there again; or they are somebody else's.
  void came_back(Offset region, bool gap = false) noexcept;

  struct Placement {
    Offset offset = kNoOffset;
    bool zero = false;        // all its pages were gone: they read as zero
    bool new_region = false;  // the first span of a region without memory: ask for a huge page, if wanted
    explicit operator bool() const noexcept { return offset != kNoOffset; }
  };
  /// A span of `size` bytes, a multiple of kSlot and at most kRegion. No offset: add regions and ask again.
  /// `huge`: when it opens a region without memory, the owner asks for a huge page there.
  Placement allocate(Size size, LifetimeClass lifetime, bool huge) noexcept;
  /// Ends a span. False (and nothing changed) for what does not start at used slots of one region.
  bool free(Range span) noexcept;

  /// Pages of a used span that its owner gave back, or is about to touch again. Whole pages.
  void pages_gone(Range pages) noexcept;
  void pages_back(Range pages) noexcept;
  /// Which pages of a span, the first 64 of them, are gone: bit i for page i.
  std::uint64_t gone_pages(Range span) const noexcept;

  /// What to give back to the system.
  struct Release {
    Range range;
    bool breaks_huge = false;  // its region asked for huge pages and must not from now on
  };
  /// Free slots with memory, from the emptiest regions first, at least `bytes` of them where there are as
  /// many and `room` suffices. Regions fuller than `fullest` (a fraction) keep theirs. Nobody gets the slots
  /// until released() says how it went. Returns how many ranges were written. Regions that rest are left out;
  /// `everything`: those that had a refusal in this round
  /// or the one before.
  size_t take_releases(Release* out, size_t room, Size bytes, double fullest,
                       bool everything = false) noexcept;
  void released(Range range, bool gone) noexcept;

  /// A region of which the system takes nothing back (locked memory, a filter) rests, for twice as many
  /// rounds at each refusal, so that what is refused costs little for however long it lasts.
  void begin_round() noexcept { ++round_; }
  void refused(Offset offset) noexcept;
  bool rests(size_t region, bool everything) const noexcept {
    const Region& one = regions_[region];
    if (one.refusals == 0) return false;
    return round_ - one.refused_in < (everything ? 2 : std::uint32_t{1} << one.refusals);
  }

  /// A region that should become a huge page again: nearly all its slots are used, and at most `most_gone` of
  /// its pages (a fraction) are gone. kNoOffset when there is none. Nothing of it is given back until
  /// collapsed().
  Offset take_collapse(double fullest_first_above, double most_gone) noexcept;
  void collapsed(Offset region, bool done) noexcept;
  /// A region that may not keep huge pages any more, since pages inside its spans are given back. True when
  /// it had asked for them.
  bool break_huge(Offset region) noexcept;

  size_t regions() const noexcept { return regions_.size(); }
  bool region_used(size_t region) const noexcept { return regions_[region].used_count != 0; }
  bool slot_used(size_t slot) const noexcept {
    return slot / kSlots < regions_.size() && regions_[slot / kSlots].used.test(slot % kSlots);
  }
  double resident_share(size_t region) const noexcept;
  bool asks_for_huge(size_t region) const noexcept { return regions_[region].huge; }

  struct Figures {
    Size used = 0;           // bytes of slots in spans
    Size resident = 0;       // bytes of pages that are not gone
    Size free_resident = 0;  // bytes of free slots with memory
    Size gone_in_spans = 0;  // bytes of pages inside used spans that are gone
    Size huge = 0;           // bytes of regions that ask for huge pages and have all their pages
    Size used_by_class[kLifetimeClasses] = {};
    size_t borrowed = 0;  // spans placed in the other class's regions, ever
  };
  Figures figures() const noexcept { return figures_; }
  /// Recounts everything; false when a count or a list is wrong. For tests.
  bool consistent() const noexcept;

 private:
  using RegionIndex = std::uint32_t;
  static constexpr RegionIndex kNil = ~RegionIndex{0};
  static constexpr size_t kBins = 16;  // partly used regions by how full they are
  // Lists: the bins of each class, then empty regions with memory, without, and without addresses.
  static constexpr std::uint8_t kEmptyResident = kLifetimeClasses * kBins;
  static constexpr std::uint8_t kEmptyGone = kEmptyResident + 1;
  static constexpr std::uint8_t kAway = kEmptyGone + 1;
  static constexpr std::uint8_t kNoList = kAway + 1;

  struct Region {
    SlotBits used, held;
    SlotBits gone[2];  // the two pages of each slot
    std::uint16_t used_count = 0;
    std::uint16_t longest = kSlots;  // no run of free slots is longer
    LifetimeClass lifetime = LifetimeClass::kShort;
    std::uint8_t list = kNoList;
    bool had_memory = false;       // was taken once
    bool huge = false;             // asks for huge pages
    bool collapsing = false;       // nothing is given back meanwhile
    std::uint8_t refused = 0;      // collapses that the system refused lately
    std::uint8_t refusals = 0;     // to take pages back
    std::uint32_t refused_in = 0;  // the round of the last one
    bool away = false;             // its addresses went back
    bool gap = false;              // they are somebody else's
    RegionIndex next = kNil, previous = kNil;
  };

  Placement place(RegionIndex index, size_t slots, size_t at) noexcept;
  Placement place_in(LifetimeClass lifetime, size_t slots, bool resident_only) noexcept;
  static size_t find(Region& region, size_t slots, bool resident_only) noexcept;
  void set_gone(Region& region, int page, const SlotBits& slots, bool gone) noexcept;
  void for_pages(Range pages, bool gone) noexcept;
  std::uint8_t list_for(const Region& region) const noexcept;
  void relink(RegionIndex index) noexcept;
  void unlink(Region& region) noexcept;
  void link(RegionIndex index, std::uint8_t list) noexcept;
  void count(const Region& region, int sign) noexcept;

  MetadataArray<Region> regions_;
  std::array<RegionIndex, kNoList> lists_ = [] {
    std::array<RegionIndex, kNoList> none{};
    none.fill(kNil);
    return none;
  }();
  RegionIndex collapse_at_ = 0;
  std::uint32_t round_ = 0;
  Figures figures_;
};

}  // namespace memoir
