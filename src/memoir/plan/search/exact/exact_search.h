// SPDX-License-Identifier: Apache-2.0
//
// One complete depth-first search: does this problem fit into this many bytes? See docs/concepts/exact.md for
// the whole argument.
//
// Buffers are placed bottom-up: offsets never decrease along a branch, and each buffer rests on what is
// placed below it. A plan that is not of this form can be pushed down into one, so nothing is lost
// (minimalloc, ASPLOS'23, calls it canonical). What a node knows, for every unplaced buffer j and section s:
//
//   contact[j]   where j would come to rest now: the top of the highest placed buffer it overlaps in time,
//   aligned lowest[j]    a bound on where j can end up, >= contact[j]; above it when j was passed over and
//   must rest on another remaining[s] bytes of the unplaced buffers of s;  a node is dead when for some s min
//   lowest + remaining[s] > capacity
//
// The minimum is not kept: each section watches one "witness" that satisfies the inequality, and looks for
// another only when its witness is raised or placed (as SAT solvers watch literals). Backtracking restores
// nothing of it.
//
// Where alignments differ, those at multiples of a large one are counted once more, in steps of it: each
// takes up its size rounded up to the step, all but the topmost. That is a layer: sections of their own over
// the same time, with these buffers alone, and a room that ends where the last of them may begin.
//
// Obstacles, which lie where they lie, are not placed. A buffer that would come to rest in one that lives
// with it comes to rest above it; "aligned" means that too. Like rounding up it never goes down, keeps the
// order of what is rounded, and changes nothing the second time, and no more is asked of it in the whole
// argument. Where a section must hold what remains, the obstacles' bytes do not count as room.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/index/stretches.h"
#include "memoir/plan/plan.h"

namespace memoir {

enum class Verdict {
  kFits,        // offsets were written
  kInfeasible,  // proven: no plan of this capacity exists
  kGaveUp,      // the limit came first; nothing is known
};

/// When a search must stop. All are optional; the flags are polled every few hundred nodes.
struct SearchLimits {
  std::uint64_t nodes = ~std::uint64_t{0};
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  const std::atomic<bool>* stop = nullptr;    // the caller's: Ctrl-C
  const std::atomic<bool>* enough = nullptr;  // another thread has found the answer
};

/// Which of two candidates at one offset is tried first: keys as make_order() has them, A, T and W. Lengths
/// are counted in sections, each with a width of its own where `warp` > 0: exp(warp * N(0, 1)), drawn from
/// the seed. Stretching time changes nothing about a problem, so one ranking under many stretchings is many
/// rankings, all of them sensible. Where what is left falls apart in time, T is taken again in each piece
/// from what is left.
struct Ranking {
  std::string_view keys = "TWA";
  double warp = 0;
  std::uint64_t seed = 0;
};

/// Reusable for many capacities and orders of one problem. Not thread-safe; one per thread. Memory is
/// proportional to the number of pairs that live together. No allocation happens while it searches.
class ExactSearch {
 public:
  /// The problem must outlive it.
  explicit ExactSearch(const Problem& problem);
  /// The buffers are live in these stretches of time alone. Then run() by a Ranking only; sections() are
  /// those of the pieces, obstacles too.
  ExactSearch(const Problem& problem, const Stretches& stretches);

  Verdict run(Size capacity, const Ranking& ranking, const SearchLimits& limits,
              std::vector<Offset>& offsets);
  /// `order` is a permutation of the buffers: among candidates at one offset, the earlier is tried first.
  Verdict run(Size capacity, const std::vector<std::uint32_t>& order, const SearchLimits& limits,
              std::vector<Offset>& offsets);

  std::uint64_t nodes() const { return nodes_; }  // of the last run: placements tried
  const Sections& sections() const { return sections_; }
  const Grid& grid() const { return grid_; }

 private:
  using Units = std::int64_t;  // offsets and sizes in units of the grid
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Piece {  // an independent part: buffers members_[begin, end) in sections [first, last)
    std::uint32_t begin, end, first, last;
  };
  struct Frame {  // an open node, or a row of pieces
    Piece piece;
    Units floor;
    bool split;                       // the pieces of it, one after another
    bool several = false;             // of these, there are two or more
    std::size_t begin = 0, next = 0;  // its candidates are the last of candidates_, from begin on
    std::size_t mark = 0, inner_mark = 0;
    std::uint64_t state = 0, inner_state = 0;
    std::uint32_t buffer = 0;  // the one that is placed now, and where
    Units at = 0;
  };
  struct Layer {
    Size step;      // bytes
    Units in_grid;  // the same
  };
  struct Saved {
    std::uint32_t buffer;
    Units contact, lowest;
  };

  void prepare();
  void prepare_obstacles();
  bool live_together(std::uint32_t a, std::uint32_t b) const;
  template <class Visit>
  void each_section(std::uint32_t buffer, Visit&& visit) const {
    for (std::uint32_t p = stretch_begin_[buffer]; p < stretch_begin_[buffer + 1]; ++p) {
      for (std::uint32_t s = sections_.first[p]; s < sections_.last[p]; ++s) visit(s);
    }
  }
  void prepare_layers();
  template <class Visit>
  void each_layer(std::uint32_t buffer, Visit&& visit) const {
    for (std::uint32_t l = 0; l < layers_.size(); ++l) {
      if (problem_[buffer].alignment % layers_[l].step == 0)
        visit(layers_[l], sections_.count * (l + 1), padded(buffer, layers_[l]));
    }
  }
  bool reset(Size capacity);
  Verdict run(Size capacity, const SearchLimits& limits, std::vector<Offset>& offsets);
  Verdict search();
  void rank(const Piece& piece);
  bool before(std::uint32_t a, std::uint32_t b) const;
  void enter(const Piece& piece, Units floor, bool split);
  Verdict next_candidate(Frame& node, bool returned, Verdict verdict);
  Verdict next_piece(Frame& pieces, bool returned, Verdict verdict);
  bool find_candidates(Frame& node);
  bool take(Frame& node, std::uint32_t buffer, Units at, bool& cut);
  void take_back(const Frame& node);
  bool place(std::uint32_t buffer, Units at);
  bool pass_over(std::uint32_t buffer, Units floor);
  bool find_witness(std::uint32_t section);
  Units room(std::uint32_t section, Units from) const;
  Units highest_floor(std::uint32_t section) const;
  bool holds(std::uint32_t section);
  bool sections_hold(std::uint32_t first, std::uint32_t last);
  Units padded(std::uint32_t buffer, const Layer& layer) const {
    return static_cast<Units>((problem_[buffer].size + layer.step - 1) / layer.step) * layer.in_grid;
  }
  void remain(std::uint32_t buffer, bool more);
  void undo(std::size_t trail);
  bool out_of_time();
  std::uint64_t key(std::uint32_t buffer) const;
  /// The lowest place >= value that meets the alignment and is above or below every obstacle.
  Units align(Units value, std::uint32_t buffer) const {
    const Units a = alignment_[buffer];
    if (a != 1) value = (value + a - 1) / a * a;
    return obstacles_.empty() ? value : above_obstacles(value, buffer);
  }
  Units above_obstacles(Units value, std::uint32_t buffer) const;

  const Problem& problem_;
  Sections sections_;
  std::vector<std::uint32_t> stretch_begin_;  // per buffer: its first of the sections' stretches
  std::vector<Range> obstacles_;              // the last of the sections' pieces
  Grid grid_;

  // Per buffer.
  std::vector<std::uint32_t> first_, last_;  // from its first section to its last, gaps included
  std::vector<std::uint32_t> twin_, position_, rank_;
  std::vector<Units> size_, alignment_, latest_, contact_, lowest_, at_;
  std::vector<double> width_;                                // of the sections it lives in
  std::vector<Units> most_;                                  // bytes left in the fullest of them
  std::vector<std::uint32_t> neighbour_begin_, neighbours_;  // who lives together with whom
  struct Interval {
    Units begin, end;
  };
  // Where it cannot start, by offset; they do not touch. Ends are aligned.
  std::vector<std::uint32_t> blocked_begin_;
  std::vector<Interval> blocked_;
  std::vector<Layer> layers_;
  // Per section, those of the time first, then those of each layer.
  std::vector<std::uint32_t> member_begin_, section_members_, witness_, crossing_;
  std::vector<Units> remaining_;
  std::vector<Units> free_;  // of the capacity: bytes that no obstacle takes
  std::vector<std::uint32_t> taken_begin_;
  std::vector<Interval> taken_;  // by the obstacles, by offset; they do not overlap

  Units capacity_ = 0;
  std::vector<std::uint32_t> members_;     // the unplaced, each piece one stretch
  std::vector<std::uint32_t> candidates_;  // a stack of lists, one per open node
  std::vector<Saved> trail_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>>
      old_ranks_;                      // (buffer, its rank), while a piece has its own
  std::vector<std::uint32_t> ranked_;  // scratch
  std::vector<Frame> frames_;
  std::string_view keys_;               // empty: an order was given
  std::vector<std::uint64_t> refuted_;  // hashes of states known to be dead
  std::uint64_t state_ = 0, salt_ = 0;
  SearchLimits limits_;
  std::uint64_t nodes_ = 0;
};

}  // namespace memoir
