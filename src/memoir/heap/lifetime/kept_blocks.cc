// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/lifetime/kept_blocks.h"

#include <algorithm>

namespace memoir {

size_t LargeBlock::count() const noexcept {
  size_t parts = 1;
  while (parts < kMostParts && cuts[parts - 1] != 0) ++parts;
  return parts;
}

void LargeBlock::shrink(Size to) noexcept {
  size = to;
  for (Size& cut : cuts) {
    if (cut >= to) cut = 0;
  }
}

/// What may be kept for longer than a moment: a quarter of what lives, and 4 MiB in a small heap.
Size KeptBlocks::budget(Size live) noexcept { return std::max(4 * kMiB, live / 4); }

void KeptBlocks::add(const LargeBlock& freed) noexcept {
  kept_[count_++] = {freed, purges_};
  bytes_.fetch_add(freed.size, std::memory_order_relaxed);
}

LargeBlock KeptBlocks::take_oldest() noexcept {
  const LargeBlock oldest = kept_[0].block;
  remove(&kept_[0]);
  return oldest;
}

bool KeptBlocks::is_due(unsigned age, Size live) const noexcept {
  if (count_ == 0) return false;
  const unsigned waited = purges_ - kept_[0].freed;
  return waited > age || (waited > kMoment && keeps_much(live));
}

void KeptBlocks::remove(Kept* one) noexcept {
  bytes_.fetch_sub(one->block.size, std::memory_order_relaxed);
  std::move(one + 1, kept_ + count_, one);
  --count_;
}

void KeptBlocks::shrink(Kept* one, Size by) noexcept {
  if (by == one->block.size) return remove(one);
  bytes_.fetch_sub(by, std::memory_order_relaxed);
  one->block.shrink(one->block.size - by);
}

const LargeBlock* KeptBlocks::fitting(Size bytes, Size alignment) const noexcept {
  const Size most = bytes + bytes / 4;
  const LargeBlock* best = nullptr;
  for (size_t i = 0; i < count_; ++i) {
    const LargeBlock& one = kept_[i].block;
    if (one.size < bytes || one.address % alignment != 0) continue;
    if (one.size > most && (!cuts_ || one.range != 0 || one.count() > 1)) continue;
    if (best == nullptr || one.size < best->size) best = &one;
  }
  return best;
}

KeptBlocks::Taken KeptBlocks::take_fitting(Size bytes, Size alignment, bool huge) noexcept {
  const Size most = bytes + bytes / 4;
  const LargeBlock* const best = fitting(bytes, alignment);
  if (best == nullptr) return {};
  Kept* const one =
      std::find_if(kept_, kept_ + count_, [&](const Kept& kept) { return &kept.block == best; });
  Taken taken{one->block};
  if (taken.block.size <= most) {
    remove(one);
    return taken;
  }
  // Its end stays, from a huge page on where that wastes little.
  const Size whole = align_up(bytes, kHugePage);
  taken.block.size = huge && whole <= most ? whole : bytes;
  taken.rest = &one->block;
  taken.rest->address += taken.block.size;
  taken.rest->size -= taken.block.size;
  bytes_.fetch_sub(taken.block.size, std::memory_order_relaxed);
  return taken;
}

Size KeptBlocks::composed_size(Size bytes, bool huge) noexcept {
  const Size whole = align_up(bytes, kHugePage);
  return huge && whole <= bytes + bytes / 4 ? whole : bytes;
}

KeptBlocks::Kept* KeptBlocks::largest_part() noexcept {
  Kept* largest = nullptr;
  Size length = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (kept_[i].block.range != 0) continue;
    const Size last = kept_[i].block.size - kept_[i].block.last_begin();
    if (last > length) {
      largest = &kept_[i];
      length = last;
    }
  }
  return length < kLeastPart ? nullptr : largest;
}

}  // namespace memoir
