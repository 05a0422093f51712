// SPDX-License-Identifier: Apache-2.0
//
// Where is there room for a buffer among those already placed? The planners that place one buffer after
// another all ask this, and the obvious answer (sort the placed buffers that live together with it) costs the
// number of such pairs: 180 million on a graph of 70,000 buffers. This index costs O(log n) lists per
// question instead.
//
// Time is cut into columns, one per distinct birth (two buffers live together exactly when they share one). A
// segment tree stands over the columns, and each of its nodes keeps two lists of occupied address runs,
// merged where they touch:
//
//   covering   of the buffers that live through all the node's columns and not through all its parent's
//   touching   of the buffers that live in any of the node's columns, less those listed as covering above it
//
//   columns      0   1   2   3     a = [0, 4) covers the root: listed there
//   a  (0..10)   =============     b = [1, 2) is listed as covering leaf 1; it touches node 0-1 and the root
//   b (10..12)       ===           a question about columns [0, 2) reads what touches node 0-1 (b)
//                                  and what covers the nodes above it (a)
//
// In a tight packing the touching runs of a wide node merge into a few, so the question skips what it need
// not see.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/index/run_lists.h"
#include "memoir/plan/plan.h"

namespace memoir {

/// Which of the gaps that are large enough: the lowest, or the smallest (the lowest of those; of thousands,
/// only the lowest 128 are compared). The room above all buffers is not a gap.
enum class Fit { kFirst, kBest };

/// Not thread-safe. Keeps a reference to the problem, which validate() must accept.
class GapIndex {
 public:
  explicit GapIndex(const Problem& problem);

  /// The offset at which buffer `index` would not overlap any placed buffer that lives together with it.
  Offset find(size_t index, Fit fit);
  /// Records that buffer `index` lies at `offset`.
  void place(size_t index, Offset offset);

 private:
  using Run = RunLists::Run;
  struct Node {
    RunLists::List covering, touching;
  };
  struct Columns {
    std::uint32_t begin, end;
  };

  template <class Whole, class Part>
  void visit(Columns columns, std::uint32_t top_level, Whole whole, Part part) const;
  Run next_gap(Offset position, Size size);

  const Problem& problem_;
  std::vector<Columns> columns_;       // per buffer
  std::vector<std::uint32_t> levels_;  // the first node of each, from the leaves (one per column) to the root
  std::uint32_t block_level_ = 0;      // above it nothing is listed as covering
  std::vector<Node> nodes_;
  RunLists lists_;
  std::vector<RunLists::Cursor> cursors_;  // of the question being answered
  std::vector<Offset> begins_;             // where the run begins that each cursor is at, or less
};

/// Places the buffers one after another, each into the gap that `fit` chooses.
Plan place_in_order(const Problem& problem, const std::vector<std::uint32_t>& order, Fit fit);

}  // namespace memoir
