// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/lifetime/lifetime_heap.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr size_t kMostTried = 32;  // regions of one bin whose free slots are looked at for a long run
}

bool LifetimeHeap::make_room(size_t count) noexcept {
  return regions_.size() + count < kNil && regions_.reserve(regions_.size() + count);
}

bool LifetimeHeap::add_regions(size_t count, bool gap) noexcept {
  if (!make_room(count)) return false;
  for (size_t i = 0; i < count; ++i) {
    Region region;
    region.gone[0] = region.gone[1] = SlotBits::run(0, kSlots);
    region.gap = gap;
    regions_.push_back(region);
  }
  // The lowest is taken first.
  for (size_t i = count; i-- > 0;) {
    const auto index = static_cast<RegionIndex>(regions_.size() - count + i);
    this->count(regions_[index], +1);
    relink(index);
  }
  return true;
}

Offset LifetimeHeap::take_away() noexcept {
  const RegionIndex index = lists_[kEmptyGone];
  if (index == kNil) return kNoOffset;
  regions_[index].away = true;
  regions_[index].huge = false;  // what the system was asked for there is forgotten
  relink(index);
  return index * kRegion;
}

Offset LifetimeHeap::away() const noexcept {
  return lists_[kAway] == kNil ? kNoOffset : lists_[kAway] * kRegion;
}

void LifetimeHeap::came_back(Offset offset, bool gap) noexcept {
  const auto index = static_cast<RegionIndex>(offset / kRegion);
  regions_[index].away = false;
  regions_[index].gap = gap;
  relink(index);
}

LifetimeHeap::Placement LifetimeHeap::allocate(Size size, LifetimeClass lifetime, bool huge) noexcept {
  const size_t slots = size / kSlot;
  if (size == 0 || size % kSlot != 0 || size > kRegion || regions_.empty()) return {};
  if (const Placement own = place_in(lifetime, slots, false)) return own;
  if (const RegionIndex empty = lists_[kEmptyResident]; empty != kNil) {
    regions_[empty].lifetime = lifetime;
    return place(empty, slots, 0);
  }
  // A region that had memory before costs no more than the heap has cost already. One that never had makes it
  // larger: first the other class's free slots are borrowed. Short-lived spans will be gone soon; long-lived
  // ones keep a region of short-lived spans from becoming empty, so they go there only when much of the heap
  // lies idle.
  const RegionIndex fresh = lists_[kEmptyGone];
  const bool grows = fresh == kNil || !regions_[fresh].had_memory;
  const bool much_idle = figures_.free_resident > figures_.used / 8;
  if (grows && (lifetime == LifetimeClass::kShort || much_idle || fresh == kNil)) {
    const auto other = lifetime == LifetimeClass::kShort ? LifetimeClass::kLong : LifetimeClass::kShort;
    if (const Placement borrowed = place_in(other, slots, true)) {
      ++figures_.borrowed;
      return borrowed;
    }
  }
  if (fresh == kNil) return {};
  Region& region = regions_[fresh];
  region.lifetime = lifetime;
  region.had_memory = true;
  if (huge) {
    // The first touch brings the whole page.
    count(region, -1);
    region.huge = true;
    region.gone[0] = region.gone[1] = {};
    count(region, +1);
  }
  Placement placement = place(fresh, slots, 0);
  placement.new_region = true;
  placement.zero = true;
  return placement;
}

LifetimeHeap::Placement LifetimeHeap::place_in(LifetimeClass lifetime, size_t slots,
                                               bool resident_only) noexcept {
  const size_t first = static_cast<size_t>(lifetime) * kBins;
  for (size_t bin = kBins; bin-- > 0;) {
    size_t tried = 0;
    for (RegionIndex index = lists_[first + bin]; index != kNil && tried < kMostTried; ++tried) {
      Region& region = regions_[index];
      const RegionIndex next = region.next;
      if (region.longest >= slots) {
        if (const size_t at = find(region, slots, resident_only); at != SlotBits::kNone)
          return place(index, slots, at);
      }
      index = next;
    }
  }
  return {};
}

size_t LifetimeHeap::find(Region& region, size_t slots, bool resident_only) noexcept {
  const SlotBits free = ~(region.used | region.held);
  const size_t resident = (free & ~(region.gone[0] | region.gone[1])).first_run(slots);
  if (resident != SlotBits::kNone || resident_only) return resident;
  const size_t any = free.first_run(slots);
  if (any == SlotBits::kNone && !region.held.any()) region.longest = static_cast<std::uint16_t>(slots - 1);
  return any;
}

LifetimeHeap::Placement LifetimeHeap::place(RegionIndex index, size_t slots, size_t at) noexcept {
  Region& region = regions_[index];
  const SlotBits run = SlotBits::run(at, slots);
  Placement placement;
  placement.offset = index * kRegion + at * kSlot;
  placement.zero = (region.gone[0] & run) == run && (region.gone[1] & run) == run;
  if (((region.gone[0] | region.gone[1]) & run).any()) {
    count(region, -1);
    region.gone[0] = region.gone[0] & ~run;
    region.gone[1] = region.gone[1] & ~run;
    count(region, +1);
  }
  // Now all of the run is there, and this is what a count of the region before and after comes to.
  figures_.used += slots * kSlot;
  figures_.used_by_class[static_cast<size_t>(region.lifetime)] += slots * kSlot;
  figures_.free_resident -= slots * kSlot;
  region.used = region.used | run;
  region.used_count = static_cast<std::uint16_t>(region.used_count + slots);
  relink(index);
  return placement;
}

bool LifetimeHeap::free(Range span) noexcept {
  const Offset begin = span.begin / kRegion;
  if (span.size == 0 || span.begin % kSlot != 0 || span.size % kSlot != 0 || begin >= regions_.size() ||
      (span.end() - 1) / kRegion != begin)
    return false;
  Region& region = regions_[begin];
  const SlotBits run = SlotBits::run(span.begin % kRegion / kSlot, span.size / kSlot);
  if ((region.used & run) != run) return false;
  const SlotBits gone = (region.gone[0] | region.gone[1]) & run;
  if (gone.any()) count(region, -1);
  region.used = region.used & ~run;
  region.used_count = static_cast<std::uint16_t>(region.used_count - span.size / kSlot);
  region.longest = kSlots;
  if (gone.any()) {
    count(region, +1);
  } else {  // the same, in short
    figures_.used -= span.size;
    figures_.used_by_class[static_cast<size_t>(region.lifetime)] -= span.size;
    figures_.free_resident += span.size;
  }
  relink(static_cast<RegionIndex>(begin));
  return true;
}

void LifetimeHeap::pages_gone(Range pages) noexcept { for_pages(pages, true); }
void LifetimeHeap::pages_back(Range pages) noexcept { for_pages(pages, false); }

std::uint64_t LifetimeHeap::gone_pages(Range span) const noexcept {
  const Region& region = regions_[span.begin / kRegion];
  std::uint64_t pages = 0;
  for (Size page = 0; page < 64 && page < span.size / kPage; ++page) {
    if (region.gone[page % 2].test(span.begin % kRegion / kSlot + page / 2))
      pages |= std::uint64_t{1} << page;
  }
  return pages;
}

void LifetimeHeap::for_pages(Range pages, bool gone) noexcept {
  const size_t index = pages.begin / kRegion;
  if (pages.size == 0 || index >= regions_.size() || (pages.end() - 1) / kRegion != index) return;
  Region& region = regions_[index];
  count(region, -1);
  for (Offset at = pages.begin % kRegion; at < pages.begin % kRegion + pages.size; at += kPage)
    set_gone(region, at / kPage % 2, SlotBits::run(at / kSlot, 1), gone);
  count(region, +1);
  if (region.used_count == 0) relink(static_cast<RegionIndex>(index));
}

void LifetimeHeap::set_gone(Region& region, int page, const SlotBits& slots, bool gone) noexcept {
  region.gone[page] = gone ? region.gone[page] | slots : region.gone[page] & ~slots;
}

size_t LifetimeHeap::take_releases(Release* out, size_t room, Size bytes, double fullest,
                                   bool everything) noexcept {
  size_t written = 0;
  Size taken = 0;
  const auto take = [&](RegionIndex index) {
    Region& region = regions_[index];
    if (region.collapsing || rests(index, everything)) return;
    SlotBits rest = ~(region.used | region.held) & ~(region.gone[0] & region.gone[1]);
    if (!rest.any()) return;
    count(region, -1);
    const bool partly = region.used_count != 0;
    while (written < room && rest.any()) {
      const size_t begin = rest.first(), length = rest.run_length(begin);
      const SlotBits run = SlotBits::run(begin, length);
      rest = rest & ~run;
      region.held = region.held | run;
      out[written++] = {{index * kRegion + begin * kSlot, length * kSlot}, partly && region.huge};
      if (partly) region.huge = false;
      taken += length * kSlot;
    }
    count(region, +1);
    if (!partly) relink(index);
  };
  const auto take_list = [&](std::uint8_t list) {
    for (RegionIndex index = lists_[list]; index != kNil && written < room && taken < bytes;) {
      const RegionIndex next = regions_[index].next;
      take(index);
      index = next;
    }
  };
  take_list(kEmptyResident);
  for (size_t bin = 0; bin < kBins && static_cast<double>(bin) < fullest * kBins; ++bin) {
    for (size_t lifetime = 0; lifetime < kLifetimeClasses; ++lifetime)
      take_list(static_cast<std::uint8_t>(lifetime * kBins + bin));
  }
  return written;
}

void LifetimeHeap::released(Range range, bool gone) noexcept {
  const auto index = static_cast<RegionIndex>(range.begin / kRegion);
  Region& region = regions_[index];
  const SlotBits run = SlotBits::run(range.begin % kRegion / kSlot, range.size / kSlot);
  count(region, -1);
  region.held = region.held & ~run;
  if (gone) {
    set_gone(region, 0, run, true);
    set_gone(region, 1, run, true);
    if (region.refused_in != round_) region.refusals = 0;
  } else {
    refused(range.begin);
  }
  count(region, +1);
  relink(index);
}

void LifetimeHeap::refused(Offset offset) noexcept {
  constexpr std::uint8_t kMost = 9;  // 512 rounds
  Region& region = regions_[offset / kRegion];
  if (region.refusals < kMost && (region.refusals == 0 || region.refused_in != round_)) ++region.refusals;
  region.refused_in = round_;
}

Offset LifetimeHeap::take_collapse(double fullest_first_above, double most_gone) noexcept {
  const auto least_used = static_cast<size_t>(fullest_first_above * static_cast<double>(kSlots));
  const auto allowed = static_cast<size_t>(most_gone * static_cast<double>(2 * kSlots));
  for (size_t i = 0; i < regions_.size(); ++i) {
    collapse_at_ = collapse_at_ + 1 < regions_.size() ? collapse_at_ + 1 : 0;
    Region& region = regions_[collapse_at_];
    if (region.huge || region.collapsing || region.used_count < least_used || region.held.any()) continue;
    if (region.gone[0].count() + region.gone[1].count() > allowed) continue;
    if (region.refused > 0) {
      --region.refused;
      continue;
    }
    region.collapsing = true;
    return collapse_at_ * kRegion;
  }
  return kNoOffset;
}

void LifetimeHeap::collapsed(Offset offset, bool done) noexcept {
  Region& region = regions_[offset / kRegion];
  count(region, -1);
  region.collapsing = false;
  if (done) {
    region.huge = true;
    region.gone[0] = region.gone[1] = {};
  } else {
    region.refused = 16;
  }
  count(region, +1);
  relink(static_cast<RegionIndex>(offset / kRegion));
}

bool LifetimeHeap::break_huge(Offset offset) noexcept {
  Region& region = regions_[offset / kRegion];
  const bool was = region.huge;
  count(region, -1);
  region.huge = false;
  count(region, +1);
  return was;
}

double LifetimeHeap::resident_share(size_t index) const noexcept {
  const Region& region = regions_[index];
  return 1 - static_cast<double>(region.gone[0].count() + region.gone[1].count()) / (2.0 * kSlots);
}

std::uint8_t LifetimeHeap::list_for(const Region& region) const noexcept {
  if (region.gap || region.used_count == kSlots) return kNoList;
  if (region.away) return kAway;
  if (region.used_count == 0) {
    if (region.held.any() || region.collapsing) return kNoList;  // comes back when it is released
    const SlotBits all_gone = region.gone[0] & region.gone[1];
    return all_gone == SlotBits::run(0, kSlots) ? kEmptyGone : kEmptyResident;
  }
  return static_cast<std::uint8_t>(static_cast<size_t>(region.lifetime) * kBins +
                                   region.used_count * kBins / (kSlots + 1));
}

void LifetimeHeap::relink(RegionIndex index) noexcept {
  Region& region = regions_[index];
  const std::uint8_t list = list_for(region);
  if (list == region.list) return;
  unlink(region);
  link(index, list);
}

void LifetimeHeap::unlink(Region& region) noexcept {
  if (region.list == kNoList) return;
  if (region.previous != kNil) regions_[region.previous].next = region.next;
  else lists_[region.list] = region.next;
  if (region.next != kNil) regions_[region.next].previous = region.previous;
  region.next = region.previous = kNil;
  region.list = kNoList;
}

void LifetimeHeap::link(RegionIndex index, std::uint8_t list) noexcept {
  Region& region = regions_[index];
  region.list = list;
  if (list == kNoList) return;
  region.previous = kNil;
  region.next = lists_[list];
  if (region.next != kNil) regions_[region.next].previous = index;
  lists_[list] = index;
}

void LifetimeHeap::count(const Region& region, int sign) noexcept {
  const SlotBits both_gone = region.gone[0] & region.gone[1], free = ~region.used;
  const Size gone = region.gone[0].count() + region.gone[1].count();
  const Size gone_used = (region.gone[0] & region.used).count() + (region.gone[1] & region.used).count();
  const Size factor = static_cast<Size>(sign);  // subtracting is adding modulo 2^64
  figures_.used += factor * region.used_count * kSlot;
  figures_.resident += factor * (2 * kSlots - gone) * kPage;
  figures_.free_resident += factor * (free & ~both_gone).count() * kSlot;
  figures_.gone_in_spans += factor * gone_used * kPage;
  figures_.huge += factor * (region.huge && gone == 0 ? kRegion : 0);
  figures_.used_by_class[static_cast<size_t>(region.lifetime)] += factor * region.used_count * kSlot;
}

bool LifetimeHeap::consistent() const noexcept {
  LifetimeHeap recount;
  size_t linked = 0, should = 0;
  for (size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    recount.count(region, +1);
    if (region.used.count() != region.used_count || (region.used & region.held).any()) return false;
    if (list_for(region) != region.list) return false;
    should += region.list != kNoList;
  }
  for (std::uint8_t list = 0; list < kNoList; ++list) {
    RegionIndex previous = kNil;
    for (RegionIndex index = lists_[list]; index != kNil; index = regions_[index].next) {
      if (regions_[index].list != list || regions_[index].previous != previous) return false;
      previous = index;
      if (++linked > regions_.size()) return false;
    }
  }
  const Figures &a = figures_, &b = recount.figures_;
  return linked == should && a.used == b.used && a.resident == b.resident &&
         a.free_resident == b.free_resident && a.gone_in_spans == b.gone_in_spans && a.huge == b.huge &&
         a.used_by_class[0] == b.used_by_class[0] && a.used_by_class[1] == b.used_by_class[1];
}

}  // namespace memoir
