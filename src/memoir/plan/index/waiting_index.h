// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "memoir/plan/plan.h"

namespace memoir {

/// The buffers not yet placed, to be asked for the best one whose lifetime lies in given bounds. A segment
/// tree over the buffers in order of birth, searched by branch and bound: O(log n) when the best of many
/// fits, which is usual.
class WaitingIndex {
 public:
  /// `better(a, b)` orders the buffers (indices into the problem); equal ones keep the problem's order.
  WaitingIndex(const Problem& problem, const std::function<bool(const Buffer&, const Buffer&)>& better);

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  /// The best waiting buffer with begin in [begin_low, begin_high) and end in (end_low, end_high], or kNone.
  std::uint32_t find(Tick begin_low, Tick begin_high, Tick end_low, Tick end_high) const;
  void remove(std::uint32_t index);
  bool empty() const { return nodes_[1].rank == kNone; }

 private:
  struct Node {
    Tick least_end = ~Tick{0}, greatest_end = 0;
    std::uint32_t rank = kNone;  // of the best buffer below
  };
  struct Query {
    std::uint32_t begin, end;  // leaves
    Tick end_low, end_high;
    std::uint32_t rank;  // the best found so far
  };
  Node join(std::uint32_t parent) const;
  void search(std::uint32_t node, std::uint32_t first, std::uint32_t width, Query& query) const;

  std::vector<Tick> births_;            // sorted
  std::vector<std::uint32_t> leaf_of_;  // per buffer
  std::vector<std::uint32_t> by_rank_;  // buffers, best first
  std::uint32_t leaves_ = 1;
  std::vector<Node> nodes_;  // node 1 is the root, 2i and 2i+1 the children of i
};

}  // namespace memoir
