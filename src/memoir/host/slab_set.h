// SPDX-License-Identifier: Apache-2.0
//
// The slabs of one remembered program. A slab is only memory: any plan that fits may be followed in it, one
// at a time; so many input shapes share one slab, and memory grows with the concurrent passes, not with the
// plans. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "memoir/host/slab.h"

namespace memoir {

struct SlabSetOptions {
  size_t max_slabs = 8;       // concurrent passes beyond this run without a slab
  Size max_bytes = ~Size{0};  // over all slabs
  bool poison = false;        // see Slab::create()
};

class SlabSet {
 public:
  explicit SlabSet(SlabSetOptions options) noexcept : options_(options) {}
  ~SlabSet() { retire_all(); }
  SlabSet(const SlabSet&) = delete;
  SlabSet& operator=(const SlabSet&) = delete;

  /// A slab leased for one pass over `layout`, or nullptr: run without. Creates or enlarges one when it must,
  /// which takes the time of touching its pages. The caller gives it back.
  Slab* acquire(const std::shared_ptr<const PlannedLayout>& layout) noexcept;
  void give_back(Slab* slab) noexcept;
  /// Gives all memory back: idle slabs at once, others with their pass or their last live object.
  void retire_all() noexcept;

  /// Bytes of the slabs held now.
  Size held_bytes() const noexcept;
  /// Slabs held now.
  size_t size() const noexcept;

 private:
  struct Member {
    Slab* slab = nullptr;  // nullptr while it is being created
    Size size = 0;
    bool leased = false;
    size_t ticket = 0;  // distinguishes members that have no slab yet
  };

  Member* best_idle(const PlannedLayout* layout, Size size) noexcept;
  Size held_locked() const noexcept;

  mutable std::mutex mutex_;
  std::vector<Member> members_;
  size_t tickets_ = 0;
  SlabSetOptions options_;
};

}  // namespace memoir
