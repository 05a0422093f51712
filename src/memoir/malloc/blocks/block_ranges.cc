// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/block_ranges.h"

#include <sys/mman.h>

#include <algorithm>

namespace memoir::malloc_ {

namespace {

constexpr size_t kGranules = SlotBits::kBits, kMostGranules = 32;
constexpr Size kGranule[] = {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB};
constexpr size_t kFewest[] = {1, 9, 3, 3};  // of nearly all blocks: smaller ones are spans

size_t count_of(Size size, Size granule) noexcept { return align_up(size, granule) / granule; }

std::uintptr_t map(Size size) noexcept {
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? 0 : reinterpret_cast<std::uintptr_t>(address);
}

/// Room at a multiple of `alignment`; 0 when the system refuses.
std::uintptr_t map_range(Size size, Size alignment) noexcept {
  // Next to the last range, most often: then they are one mapping.
  std::uintptr_t begin = map(size);
  if (begin == 0 || begin % alignment == 0) return begin;
  ::munmap(reinterpret_cast<void*>(begin), size);
  begin = map(size + alignment);
  if (begin == 0) return 0;
  const std::uintptr_t aligned = align_up(begin, alignment);
  // Where the system does not cut the ends off they are addresses without memory.
  if (aligned != begin) ::munmap(reinterpret_cast<void*>(begin), aligned - begin);
  ::munmap(reinterpret_cast<void*>(aligned + size), begin + alignment - aligned);
  return aligned;
}

}  // namespace

size_t BlockRanges::kind_for(Size size) noexcept {
  size_t kind = 0;
  while (kind < kKinds && size > kMostGranules * kGranule[kind]) ++kind;
  return kind;
}

Size BlockRanges::granule(const Range& range) noexcept { return kGranule[range.kind]; }

SlotBits BlockRanges::granules(const Range& range, std::uintptr_t address, Size size) noexcept {
  return SlotBits::run((address - range.address) / granule(range), count_of(size, granule(range)));
}

BlockRanges::Piece BlockRanges::take(Size size, Size alignment) noexcept {
  const size_t kind = kind_for(size);
  if (kind == kKinds || alignment > kGranule[kind]) return {};
  const Size granule = kGranule[kind];
  const size_t count = count_of(size, granule);
  for (bool added = false;; added = true) {
    bool full = true;  // all so far
    for (size_t i = first_[kind]; i < ranges_.size(); ++i) {
      Range& range = ranges_[i];
      if (range.address == 0 || range.kind != kind) continue;
      const size_t at = range.longest < count ? SlotBits::kNone : (~range.used).first_run(count);
      if (at == SlotBits::kNone) {
        if (range.longest >= count) {
          const bool any = (~range.used).first_run(kFewest[kind]) != SlotBits::kNone;
          range.longest = static_cast<std::uint16_t>((any ? count : kFewest[kind]) - 1);
        }
        full = full && range.longest < kFewest[kind];
        if (full) first_[kind] = i + 1;
        continue;
      }
      const SlotBits run = SlotBits::run(at, count);
      const bool zero = !(range.touched & run).any();
      if (range.used_count == 0) --empty_;
      range.used = range.used | run;
      range.touched = range.touched | run;
      range.used_count = static_cast<std::uint16_t>(range.used_count + count);
      return {range.address + at * granule, static_cast<std::uint32_t>(i + 1), zero};
    }
    if (added || !add(kind)) return {};
  }
}

bool BlockRanges::add(size_t kind) noexcept {
  const Size granule = kGranule[kind];
  size_t index = 0;
  while (index < ranges_.size() && ranges_[index].address != 0) ++index;
  if (index == ranges_.size() && !ranges_.push_back({})) return false;
  const Size size = kGranules * granule;
  Range range;
  range.address = map_range(size, granule);
  if (range.address == 0) return false;
  range.kind = kind;
  range.longest = kGranules;
  ranges_[index] = range;
  first_[kind] = std::min(first_[kind], index);
  ++empty_;
  return true;
}

void BlockRanges::put(std::uint32_t index, std::uintptr_t address, Size size, bool gone) noexcept {
  Range& range = ranges_[index - 1];
  const SlotBits run = granules(range, address, size);
  range.used = range.used & ~run;
  if (gone) range.touched = range.touched & ~run;
  range.used_count = static_cast<std::uint16_t>(range.used_count - count_of(size, granule(range)));
  range.longest = kGranules;
  first_[range.kind] = std::min<size_t>(first_[range.kind], index - 1);
  // One is kept, so that a block that comes and goes does not map and unmap it each time.
  if (range.used_count == 0 && ++empty_ > 1 &&
      ::munmap(reinterpret_cast<void*>(range.address), kGranules * granule(range)) == 0) {
    range.address = 0;
    --empty_;
  }
}

bool BlockRanges::resize(std::uint32_t index, std::uintptr_t address, Size size, Size to,
                         bool gone) noexcept {
  Range& range = ranges_[index - 1];
  const size_t before = count_of(size, granule(range)), after = count_of(to, granule(range));
  const size_t at = (address - range.address) / granule(range);
  if (after < before) {
    const SlotBits run = SlotBits::run(at + after, before - after);
    range.used = range.used & ~run;
    if (gone) range.touched = range.touched & ~run;
    range.longest = kGranules;
    first_[range.kind] = std::min<size_t>(first_[range.kind], index - 1);
  } else if (after > before) {
    if (at + after > kGranules) return false;
    const SlotBits run = SlotBits::run(at + before, after - before);
    if ((range.used & run).any()) return false;
    range.used = range.used | run;
    range.touched = range.touched | run;
  }
  range.used_count = static_cast<std::uint16_t>(range.used_count + after - before);
  return true;
}

Size BlockRanges::unmap_empty() noexcept {
  Size bytes = 0;
  for (size_t i = 0; empty_ != 0 && i < ranges_.size(); ++i) {
    Range& range = ranges_[i];
    if (range.address == 0 || range.used_count != 0) continue;
    const Size size = kGranules * granule(range);
    if (::munmap(reinterpret_cast<void*>(range.address), size) != 0) continue;
    range.address = 0;
    --empty_;
    bytes += size;
  }
  return bytes;
}

}  // namespace memoir::malloc_
