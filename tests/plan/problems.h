// SPDX-License-Identifier: Apache-2.0
//
// Problems for the tests of this folder, and the slow oracle that every planner is held against.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "memoir/plan/align.h"
#include "memoir/plan/files/csv.h"
#include "memoir/plan/plan.h"

namespace memoir {

/// SearchOptions::deadline_s for a search that runs until its answer is proven, however busy the machine is.
inline constexpr double kNoDeadline = std::numeric_limits<double>::infinity();

/// A problem of tests/data/planning.
inline Problem challenge(const std::string& name) {
  return read_csv(std::string(MEMOIR_TEST_DATA) + "/planning/" + name).problem;
}

/// `count` buffers with ticks below `ticks`, sizes 1..most, and one of the alignments each.
inline Problem random_problem(std::mt19937_64& random, size_t count, Tick ticks, Size most,
                              const std::vector<Size>& alignments = {1}) {
  Problem problem;
  for (size_t i = 0; i < count; ++i) {
    const Tick begin = random() % ticks;
    const Tick end = begin + 1 + random() % (ticks - begin);
    problem.push_back({{begin, end}, 1 + random() % most, alignments[random() % alignments.size()]});
  }
  return problem;
}

/// The smallest arena of any plan: first fit by lowest offset in every order of the buffers. Enough, because
/// moving the buffers of a best plan down one after another, lowest first, gives the plan that this finds for
/// that order.
inline Size best_arena(const Problem& problem) {
  std::vector<size_t> order(problem.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Size best = ~Size{0};
  do {
    std::vector<Offset> offsets(problem.size());
    Size arena_size = 0;
    for (size_t k = 0; k < order.size(); ++k) {
      const Buffer& buffer = problem[order[k]];
      Offset offset = 0;
      for (size_t again = 0; again < k;) {
        const size_t j = order[again++];
        const Range placed{offsets[j], problem[j].size};
        if (buffer.lifetime.overlaps(problem[j].lifetime) && placed.overlaps({offset, buffer.size})) {
          offset = align_to(placed.end(), buffer.alignment);
          again = 0;
        }
      }
      offsets[order[k]] = offset;
      arena_size = std::max(arena_size, offset + buffer.size);
    }
    best = std::min(best, arena_size);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

}  // namespace memoir
