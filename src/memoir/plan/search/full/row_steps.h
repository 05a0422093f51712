// SPDX-License-Identifier: Apache-2.0
//
// How rows came to be: each step puts others in the place of some neighbours, and knows the step before it.
// Told backwards from the last row they say where everybody lay: there the free orders of the tree are
// decided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memoir/plan/search/full/row_tree.h"

namespace memoir {

inline constexpr std::uint32_t kNoStep = ~std::uint32_t{0};

struct RowStep {
  std::vector<RowTree::Leaf> before, after;  // neighbours, and those that came in their place
  std::uint32_t beside = kNoStep;            // a name: in which order they are, seen from there
  bool beside_first = false;
  std::uint32_t previous = kNoStep;
};

/// The step that replaced this block of the tree.
RowStep row_step(const RowTree& tree, const RowTree::Block& block, const std::vector<RowTree::Leaf>& after);

class RowSteps {
 public:
  using Units = RowTree::Units;
  static constexpr Units kNowhere = -1;

  /// Returns its number.
  std::uint32_t add(RowStep step, std::uint32_t previous);

  /// Many steps were added since the last time that some were forgotten.
  bool crowded() const;
  /// Keeps those that lead to these steps, each a number or kNoStep, which change to their new numbers.
  void forget_others(const std::vector<std::uint32_t*>& lasts);

  /// From this row, whose last step that was: per buffer where it lay, or kNowhere. Names below `buffers` are
  /// theirs.
  std::vector<Units> way_back(std::vector<RowTree::Leaf> row, std::uint32_t last, std::size_t buffers) const;

 private:
  std::vector<RowStep> steps_;
  std::size_t kept_ = 0;
};

}  // namespace memoir
