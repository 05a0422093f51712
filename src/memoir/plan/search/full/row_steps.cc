// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/full/row_steps.h"

#include <algorithm>
#include <utility>

namespace memoir {
namespace {

constexpr std::size_t kMostForgotten = 1 << 16;  // steps that lead to no row any more

}  // namespace

RowStep row_step(const RowTree& tree, const RowTree::Block& block, const std::vector<RowTree::Leaf>& after) {
  RowStep step;
  tree.leaves(block, step.before);
  step.after = after;
  bool before = false;
  std::uint32_t name = kNoStep;
  if (tree.beside(block, name, before)) step.beside = name, step.beside_first = before;
  return step;
}

std::uint32_t RowSteps::add(RowStep step, std::uint32_t previous) {
  step.previous = previous;
  steps_.push_back(std::move(step));
  return static_cast<std::uint32_t>(steps_.size() - 1);
}

bool RowSteps::crowded() const { return steps_.size() > 2 * kept_ + kMostForgotten; }

void RowSteps::forget_others(const std::vector<std::uint32_t*>& lasts) {
  std::vector<std::uint32_t> moved(steps_.size(), kNoStep);
  for (const std::uint32_t* last : lasts) {
    for (std::uint32_t k = *last; k != kNoStep && moved[k] == kNoStep; k = steps_[k].previous) moved[k] = 0;
  }
  std::uint32_t kept = 0;
  for (std::uint32_t k = 0; k < steps_.size(); ++k) {
    if (moved[k] == kNoStep) continue;
    moved[k] = kept;
    if (steps_[k].previous != kNoStep) steps_[k].previous = moved[steps_[k].previous];
    if (kept != k) steps_[kept] = std::move(steps_[k]);
    ++kept;
  }
  steps_.resize(kept);
  kept_ = kept;
  for (std::uint32_t* last : lasts) *last = *last == kNoStep ? kNoStep : moved[*last];
}

std::vector<RowSteps::Units> RowSteps::way_back(std::vector<RowTree::Leaf> row, std::uint32_t last,
                                                std::size_t buffers) const {
  std::vector<Units> at(buffers, kNowhere);
  const auto place = [&](const std::vector<RowTree::Leaf>& leaves) {
    for (const RowTree::Leaf& wanted : leaves) {
      if (wanted.free) continue;
      Units below = 0;
      for (const RowTree::Leaf& leaf : row) {
        if (leaf.name == wanted.name) at[wanted.name] = below;
        below += leaf.size;
      }
    }
  };
  const auto find = [&](std::uint32_t name) {
    return std::find_if(row.begin(), row.end(), [&](const auto& leaf) { return leaf.name == name; });
  };
  for (std::uint32_t k = last; k != kNoStep; k = steps_[k].previous) {
    const RowStep& step = steps_[k];
    place(step.after);
    auto begin = row.end();
    for (const RowTree::Leaf& leaf : step.after) begin = std::min(begin, find(leaf.name));
    std::vector<RowTree::Leaf> before = step.before;
    if (step.beside != kNoStep && (find(step.beside) < begin) != step.beside_first)
      std::reverse(before.begin(), before.end());
    const auto where = begin - row.begin();
    row.erase(begin, begin + static_cast<std::ptrdiff_t>(step.after.size()));
    row.insert(row.begin() + where, before.begin(), before.end());
  }
  return at;
}

}  // namespace memoir
