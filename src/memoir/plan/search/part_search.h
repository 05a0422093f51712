// SPDX-License-Identifier: Apache-2.0
//
// One independent part of a problem on its way to a target: cheap list placements first, then the exact
// search in rounds of growing node limits, with the core-first method and the local search over orders
// between for what is large. One step is one method or one round.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "memoir/plan/search.h"
#include "memoir/plan/search/core_first.h"
#include "memoir/plan/search/exact/bundles.h"
#include "memoir/plan/search/exact/canonical.h"
#include "memoir/plan/search/exact/exact_search.h"
#include "memoir/plan/search/exact/portfolio.h"
#include "memoir/plan/search/full/row_sweep.h"
#include "memoir/plan/search/full/squeeze.h"
#include "memoir/plan/search/loop/loop_search.h"
#include "memoir/plan/search/order_search.h"

namespace memoir {

/// What all parts of one search share.
struct SearchContext {
  unsigned threads = 1;
  std::uint64_t seed = 0;
  bool repeatable = false;  // the same result for any number of threads
  bool exact_only = false;  // no core-first: the planner "exact"
  std::uint64_t work_limit = ~std::uint64_t{0};
  std::uint64_t work = 0;  // placements tried so far, over all parts
  SearchLimits limits;     // deadline and stop flag
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  bool stopped() const;
  /// How many threads to use now: one at first. Most problems are solved before a second one has started.
  unsigned threads_now() const;
  /// What the shares of several methods are counted in: seconds or, where the answer must be repeatable,
  /// work.
  double spent() const;
  /// How much there is of that until the end; where there is none, that of a second.
  double total() const;
  std::uint64_t work_left() const { return work_limit - (work < work_limit ? work : work_limit); }
};

class PartSearch {
 public:
  /// `loops` as SearchOptions has them, of the part's buffers; empty: nothing is said.
  explicit PartSearch(Canonical canonical, std::vector<std::uint32_t> loops = {});
  ~PartSearch();
  PartSearch(PartSearch&&) noexcept;

  const Problem& problem() const { return problem_; }
  const std::vector<Offset>& offsets() const { return offsets_; }  // valid after the first step
  Size arena() const { return arena_; }                            // of those; 2^64-1 before the first step
  const Bound& bound() const { return bound_; }

  /// Works towards an arena of at most `target`, which is at least bound().bytes and less than arena().
  /// Afterwards the arena may be smaller, the bound may be larger. Always returns, the first step with a
  /// plan. False: nothing is left to try.
  bool step(Size target, SearchContext& context);

  /// Keeps these offsets if they are better than its own.
  void keep(std::vector<Offset> offsets);

 private:
  static constexpr double kFirstShareOfSweeps = 0.35, kFirstShareOfLoops = 0.8;

  enum class Method { kFit, kOrder, kCore };
  struct Quick {
    Method method;
    std::string_view order;
    double threshold = 0;
    double slack = 0;  // of the target: what may be added to it
    Fit fit = Fit::kFirst;
    unsigned retries = 0;  // of each piece of the core
  };

  struct Aimed {  // of a round
    Size aim;     // bytes: its capacity
    Attempt attempt;
  };

  struct Tied;

  bool advance(Size target, SearchContext& context);
  void choose_methods(const SearchContext& context);
  std::vector<Aimed> choose_attempts(Size target, Size capacity, std::uint64_t seed);
  void fit(const Quick& quick, SearchContext& context);
  void search_orders(Size target, std::uint64_t fits, SearchContext& context);
  void core(Size target, std::size_t from, std::size_t to, SearchContext& context);
  void core_again(Size target, SearchContext& context);
  bool may_round(const SearchContext& context) const;
  bool round(Size target, SearchContext& context);
  bool fuller_than(double share) const;
  bool full() const;
  bool brimful() const;
  bool on_grid() const;
  bool may_squeeze() const;
  bool may_sweep(const SearchContext& context) const;
  void squeeze(Size target, SearchContext& context);
  void sweep(Size target, SearchContext& context);
  bool may_unroll(const SearchContext& context);
  void step_loops(Size target, SearchContext& context);
  void tie_up(SearchContext& context);
  Bundles read(std::uint64_t turn, SearchContext& context);
  bool may_tie(SearchContext& context);
  void step_tied(Size target, SearchContext& context);
  bool refute_windows(Size target, SearchContext& context);
  void prove_above(Size capacity, const std::string& who);

  Problem problem_;
  Sections sections_;
  Grid grid_;
  Size step_ = 1;  // divides all sizes and alignments
  Bound bound_;
  std::vector<Offset> offsets_;
  Size arena_ = ~Size{0};
  bool long_lives_ = false;  // each buffer meets many hundreds
  std::unique_ptr<OrderSearch> orders_;
  unsigned stale_ = 0;       // runs of it without success
  bool searchable_ = false;  // small enough for the exact search as a whole
  std::vector<Quick> methods_;
  std::size_t stage_ = 0;
  std::uint64_t round_ = 0, again_ = 0, turn_ = 0;
  struct Squeezer {  // one per worker
    std::unique_ptr<Squeeze> search;
    Size from = 0, to = 0;  // bytes: the arena it began with, and the height it works on
    double share = 0.1;     // of what is above the target: what it takes off at once
    std::vector<Offset> found;
    std::uint64_t work = 0, since = 0;  // moves of this turn, and since it began with that arena
  };
  std::vector<Squeezer> squeezers_;
  static constexpr std::size_t kBothEnds = 2;  // of time
  struct Sweeper {
    std::optional<RowSweep> search{};
    unsigned starts = 0;
    std::uint32_t passed = 0;  // sections
  };
  std::array<Sweeper, kBothEnds> sweepers_;
  Size swept_to_ = 0;  // the height of those
  unsigned sweep_turns_ = 0;
  double sweep_share_ = kFirstShareOfSweeps;  // of what this part spends
  double spent_ = 0, spent_on_sweeps_ = 0;    // on this part, `tied_` not included
  double spent_on_rounds_ = 0, last_round_ = 0;
  std::vector<std::uint32_t> said_loops_;
  std::unique_ptr<LoopSearch> loops_;
  double loop_share_ = kFirstShareOfLoops, spent_on_loops_ = 0;
  std::unique_ptr<Tied> tied_;
  bool worth_tying_ = false, reads_ = false;  // reads_: parse() leaves less than ties do
  std::uint64_t ties_ = 0;
  bool is_tied_ = false;                                // this is the search of another part's `tied_`
  std::uint64_t next_squeeze_ = 0, squeeze_pause_ = 0;  // turns
  std::uint64_t pairs_ = 0;                             // of buffers that live together
  std::optional<Portfolio> portfolio_;
  unsigned windows_ = 0;             // how often the windows around the fullest section were searched
  unsigned level_ = 0, misses_ = 0;  // of the rounds: effort, and rounds without success at this effort
  double reach_ = 0.5;               // how far between the target and the best the rounds for improvement aim
  std::vector<std::unique_ptr<ExactSearch>> searches_;  // one per worker
};

}  // namespace memoir
