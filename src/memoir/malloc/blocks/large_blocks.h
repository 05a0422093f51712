// SPDX-License-Identifier: Apache-2.0
//
// Blocks above half a MiB: each is a mapping of its own, or, from some number of blocks on, a piece of a
// range (block_ranges.h). Freed ones are kept for a while (kept_blocks.h), since the pages of a new mapping
// cost far more than the mapping itself. Where pages of several move into a new mapping (mremap), it has
// parts. The system moves no range that spans two parts, so they move one by one. A block that the system
// does not unmap, because the process has too many mappings, gives its pages back and waits to be used again.
#pragma once

#include <atomic>

#include "memoir/base/lock.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/lifetime/kept_blocks.h"
#include "memoir/malloc/blocks/block_ranges.h"
#include "memoir/malloc/blocks/checked.h"

namespace memoir::malloc_ {

class LargeBlocks {
 public:
  struct Block {
    void* address = nullptr;
    bool zero = false;
  };
  /// `size` > 0 and below 2^47, the alignment a power of two. No address when the system has none.
  Block allocate(Size size, Size alignment, bool huge) noexcept;
  /// False for an address that is not a block of ours. At most `most_kept` bytes of freed blocks are kept.
  bool free(void* address, Size most_kept) noexcept;
  /// Bytes of a live block, 0 for any other address.
  Size size_of(void* address) noexcept;
  /// The same contents at a block of the new size, moved by the system where it must be; nullptr: nothing
  /// changed.
  void* resize(void* address, Size size) noexcept;

  /// Unmaps what is due after `age` purges (KeptBlocks). Call it at a steady pace.
  void purge(unsigned age) noexcept;
  /// Gives all addresses back that can be; bytes.
  Size purge_addresses() noexcept;

  Size live() const noexcept { return live_.load(std::memory_order_relaxed); }
  Size cached() const noexcept { return kept_.bytes(); }
  /// Whether some of what is kept is kept for a moment only: somebody should call purge().
  bool keeps_much() const noexcept { return kept_.keeps_much(live()); }

  /// How many blocks live.
  size_t count() noexcept {
    const LockGuard guard(lock_);
    return count_ - refused_;
  }

  Lock& lock() noexcept { return lock_; }

 private:
  using Entry = LargeBlock;
  // Mappings of blocks: with more, blocks are pieces of ranges, and none is put together of parts, each of
  // which is a mapping.
  static constexpr size_t kMostMapped = 4096;

  bool many() const noexcept { return mapped_.load(std::memory_order_relaxed) >= kMostMapped; }
  Entry map_new(Size bytes, Size alignment, bool huge) noexcept;
  Entry take_piece(Size bytes, Size alignment) noexcept;
  Entry take_refused(Size bytes, Size most, Size alignment, size_t looks) noexcept;
  bool drop(Entry freed) noexcept;
  void drop_around(std::uintptr_t address, Size size, Size begin, Size end) noexcept;
  void retry_refused() noexcept;
  Entry take_part(Size bytes, bool huge) noexcept;
  Entry compose(Size bytes, Size alignment, bool huge) noexcept;
  static Entry move(const Entry& from, Size size) noexcept;
  Entry* find(std::uintptr_t address) noexcept;
  bool insert(const Entry& entry) noexcept;
  void erase(Entry* entry) noexcept;
  size_t place_of(std::uintptr_t address) const noexcept;

  Lock lock_;
  MetadataArray<Entry> table_;      // open addressing; a power of two of them
  size_t count_ = 0, refused_ = 0;  // in the table; refused
  std::atomic<size_t> mapped_{0};   // mappings of their own; read without the lock
  size_t look_at_ = 0;              // in the table, for the next that was refused
  BlockRanges ranges_;
  KeptBlocks kept_{!kChecked};  // guards of the checked build are a block's own
  std::atomic<Size> live_{0};
};

}  // namespace memoir::malloc_
