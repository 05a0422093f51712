// SPDX-License-Identifier: Apache-2.0
#include "memoir/host/malloc/blocks/large_blocks.h"

#include <sys/mman.h>

#include <algorithm>

#include "memoir/base/site.h"
#include "memoir/host/malloc/blocks/checked.h"

namespace memoir::host_malloc {

namespace {

constexpr Size kPage = 4 * kKiB;
constexpr Size kGuard = kChecked ? kPage : 0;  // in front of a block and behind it
constexpr Size kHugePage = 2 * kMiB;
constexpr Size kHugeFrom = 4 * kMiB;  // smaller blocks have no whole huge page for sure

void* map(Size size) noexcept {
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void unmap(std::uintptr_t address, Size size) noexcept {
  ::munmap(reinterpret_cast<void*>(address - kGuard), size + 2 * kGuard);
}

/// Of the checked build: whether the bytes of a block that waits to be used again may be touched.
bool let_touch(std::uintptr_t address, Size size, bool may) noexcept {
  return !kChecked ||
         ::mprotect(reinterpret_cast<void*>(address), size, may ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
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

}  // namespace

LargeBlocks::Block LargeBlocks::allocate(Size size, Size alignment, bool huge) noexcept {
  const Size bytes = align_up(size, kPage);
  huge = huge && bytes >= kHugeFrom;
  std::uintptr_t address = 0;
  Size got = bytes;
  bool zero = true;
  {
    const LockGuard guard(lock_);
    Cached* best = nullptr;
    for (size_t i = 0; i < cache_count_; ++i) {
      Cached& one = cache_[i];
      if (one.size < bytes || one.size > bytes + bytes / 4 || one.address % alignment != 0) continue;
      if (best == nullptr || one.size < best->size) best = &one;
    }
    if (best != nullptr) {
      address = best->address;
      got = best->size;
      zero = false;
      cached_.fetch_sub(got, std::memory_order_relaxed);
      *best = cache_[--cache_count_];
      if (!let_touch(address, got, true) || !insert(address, got)) {
        unmap(address, got);
        return {};
      }
    }
  }
  if (address == 0) {
    if (huge) address = map_aligned(bytes, std::max(alignment, kHugePage));
    if (address == 0) address = map_aligned(bytes, alignment);
    // Under a limit of the address space, what is kept may be all that lacks.
    if (address == 0 && cached() != 0) {
      purge(0);
      address = map_aligned(bytes, alignment);
    }
    if (address == 0) return {};
    if (huge) ::madvise(reinterpret_cast<void*>(address), bytes, MADV_HUGEPAGE);
    const LockGuard guard(lock_);
    if (!insert(address, bytes)) {
      unmap(address, bytes);
      return {};
    }
  }
  live_.fetch_add(got, std::memory_order_relaxed);
  return {reinterpret_cast<void*>(address), zero};
}

bool LargeBlocks::free(void* address, Size cache_budget) noexcept {
  Size size = 0;
  {
    const LockGuard guard(lock_);
    Entry* const entry = find(reinterpret_cast<std::uintptr_t>(address));
    if (entry == nullptr) return false;
    size = entry->size;
    erase(entry);
    live_.fetch_sub(size, std::memory_order_relaxed);
    // A quarter of what lives is kept at most, and 4 MiB in a small heap.
    const Size budget = std::min(cache_budget, std::max(4 * kMiB, live() / 4));
    if (cached() + size <= budget && cache_count_ < kMostCached &&
        let_touch(reinterpret_cast<std::uintptr_t>(address), size, false)) {
      cache_[cache_count_++] = {reinterpret_cast<std::uintptr_t>(address), size, purges_};
      cached_.fetch_add(size, std::memory_order_relaxed);
      return true;
    }
  }
  unmap(reinterpret_cast<std::uintptr_t>(address), size);
  return true;
}

Size LargeBlocks::size_of(void* address) noexcept {
  const LockGuard guard(lock_);
  const Entry* const entry = find(reinterpret_cast<std::uintptr_t>(address));
  return entry == nullptr ? 0 : entry->size;
}

void* LargeBlocks::resize(void* address, Size size) noexcept {
  const Size bytes = align_up(size, kPage);
  Size old = 0;
  // The lock is held while the block moves: its old address may be another thread's new block at once.
  const LockGuard guard(lock_);
  Entry* const entry = find(reinterpret_cast<std::uintptr_t>(address));
  if (entry == nullptr) return nullptr;
  old = entry->size;
  if (bytes == old) return address;
  void* const moved =
      kChecked ? move_guarded(address, old, bytes) : ::mremap(address, old, bytes, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) return nullptr;
  erase(entry);
  insert(reinterpret_cast<std::uintptr_t>(moved), bytes);  // there is room: one was just erased
  live_.fetch_add(bytes - old, std::memory_order_relaxed);
  return moved;
}

void LargeBlocks::purge(unsigned age) noexcept {
  Cached old[kMostCached];
  size_t count = 0;
  {
    const LockGuard guard(lock_);
    ++purges_;
    for (size_t i = 0; i < cache_count_;) {
      if (purges_ - cache_[i].freed <= age) {
        ++i;
        continue;
      }
      cached_.fetch_sub(cache_[i].size, std::memory_order_relaxed);
      old[count++] = cache_[i];
      cache_[i] = cache_[--cache_count_];
    }
  }
  for (size_t i = 0; i < count; ++i) unmap(old[i].address, old[i].size);
}

size_t LargeBlocks::place_of(std::uintptr_t address) const noexcept {
  return memoir::detail::mix(address) & (table_.size() - 1);
}

LargeBlocks::Entry* LargeBlocks::find(std::uintptr_t address) noexcept {
  if (table_.empty() || address == 0) return nullptr;
  for (size_t i = place_of(address);; i = (i + 1) & (table_.size() - 1)) {
    if (table_[i].address == address) return &table_[i];
    if (table_[i].address == 0) return nullptr;
  }
}

bool LargeBlocks::insert(std::uintptr_t address, Size size) noexcept {
  if ((count_ + 1) * 4 > table_.size() * 3) {
    MetadataArray<Entry> old = std::move(table_);
    const size_t wanted = old.empty() ? 256 : old.size() * 2;
    if (!table_.assign(wanted, Entry{})) {
      table_ = std::move(old);
      if (count_ + 1 >= table_.size()) return false;
    } else {
      count_ = 0;
      for (const Entry& entry : old) {
        if (entry.address != 0) insert(entry.address, entry.size);
      }
    }
  }
  size_t i = place_of(address);
  while (table_[i].address != 0) i = (i + 1) & (table_.size() - 1);
  table_[i] = {address, size};
  ++count_;
  return true;
}

void LargeBlocks::erase(Entry* entry) noexcept {
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
  --count_;
}

}  // namespace memoir::host_malloc
