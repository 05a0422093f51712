// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/large_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "memoir/base/site.h"
#include "memoir/malloc/blocks/checked.h"
#include "memoir/malloc/blocks/give_back.h"

namespace memoir::malloc_ {

namespace {

constexpr Size kPage = 4 * kKiB;
constexpr Size kGuard = kChecked ? kPage : 0;  // in front of a block and behind it
constexpr Size kHugePage = 2 * kMiB;
constexpr size_t kLooks = 4096;  // at the table, for a block that the system would not unmap
constexpr size_t kRetries = 64;  // blocks that the system would not unmap, in a purge

void* map(Size size) noexcept {
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

/// False where that would be one mapping too many.
bool unmap(std::uintptr_t address, Size size) noexcept {
  return ::munmap(reinterpret_cast<void*>(address - kGuard), size + 2 * kGuard) == 0;
}

/// The pages of a block go back, and its addresses stay.
bool give_pages_back(std::uintptr_t address, Size size) noexcept {
  const iovec range{reinterpret_cast<void*>(address), size};
  bool gone = false;
  give_back(&range, 1, &gone);
  return gone;
}

class KeptErrno {
 public:
  KeptErrno() noexcept : kept_(errno) {}
  ~KeptErrno() { errno = kept_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  int kept_;
};

/// Of the checked build: whether the bytes of a block that waits to be used again may be touched.
bool let_touch(std::uintptr_t address, Size size, bool may) noexcept {
  if constexpr (!kChecked) return true;
  void* const at = reinterpret_cast<void*>(address);
  if (::mprotect(at, size, may ? PROT_READ | PROT_WRITE : PROT_NONE) == 0) return true;
  // Nobody wants what they hold, so that they may be others where a filter refuses that call.
  return may &&
         ::mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

/// Reserves more, unmaps what is too much, and leaves a page on both sides that cannot be touched.
std::uintptr_t map_guarded(Size size, Size alignment) noexcept {
  alignment = std::max(alignment, kPage);
  const Size room = size + 2 * kGuard + alignment - kPage;
  if (room < size) return 0;
  void* const all = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(all), end = begin + room;
  const std::uintptr_t aligned = align_up(begin + kGuard, alignment);
  const std::uintptr_t low = aligned - kGuard, high = aligned + size + kGuard;
  if (low != begin) ::munmap(all, low - begin);
  if (high != end) ::munmap(reinterpret_cast<void*>(high), end - high);
  if (let_touch(aligned, size, true)) return aligned;
  unmap(aligned, size);
  return 0;
}

/// Maps more and unmaps what is too much.
std::uintptr_t map_aligned(Size size, Size alignment) noexcept {
  if constexpr (kChecked) return map_guarded(size, alignment);
  if (alignment <= kPage) return reinterpret_cast<std::uintptr_t>(map(size));
  if (size + alignment < size) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(map(size + alignment));
  if (begin == 0) return 0;
  const std::uintptr_t aligned = align_up(begin, alignment);
  if (aligned != begin) ::munmap(reinterpret_cast<void*>(begin), aligned - begin);
  const std::uintptr_t end = begin + size + alignment;
  if (aligned + size != end) ::munmap(reinterpret_cast<void*>(aligned + size), end - aligned - size);
  return aligned;
}

/// The same contents between guards of their own.
void* move_guarded(void* address, Size old, Size size) noexcept {
  const auto place = reinterpret_cast<void*>(map_guarded(size, kPage));
  if (place == nullptr) return MAP_FAILED;
  void* const moved = ::mremap(address, old, size, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  if (moved == MAP_FAILED) {
    unmap(reinterpret_cast<std::uintptr_t>(place), size);
    return MAP_FAILED;
  }
  const auto left = reinterpret_cast<std::uintptr_t>(address);
  ::munmap(reinterpret_cast<void*>(left - kGuard), kGuard);
  ::munmap(reinterpret_cast<void*>(left + old), kGuard);
  return moved;
}

#if !defined(MREMAP_DONTUNMAP)
#define MREMAP_DONTUNMAP 4
#endif

/// The pages [from, from + size) of a mapping to a place that is mapped. `flags` 0: from becomes a hole.
/// MREMAP_DONTUNMAP (Linux 5.7): it stays mapped, without pages. On failure the place may be a hole, and by
/// now somebody else's: who failed leaves it alone.
bool move_pages(std::uintptr_t from, Size size, std::uintptr_t to, int flags = 0) noexcept {
  return ::mremap(reinterpret_cast<void*>(from), size, size, MREMAP_MAYMOVE | MREMAP_FIXED | flags,
                  reinterpret_cast<void*>(to)) != MAP_FAILED;
}

void unmap_around(std::uintptr_t address, Size size, Size begin, Size end) noexcept {
  if (begin != 0) unmap(address, begin);
  if (end != size) unmap(address + end, size - end);
}

}  // namespace

LargeBlocks::Block LargeBlocks::allocate(Size size, Size alignment, bool huge) noexcept {
  const KeptErrno kept;
  const Size bytes = align_up(size, kPage);
  huge = huge && bytes >= KeptBlocks::kHugeFrom;
  Entry entry;
  {
    const LockGuard guard(lock_);
    if (refused_ != 0) {  // what fits best of both, else the last of the largest requests find none
      const Entry* const kept = kept_.fitting(bytes, alignment);
      const Size most = bytes + bytes / 4;
      entry = take_refused(bytes, kept == nullptr ? most : std::min(most, kept->size), alignment, kLooks);
    }
    if (entry.address == 0) entry = kept_.take_fitting(bytes, alignment, huge).block;
  }
  if (entry.address == 0 && cached() != 0) entry = compose(bytes, alignment, huge);
  if (entry.address == 0) entry = map_new(bytes, alignment, huge);
  // Under a limit of the address space, or of mappings, what is kept may be all that lacks.
  if (entry.address == 0 && purge_addresses() != 0) entry = map_new(bytes, alignment, huge);
  if (entry.address == 0) {
    const LockGuard guard(lock_);
    if (refused_ != 0) entry = take_refused(bytes, ~Size{0}, alignment, table_.size());
  }
  if (entry.address == 0) return {};
  const bool zero = entry.zero;
  entry.zero = false;
  bool done = false;
  {
    const LockGuard guard(lock_);
    done = (entry.range != 0 || let_touch(entry.address, entry.size, true)) && insert(entry);
  }
  if (!done) {
    drop(entry);
    return {};
  }
  live_.fetch_add(entry.size, std::memory_order_relaxed);
  return {reinterpret_cast<void*>(entry.address), zero};
}

/// From the system: a mapping, or where there are many or it refuses one, a piece of a range.
LargeBlocks::Entry LargeBlocks::map_new(Size bytes, Size alignment, bool huge) noexcept {
  Entry entry;
  const bool piece_first = many();
  if (piece_first) entry = take_piece(bytes, alignment);
  if (entry.address != 0) return entry;
  if (huge) entry.address = map_aligned(bytes, std::max(alignment, kHugePage));
  if (entry.address == 0) entry.address = map_aligned(bytes, alignment);
  if (entry.address == 0) return piece_first ? Entry{} : take_piece(bytes, alignment);
  entry.size = bytes;
  entry.zero = true;
  if (huge) ::madvise(reinterpret_cast<void*>(entry.address), entry.size, MADV_HUGEPAGE);
  return entry;
}

LargeBlocks::Entry LargeBlocks::take_piece(Size bytes, Size alignment) noexcept {
  const LockGuard guard(lock_);
  const BlockRanges::Piece piece = ranges_.take(bytes, alignment);
  Entry entry;
  entry.address = piece.address;
  entry.size = bytes;
  entry.range = piece.range;
  entry.zero = piece.zero;
  return entry;
}

/// Of those that the system would not unmap, in the next `looks` places of the table: the smallest that has
/// the size. A first fit would give the large ones to small requests, and the large requests would find none.
/// The lock is held.
LargeBlocks::Entry LargeBlocks::take_refused(Size bytes, Size most, Size alignment, size_t looks) noexcept {
  Entry* best = nullptr;
  size_t left = refused_;
  for (size_t i = 0; i < looks && i < table_.size() && left != 0; ++i) {
    look_at_ = (look_at_ + 1) & (table_.size() - 1);
    Entry& one = table_[look_at_];
    left -= one.refused;
    if (!one.refused || one.size < bytes || one.size > most || one.address % alignment != 0) continue;
    if (best == nullptr || one.size < best->size) best = &one;
    if (best->size == bytes) break;
  }
  if (best == nullptr) return {};
  Entry taken = *best;
  erase(best);
  taken.refused = false;
  return taken;
}

/// A block that is in no table goes back to the system, or where that refuses, waits in the table: false.
bool LargeBlocks::drop(Entry freed) noexcept {
  if (freed.range != 0) {
    const bool gone = give_pages_back(freed.address, freed.size);
    const LockGuard guard(lock_);
    ranges_.put(freed.range, freed.address, freed.size, gone);
    return true;
  }
  if (unmap(freed.address, freed.size)) return true;
  freed.zero = give_pages_back(freed.address, freed.size);
  freed.refused = true;
  for (Size& cut : freed.cuts) cut = 0;  // who uses it again does not move it
  const LockGuard guard(lock_);
  insert(freed);
  return false;
}

/// What is left of a block around [begin, end).
void LargeBlocks::drop_around(std::uintptr_t address, Size size, Size begin, Size end) noexcept {
  Entry left;
  left.address = address;
  left.size = begin;
  if (begin != 0) drop(left);
  left.address = address + end;
  left.size = size - end;
  if (end != size) drop(left);
}

/// Tries some of them again, until the system refuses one.
void LargeBlocks::retry_refused() noexcept {
  for (size_t i = 0; i < kRetries; ++i) {
    Entry one;
    {
      const LockGuard guard(lock_);
      if (refused_ == 0) return;
      look_at_ = (look_at_ + 1) & (table_.size() - 1);
      if (!table_[look_at_].refused) continue;
      one = table_[look_at_];
      erase(&table_[look_at_]);
    }
    one.refused = false;
    if (!drop(one)) return;
  }
}

/// Up to `bytes` of what is kept; or nothing. The lock is held.
LargeBlocks::Entry LargeBlocks::take_part(Size bytes, bool huge) noexcept {
  return many() ? Entry{} : kept_.take_part(bytes, huge, unmap);
}

/// A new mapping with pages of those that are kept; no address when there are none.
LargeBlocks::Entry LargeBlocks::compose(Size bytes, Size alignment, bool huge) noexcept {
  if constexpr (kChecked) return {};  // their guards are their own
  const Size size = KeptBlocks::composed_size(bytes, huge);
  Entry made;
  Size filled = 0;
  for (size_t i = 0; filled < size && i < Entry::kMostParts - 1; ++i) {
    Entry part;
    {
      const LockGuard guard(lock_);
      part = take_part(size - filled, huge);
    }
    if (part.address == 0) break;
    if (made.address == 0) {
      made.address = map_aligned(size, huge ? std::max(alignment, kHugePage) : alignment);
      made.size = size;
      if (made.address != 0 && huge) ::madvise(reinterpret_cast<void*>(made.address), size, MADV_HUGEPAGE);
    }
    if (made.address == 0 || !move_pages(part.address, part.size, made.address + filled)) {
      drop(part);
      if (made.address != 0) drop_around(made.address, size, filled, filled + part.size);
      return {};
    }
    filled += part.size;
    if (filled < size) made.cuts[i] = filled;
  }
  return made;
}

/// All parts to a new mapping; no address when that cannot be, and nothing changed.
LargeBlocks::Entry LargeBlocks::move(const Entry& from, Size size) noexcept {
  const size_t parts = from.count();
  if (kChecked || (size > from.size && parts == Entry::kMostParts)) return {};
  Entry made;
  made.address = map_aligned(size, kPage);
  if (made.address == 0) return {};
  made.size = size;
  Size begin = 0;
  for (size_t i = 0; i < parts; ++i) {
    const Size end = i + 1 < parts ? from.cuts[i] : from.size;
    if (!move_pages(from.address + begin, end - begin, made.address + begin, MREMAP_DONTUNMAP)) {
      for (size_t back = 0; back < i; ++back) {
        const Size low = back == 0 ? 0 : from.cuts[back - 1];
        move_pages(made.address + low, from.cuts[back] - low, from.address + low, MREMAP_DONTUNMAP);
      }
      unmap_around(made.address, size, begin, end);
      return {};
    }
    if (end < size) made.cuts[i] = end;
    begin = end;
  }
  unmap(from.address, from.size);
  return made;
}

bool LargeBlocks::free(void* address, Size most_kept) noexcept {
  const KeptErrno kept;
  Entry freed;
  {
    const LockGuard guard(lock_);
    Entry* const entry = find(reinterpret_cast<std::uintptr_t>(address));
    if (entry == nullptr) return false;
    freed = *entry;
    erase(entry);
    live_.fetch_sub(freed.size, std::memory_order_relaxed);
  }
  if (freed.size > most_kept || (freed.range == 0 && !let_touch(freed.address, freed.size, false))) {
    drop(freed);
    return true;
  }
  // The last sizes are those that will be asked for: the oldest make room.
  for (;;) {
    Entry oldest;
    {
      const LockGuard guard(lock_);
      if (kept_.has_room(freed.size, most_kept)) {
        kept_.add(freed);
        return true;
      }
      oldest = kept_.take_oldest();
    }
    drop(oldest);
  }
}

Size LargeBlocks::size_of(void* address) noexcept {
  const LockGuard guard(lock_);
  const Entry* const entry = find(reinterpret_cast<std::uintptr_t>(address));
  return entry == nullptr ? 0 : entry->size;
}

void* LargeBlocks::resize(void* address, Size size) noexcept {
  const KeptErrno kept;
  const Size bytes = align_up(size, kPage);
  Size old = 0;
  // The lock is held while the block moves: its old address may be another thread's new block at once.
  const LockGuard guard(lock_);
  Entry* const entry = find(reinterpret_cast<std::uintptr_t>(address));
  if (entry == nullptr) return nullptr;
  old = entry->size;
  if (bytes == old) return address;
  Entry fresh = *entry;
  if (entry->range != 0) {
    const bool gone = bytes > old || give_pages_back(entry->address + bytes, old - bytes);
    if (!gone) return address;
    if (!ranges_.resize(entry->range, entry->address, old, bytes, gone)) return nullptr;
    fresh.size = bytes;
  } else if (bytes < old && !kChecked) {
    if (!unmap(entry->address + bytes, old - bytes)) {
      give_pages_back(entry->address + bytes, old - bytes);
      return address;
    }
    fresh.shrink(bytes);
  } else if (entry->count() > 1) {
    fresh = move(*entry, bytes);
    if (fresh.address == 0) return nullptr;
  } else {
    void* const moved =
        kChecked ? move_guarded(address, old, bytes) : ::mremap(address, old, bytes, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) return nullptr;
    fresh.address = reinterpret_cast<std::uintptr_t>(moved);
    fresh.size = bytes;
  }
  erase(entry);
  insert(fresh);  // there is room: one was just erased
  live_.fetch_add(bytes - old, std::memory_order_relaxed);
  return reinterpret_cast<void*>(fresh.address);
}

void LargeBlocks::purge(unsigned age) noexcept {
  const KeptErrno kept;
  for (bool first = true;; first = false) {
    Entry oldest;
    {
      const LockGuard guard(lock_);
      if (first) kept_.begin_purge();
      if (!kept_.is_due(age, live())) break;
      oldest = kept_.take_oldest();
    }
    drop(oldest);
  }
  retry_refused();
}

Size LargeBlocks::purge_addresses() noexcept {
  const KeptErrno kept;
  const Size before = cached();
  purge(0);
  const LockGuard guard(lock_);
  return before - std::min(before, cached()) + ranges_.unmap_empty();
}

size_t LargeBlocks::place_of(std::uintptr_t address) const noexcept {
  return memoir::detail::mix(address) & (table_.size() - 1);
}

LargeBlocks::Entry* LargeBlocks::find(std::uintptr_t address) noexcept {
  if (table_.empty() || address == 0) return nullptr;
  for (size_t i = place_of(address);; i = (i + 1) & (table_.size() - 1)) {
    if (table_[i].address == address) return table_[i].refused ? nullptr : &table_[i];
    if (table_[i].address == 0) return nullptr;
  }
}

bool LargeBlocks::insert(const Entry& fresh) noexcept {
  if ((count_ + 1) * 4 > table_.size() * 3) {
    MetadataArray<Entry> old = std::move(table_);
    const size_t wanted = old.empty() ? 256 : old.size() * 2;
    if (!table_.assign(wanted, Entry{})) {
      table_ = std::move(old);
      if (count_ + 1 >= table_.size()) return false;
    } else {
      count_ = refused_ = 0;
      mapped_.store(0, std::memory_order_relaxed);
      for (const Entry& entry : old) {
        if (entry.address != 0) insert(entry);
      }
    }
  }
  size_t i = place_of(fresh.address);
  while (table_[i].address != 0) i = (i + 1) & (table_.size() - 1);
  table_[i] = fresh;
  ++count_;
  if (fresh.range == 0) mapped_.fetch_add(1, std::memory_order_relaxed);
  refused_ += fresh.refused;
  return true;
}

void LargeBlocks::erase(Entry* entry) noexcept {
  --count_;
  if (entry->range == 0) mapped_.fetch_sub(1, std::memory_order_relaxed);
  refused_ -= entry->refused;
  const size_t mask = table_.size() - 1;
  size_t hole = static_cast<size_t>(entry - table_.data());
  // Entries after the hole move up unless they are at home between it and themselves.
  for (size_t i = (hole + 1) & mask; table_[i].address != 0; i = (i + 1) & mask) {
    const size_t home = place_of(table_[i].address);
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    table_[hole] = table_[i];
    hole = i;
  }
  table_[hole] = {};
}

}  // namespace memoir::malloc_
