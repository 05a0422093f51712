// SPDX-License-Identifier: Apache-2.0
//
// Plans of problems that are mostly loops: each loop as rings of a few rounds (ring.h), the best of them
// unrolled over all rounds, and whatever else there is, prologue, epilogue and weights, fitted around. If
// that sticks out, it is squeezed in together with the first and the last rounds, between which all is
// pinned. How long this takes does not depend on the number of rounds, but for the unrolling.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/search/loop/periods.h"
#include "memoir/plan/search/loop/press.h"
#include "memoir/plan/search/loop/ring.h"

namespace memoir {

/// Not thread-safe.
class LoopSearch {
 public:
  /// Both must outlive it. `said` as said_loops() has it; empty: they are looked for.
  LoopSearch(const Problem& problem, const Sections& sections, const std::vector<std::uint32_t>& said,
             std::uint64_t seed);

  /// There is a loop where the problem is the fullest.
  bool worthwhile() const { return !loops_.empty(); }
  /// One turn. Offsets of all buffers when it came to a better plan than before; else none. `work` is
  /// increased by the placements.
  std::vector<Offset> step(Size target, const SearchLimits& limits, std::uint64_t& work);
  /// Nothing is left to try.
  bool ended() const { return ended_; }
  /// Of the last plan, or the one before if that was smaller.
  Size arena() const { return arena_; }

 private:
  struct Plans {  // of one loop
    Loop loop;
    Size beside = 0;  // bytes that live throughout
    Size unit = 1;
    Size load = 0;  // of the ring
    std::uint32_t next_rounds = 1;
    bool all_rings = false;  // there is no other one that is small enough
    std::vector<std::unique_ptr<Ring>> rings;
    std::vector<std::uint32_t> rounds;  // per ring
    std::size_t best = 0;
    std::uint64_t turn = 0;
  };

  static Size goal_of(const Plans& plans, Size target);
  bool add_ring(Plans& plans);
  static std::size_t one_of(const Plans& plans, std::uint64_t turn);
  Size top(const Plans& plans) const;
  void unroll();
  void find_ends(const std::vector<std::uint32_t>& around);
  void improve_ends(Size target, std::uint64_t last, const SearchLimits& limits, std::uint64_t& work);

  const Problem& problem_;
  const Sections& sections_;
  std::uint64_t seed_;
  std::vector<Plans> loops_;
  std::vector<Offset> placed_;   // the best rings unrolled, what is around fitted
  std::vector<Offset> offsets_;  // of the best plan
  Size arena_ = ~Size{0};
  struct Ends {
    std::vector<std::uint32_t> buffers;  // that may move, and those that they meet
    std::vector<Offset> offsets;         // of these
    Size height = 0, pinned = 0;
    Press press;
    std::vector<std::uint32_t> loose;  // of `buffers`, by their place there, those that may move
    unsigned turns = 0;
    std::unique_ptr<ExactTurns> exact;  // of these, the others are obstacles
  };
  std::optional<Ends> ends_;
  bool ended_ = false;
};

}  // namespace memoir
