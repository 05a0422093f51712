// SPDX-License-Identifier: Apache-2.0
//
// The exact search in short attempts, at what is wanted and between that and the best, of buffers that do not
// live all the time and go around obstacles.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/index/stretches.h"
#include "memoir/plan/search/exact/exact_search.h"
#include "memoir/plan/search/exact/portfolio.h"

namespace memoir {

/// Not thread-safe. Stays where it is.
class ExactTurns {
 public:
  /// `problem`: each from its first stretch to its last.
  ExactTurns(Problem problem, Stretches stretches, std::uint64_t seed);
  ExactTurns(const ExactTurns&) = delete;
  ExactTurns& operator=(const ExactTurns&) = delete;

  /// Attempts at less than `height` bytes, until one comes through, nothing lower than `target` is wanted,
  /// `work`, which counts placements, reaches `last`, or the limits stop it. Offsets when one came through.
  std::vector<Offset> run(Size height, Size target, std::uint64_t last, const SearchLimits& limits,
                          std::uint64_t& work);

  /// Proven: no plan is lower. Bytes.
  Size bound() const { return bound_; }

 private:
  Problem problem_;
  Stretches stretches_;
  ExactSearch exact_;
  Portfolio portfolio_;
  std::vector<Attempt> attempts_;  // the next one last
  double reach_ = 0.5;             // how far between the target and the best most attempts aim
  std::uint64_t turn_ = 0;
  Size bound_ = 0;
};

}  // namespace memoir
