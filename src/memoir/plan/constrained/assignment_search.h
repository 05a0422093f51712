// SPDX-License-Identifier: Apache-2.0
//
// Complete search over a constrained problem: first which arena each body goes to and, when replanning, which
// stay where they were; then, for each arena by itself, the smallest layout (layout_search.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "memoir/plan/constrained/constrained_bounds.h"
#include "memoir/plan/constrained/layout_search.h"

namespace memoir {

class AssignmentSearch {
 public:
  /// Only plans better than `incumbent` (if any) that keep to capacities and moves are looked for. One of
  /// `enough`, which is not below the bound, is good enough; with `any_fit` the first is. `improved` is
  /// called with each one found.
  AssignmentSearch(const Bodies& bodies, const ConstrainedBound& bound, std::optional<Objective> incumbent,
                   Objective enough, bool any_fit, std::function<void(const ConstrainedPlan&)> improved);

  /// kInfeasible: there is none better than the last one reported. kFits: that is good enough.
  Verdict run(const SearchLimits& limits);

  std::uint64_t nodes() const { return nodes_; }

 private:
  struct Option {
    std::uint32_t arena;
    Offset fixed;
    std::uint64_t moves, cost;
  };
  struct Layout {
    Verdict verdict;  // kFits: of the least size
    Size size;
    std::vector<Offset> offsets;
  };

  std::vector<Option> options_of(const Body& body) const;
  Verdict assign(std::size_t depth, std::uint64_t moves, std::uint64_t cost);
  Verdict lay_out(std::uint64_t moves, std::uint64_t cost);
  const Layout& smallest(std::uint32_t arena, const std::vector<std::uint32_t>& chosen, Size limit);
  bool overloaded(std::uint32_t arena) const;
  Objective reachable(std::uint64_t moves, std::uint64_t cost) const;

  const Bodies& bodies_;
  const ConstrainedBound& bound_;
  std::optional<Objective> best_;
  const Objective enough_;
  const bool any_fit_;
  std::function<void(const ConstrainedPlan&)> improved_;
  SearchLimits limits_;

  std::vector<std::vector<Option>> options_;            // per body, best first
  std::vector<std::uint32_t> order_;                    // of the bodies
  std::vector<std::uint32_t> taken_;                    // per body: its option
  std::vector<std::uint64_t> moves_left_, cost_left_;   // at least, of those from a depth on
  bool only_one_ = true;                                // no body has a choice
  std::map<std::vector<std::uint32_t>, Layout> known_;  // by arena, bodies and their options
  std::uint64_t nodes_ = 0;
};

}  // namespace memoir
