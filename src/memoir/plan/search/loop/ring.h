// SPDX-License-Identifier: Apache-2.0
//
// Some rounds of a loop, after which the first one follows again: time is a circle, and all that is known of
// two buffers is whether they meet. A plan of the ring is one of the loop, however many rounds that has.
// First fits in many orders; then, in turn, the best is squeezed into less room (squeeze.h) and pushed down
// again, and the exact search looks for one. It sees the circle cut open: what lives across the cut has a gap
// in the middle.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "memoir/plan/random.h"
#include "memoir/plan/search/loop/exact_turns.h"
#include "memoir/plan/search/loop/press.h"

namespace memoir {

/// Not thread-safe.
class Ring {
 public:
  /// Sizes in bytes, multiples of `unit`, as all offsets will be; `lives`: how long each lives, in any unit.
  /// Each pair that meets once.
  Ring(std::vector<Size> sizes, std::vector<std::uint32_t> lives,
       const std::vector<std::pair<std::uint32_t, std::uint32_t>>& meet, Size unit, std::uint64_t seed);
  /// When each lives, on a circle of so many sections: [begin, begin + life). For the exact search; without,
  /// there is none.
  void cut_open(const std::vector<std::uint32_t>& begins, std::uint32_t around);

  /// Goes on until the height is at most `target`, `moves` placements were made, or the limits stop it.
  /// `work` is increased by the placements.
  void improve(Size target, std::uint64_t moves, const SearchLimits& limits, std::uint64_t& work);

  /// Of the best so far, valid after the first improve().
  Size height() const { return height_; }
  const std::vector<Offset>& offsets() const { return offsets_; }
  std::size_t size() const { return sizes_.size(); }
  /// Proven: no plan of this ring is lower.
  Size bound() const { return opened_ ? opened_->bound() : 0; }
  /// Others that each one meets, on average.
  double met() const;

 private:
  void fit(unsigned turn);
  void push_down(std::vector<Offset>& offsets) const;
  Size height_of(const std::vector<Offset>& offsets) const;
  void keep(std::vector<Offset> offsets);
  std::vector<std::uint32_t> order_of(unsigned turn);

  std::vector<Size> sizes_;
  std::vector<std::uint32_t> lives_;
  Size unit_;
  std::vector<std::uint32_t> begin_, other_;  // neighbours
  Random random_;
  Press press_;
  Size height_ = ~Size{0};
  std::vector<Offset> offsets_;
  unsigned fits_ = 0;
  std::unique_ptr<ExactTurns> opened_;
};

}  // namespace memoir
