// SPDX-License-Identifier: Apache-2.0
//
// Brings a plan into less room by force, for problems that are full nearly everywhere. What sticks out is
// pushed down onto the others, and then one buffer after another that overlaps goes where it overlaps least,
// counted in bytes of height. Pairs that still overlap then weigh more, so that a place that many want
// becomes dear and someone else gives way (guided local search, as Egeblad, Nielsen and Odgaard do it for
// nesting, EJOR 183, 2007). When no two overlap, that is a plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/random.h"
#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

/// Can be continued. Not thread-safe. Memory: 24 bytes for each pair that lives together.
class Squeeze {
 public:
  /// Every alignment must divide the grid's unit. Keeps no reference.
  Squeeze(const Problem& problem, const Sections& sections, const Grid& grid, std::uint64_t seed);
  /// Of buffers whose times are not known, only which pairs meet, each pair once. Bytes, multiples of `unit`.
  Squeeze(const std::vector<Size>& sizes, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& meet,
          Size unit, std::uint64_t seed);

  /// These stay where start() puts them: others give way.
  void pin(std::vector<bool> pinned) { pinned_ = std::move(pinned); }

  /// From a plan into `height` bytes, no less than the largest size. All weights are 1 again.
  void start(const std::vector<Offset>& offsets, Size height);

  /// Until no two overlap, or that many moves were made, or the limits stop it. True: offsets() are a plan of
  /// the height. `work` is increased by the moves.
  bool run(std::uint64_t moves, const SearchLimits& limits, std::uint64_t& work);

  std::vector<Offset> offsets() const;

 private:
  using Units = std::int64_t;
  struct Bend {  // of what an offset costs: from here on it rises by so much more for each unit
    Units at;
    double slope;
  };

  Units overlap(std::uint32_t a, std::uint32_t b) const {
    return std::min(at_[a] + size_[a], at_[b] + size_[b]) - std::max(at_[a], at_[b]);
  }
  template <class EachPair>
  void link(const EachPair& each_pair);
  void mark(std::uint32_t buffer, bool overlaps);
  void step(std::uint32_t buffer);
  void sort_bends(Units highest);
  void move(std::uint32_t buffer, Units to);

  Size unit_;
  Units height_ = 0;
  Random random_;
  std::vector<Units> size_, at_;
  std::vector<bool> pinned_;  // empty: nobody is
  std::vector<std::uint32_t> begin_, other_,
      back_;                                // neighbours, and where each has its entry of the same pair
  std::vector<float> weight_;               // per entry
  std::vector<std::uint32_t> count_;        // per buffer: with how many it overlaps
  std::vector<std::uint32_t> bad_, where_;  // those that do, and where each stands there
  std::vector<Bend> bends_, sorted_;        // scratch
  std::vector<std::uint32_t> bins_;
};

}  // namespace memoir
