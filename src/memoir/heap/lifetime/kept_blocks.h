// SPDX-License-Identifier: Apache-2.0
//
// Freed blocks above half a MiB that are kept for a while, within a budget: which of them serves a request,
// and which go when. memoir's malloc has mappings of the system behind it, the simulation addresses of an
// arena. What is kept serves other sizes too: a larger one is cut, and of smaller ones the pages move into a
// new place, which then has parts:
//
//   block   | pages of one that was freed | of another | fresh |     `cuts` are the ends of all but the last
//
// Not thread-safe, but for bytes() and keeps_much().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir {

struct LargeBlock {
  static constexpr size_t kMostParts = 4;
  std::uintptr_t address = 0;      // 0: none
  Size size = 0;                   // bytes
  Size cuts[kMostParts - 1] = {};  // ascending, from the address on; then zeros
  std::uint32_t range = 0;         // that it is a piece of; 0: a mapping of its own
  bool refused = false;            // freed, and the system would not unmap it
  bool zero = false;               // of those: without pages
  size_t count() const noexcept;
  Size last_begin() const noexcept { return count() == 1 ? 0 : cuts[count() - 2]; }
  void shrink(Size to) noexcept;
};

class KeptBlocks {
 public:
  static constexpr unsigned kMoment = 2;         // purges
  static constexpr Size kLeastPart = 64 * kKiB;  // moving less is not worth a call of the system
  static constexpr Size kHugeFrom = 4 * kMiB;    // smaller blocks have no whole huge page for sure

  /// `cuts`: blocks may be cut and composed.
  explicit constexpr KeptBlocks(bool cuts) noexcept : cuts_(cuts) {}

  /// Any thread.
  Size bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// Whether some of it is kept for a moment only, where so many bytes live. Any thread.
  bool keeps_much(Size live) const noexcept { return bytes() > budget(live); }

  /// Whether add() may be called: within `most` bytes, or where nothing is kept. Else the oldest makes room.
  bool has_room(Size size, Size most) const noexcept {
    return count_ == 0 || (bytes() + size <= most && count_ < kMost);
  }
  void add(const LargeBlock& freed) noexcept;
  LargeBlock take_oldest() noexcept;

  /// A purge begins; then the oldest is taken as long as it is due: what was freed `age` purges ago or
  /// earlier, and earlier than that what is kept beyond a quarter of `live`. The last sizes of a loop over
  /// buffers stay for a moment, whatever lives.
  void begin_purge() noexcept { ++purges_; }
  bool is_due(unsigned age, Size live) const noexcept;

  /// The smallest that has the size; one that is much larger only where it can be cut. nullptr: none.
  const LargeBlock* fitting(Size bytes, Size alignment) const noexcept;
  struct Taken {
    LargeBlock block;            // no address: none
    LargeBlock* rest = nullptr;  // what stays of the one that it was cut from, behind it
  };
  Taken take_fitting(Size bytes, Size alignment, bool huge) noexcept;

  /// What is made of parts where `bytes` are asked for: whole huge pages, if that wastes little.
  static Size composed_size(Size bytes, bool huge) noexcept;
  /// Up to `bytes` from the end of the largest that is kept, in one part; or nothing. Tables of huge pages
  /// move as they are between places that lie alike, so with `huge` what is no whole huge page goes first:
  /// drop(address, size) says whether it went.
  template <class Drop>
  LargeBlock take_part(Size bytes, bool huge, Drop drop) noexcept {
    Kept* const largest = largest_part();
    if (largest == nullptr) return {};
    LargeBlock& whole = largest->block;
    Size length = whole.size - whole.last_begin();
    const Size ragged = huge ? (whole.address + whole.size) % kHugePage : 0;
    if (ragged != 0 && ragged < length && drop(whole.address + whole.size - ragged, ragged)) {
      shrink(largest, ragged);
      length -= ragged;
    }
    LargeBlock part;
    part.size = length < bytes ? length : bytes;
    part.address = whole.address + whole.size - part.size;
    shrink(largest, part.size);
    return part;
  }

 private:
  static constexpr size_t kMost = 64;
  static constexpr Size kHugePage = 2 * kMiB;
  struct Kept {
    LargeBlock block;
    unsigned freed = 0;  // the purge before which it was freed
  };

  static Size budget(Size live) noexcept;
  Kept* largest_part() noexcept;
  void shrink(Kept* one, Size by) noexcept;
  void remove(Kept* one) noexcept;

  bool cuts_;
  Kept kept_[kMost];  // the oldest first
  size_t count_ = 0;
  unsigned purges_ = 0;
  std::atomic<Size> bytes_{0};
};

}  // namespace memoir
