// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <queue>
#include <vector>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/random.h"
#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

/// Local search over the order of a first fit, for problems of any size. Whoever ends above the target is the
/// squeaky wheel (Joslin and Clements, "Squeaky wheel optimization", JAIR 10, 1999): it gets an earlier turn,
/// early enough to end below, and what then no longer fits is placed again. Only that: a buffer is looked at
/// again when one before it has moved into its place or out from under it, so an attempt costs some dozens of
/// fits, on ten buffers as on a million. Attempts that raise the sum of what sticks out, or that move too
/// much, are taken back; a little worse is sometimes accepted.
///
/// Can be continued. Not thread-safe; one per thread. Memory as FitIndex, and 40 bytes a buffer.
class OrderSearch {
 public:
  /// Both must outlive it. Places everything once: as long as fit_in_order().
  OrderSearch(const Problem& problem, const Sections& sections, const Order& order, std::uint64_t seed);

  /// Tries to come down to `target`, until it does, or `fits` placements were made, or the limits stop it.
  /// True: it did. `work` is increased by the placements.
  bool run(Size target, std::uint64_t fits, const SearchLimits& limits, std::uint64_t& work);

  /// The smallest arena seen so far, and its offsets.
  Size arena() const { return best_arena_; }
  const std::vector<Offset>& offsets() const { return best_; }

 private:
  using Turn = double;  // halfway between two others there is always room for one more
  using Waiting = std::pair<Turn, std::uint32_t>;

  void aim(Size target);
  bool attempt();
  void earlier_neighbours(std::uint32_t buffer);
  bool fits_among_first(std::uint32_t buffer, std::size_t count);
  bool settle(double limit, std::size_t most_moves);
  Offset first_fit(std::uint32_t buffer);
  void mark(std::uint32_t buffer);
  void move(std::uint32_t buffer, Offset offset);
  void count_over(std::uint32_t buffer, bool add);
  void keep_if_better();
  Size excess(std::uint32_t buffer) const;

  const Problem& problem_;
  Size target_ = 0;
  FitIndex index_;  // all buffers, where they are now
  std::vector<Turn> turn_;
  std::vector<Offset> offsets_, best_;
  Size best_arena_ = ~Size{0};
  std::vector<std::uint32_t> over_, over_at_;  // who ends above the target, and where it stands in over_
  double cost_ = 0;                            // the sum of their excesses
  Random random_;
  std::uint64_t fits_ = 0;

  // Of one attempt.
  std::vector<bool> dirty_;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> queue_;
  std::vector<std::pair<std::uint32_t, Offset>> moved_;  // and from where
  std::vector<std::uint32_t> earlier_;
  std::vector<std::pair<Offset, Offset>> found_;
};

}  // namespace memoir
