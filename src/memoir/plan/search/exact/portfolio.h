// SPDX-License-Identifier: Apache-2.0
//
// What the exact search tries, one attempt after another. How long an attempt takes is a matter of luck: one
// ranking solves an instance in 500 placements, the next not in a million. So there are many short ones.
// Those that succeed do so within a few placements for each buffer, and that is the unit of their limits.
// First come a few plain rankings, then the same under random stretchings of time, with limits after Luby,
// Sinclair and Zuckerman ("Optimal speedup of Las Vegas algorithms", 1993). Where many buffers can be tied
// up, every other attempt does that.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

struct Attempt {
  std::uint64_t nodes;
  Ranking ranking;
  double keep = 0;         // above 0: tied up, see BundleOptions
  std::uint64_t seed = 0;  // of the ties
};

class Portfolio {
 public:
  /// `buffers` of the problem, at least one, become `bundles` where they can be tied.
  Portfolio(std::size_t buffers, std::size_t bundles, std::uint64_t seed);

  /// The first ones: no randomness but in the ties.
  std::vector<Attempt> opening() const;
  /// The next ones.
  std::vector<Attempt> next(std::size_t count);

 private:
  bool worth_tying() const;

  std::uint64_t unit_, tied_unit_;  // placements: of the shortest attempts
  double tied_;                     // the share of the buffers that is tied to others
  std::uint64_t seed_;
  std::uint64_t restarts_ = 0;
};

/// 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, ...: the k-th, from 1 on.
std::uint64_t luby(std::uint64_t k);

}  // namespace memoir
