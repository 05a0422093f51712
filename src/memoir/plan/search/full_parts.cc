// SPDX-License-Identifier: Apache-2.0
//
// PartSearch's ways with problems that are full nearly everywhere: the same with buffers tied up, rows, and
// squeezing.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/attempts.h"
#include "memoir/plan/search/exact/portfolio.h"
#include "memoir/plan/search/full/parse.h"
#include "memoir/plan/search/tied_part.h"
#include "memoir/plan/simple/best_fit.h"

namespace memoir {
namespace {

constexpr double kFull = 0.85;     // of the load, on average over the sections: then nothing is easy
constexpr double kBrimful = 0.99;  // the same: no room to spare

constexpr std::size_t kMostSwept = 20'000;  // buffers
constexpr unsigned kFirstWidth = 8, kMostDoublings = 5;
constexpr unsigned kStartsOfWidth = 8;
constexpr double kSweepNoise = 1;                                         // in nats
constexpr double kShrinkOfTurn = 0.9, kLeastShareOfSweeps = 0.05;         // after a turn that came no farther
constexpr std::uint64_t kTriesOfFirstTurn = 20'000, kTriesOfTurn = 5000;  // groups, times what Luby says

constexpr std::uint64_t kMostSqueezed = 3'000'000;  // pairs
constexpr std::uint64_t kMovesPerBuffer = 20;       // of one turn, but no more than
constexpr std::uint64_t kLooksPerTurn = 500'000;    // of one buffer at another
constexpr std::uint64_t kPatience = 60;             // moves of each buffer; then from the best plan again
constexpr double kLeastShare = 0.01;

constexpr double kFewerWhenTied = 0.8;                 // of the buffers are left
constexpr double kShareOfTied = 0.8;                   // of the work, while it is the better one
constexpr double kTiedPatience = 2;                    // times what the last improvement came after
constexpr double kTiedWork = 200, kTiedSeconds = 0.1;  // at least, for each buffer
constexpr double kRestless = 0.25;                     // of that, where other ties help more; times Luby's
constexpr double kTieAgain = 0.9;                      // the probability of each tie, after the first ones
constexpr std::uint64_t kTiesOpened = 8;  // which get no more than an opening of the exact search
constexpr std::uint64_t kReadings = 4;
constexpr double kFewerWhenRead = 0.9;  // of the bundles of the first ties are left
constexpr std::array<double, 3> kSurest{-1.0, 0.5, 2.0};
constexpr double kReadingNoise = 0.7;  // in nats

}  // namespace

bool PartSearch::fuller_than(double share) const {
  double sum = 0;
  for (const Size load : sections_.load) sum += static_cast<double>(load);
  return sum > share * static_cast<double>(sections_.max_load()) * sections_.count;
}

bool PartSearch::full() const { return fuller_than(kFull); }

// Rows come through hardly any other problem, and the first ties, the most there are, are the best for them.
bool PartSearch::brimful() const { return fuller_than(kBrimful); }

bool PartSearch::on_grid() const {
  return std::all_of(problem_.begin(), problem_.end(),
                     [&](const Buffer& buffer) { return grid_.unit % buffer.alignment == 0; });
}

// --- tied up ---

// The first time every tie that is found is made; then, when that leads nowhere, other ones. Some ties can be
// packed at once, so after the first ones others get a short try too, before the first ones get a long one.
// Where parse(), with its surest ties first, leaves clearly less, every other time is its: of several
// readings the one that leaves the least.
void PartSearch::tie_up(SearchContext& context) {
  const std::uint64_t turn = ties_++;
  Bundles bundles, reading;
  if (turn == 0 || (reads_ && turn % 2 == 0)) reading = read(turn / 2, context);
  if (reading.problem.empty() || turn == 0) {
    const std::uint64_t tie = reads_ ? turn / 2 : turn;
    BundleOptions options{1.0, context.seed + tie};
    if (tie == kTiesOpened && brimful()) options.seed = context.seed;
    else if (tie >= kTiesOpened || tie % 2 == 1) options.keep = kTieAgain;
    bundles = memoir::tie(problem_, sections_, options);
  }
  if (turn == 0) {
    reads_ = !reading.problem.empty() && static_cast<double>(reading.problem.size()) <=
                                             kFewerWhenRead * static_cast<double>(bundles.problem.size());
  }
  const bool is_reading = reads_ && !reading.problem.empty();
  if (is_reading) bundles = std::move(reading);
  std::vector<std::uint32_t> by_birth(bundles.problem.size());
  std::iota(by_birth.begin(), by_birth.end(), 0u);
  std::stable_sort(by_birth.begin(), by_birth.end(), [&](auto a, auto b) {
    return bundles.problem[a].lifetime.begin < bundles.problem[b].lifetime.begin;
  });
  Canonical form = canonical(bundles.problem, by_birth);
  const double spent = tied_ ? tied_->spent : 0.0;
  tied_ = std::make_unique<Tied>(std::move(bundles), std::move(form));
  tied_->is_reading = is_reading;
  tied_->spent = tied_->began = tied_->improved = spent;
  tied_->search.keep(best_fit(tied_->search.problem()).offsets);
}

Bundles PartSearch::read(std::uint64_t turn, SearchContext& context) {
  Bundles best;
  for (std::uint64_t k = 0; k < kReadings; ++k) {
    const std::uint64_t reading = turn * kReadings + k;
    ParseOptions options;
    options.surest = kSurest[reading % kSurest.size()];
    options.rivals = reading % 2 == 0 ? 1.0 : 0.5;
    options.noise = reading == 0 ? 0.0 : kReadingNoise;
    options.seed = context.seed * kReadings + reading;
    SearchLimits limits = context.limits;
    limits.nodes = context.work_left();
    Bundles found = parse(problem_, sections_, grid_, options, limits, context.work);
    if (found.problem.empty()) break;
    if (best.problem.empty() || found.problem.size() < best.problem.size()) best = std::move(found);
    if (best.problem.size() == 1) break;
  }
  return best;
}

// When there is a plan, and the tied one's turn has come.
bool PartSearch::may_tie(SearchContext& context) {
  if (is_tied_ || context.exact_only || arena_ == ~Size{0} || stage_ < methods_.size() || !full() ||
      !on_grid())
    return false;
  if (!tied_) {
    tie_up(context);
    worth_tying_ =
        static_cast<double>(tied_->order.size()) <= kFewerWhenTied * static_cast<double>(problem_.size());
  }
  return worth_tying_ && (1 - kShareOfTied) * tied_->spent <= kShareOfTied * spent_;
}

void PartSearch::step_tied(Size target, SearchContext& context) {
  PartSearch& search = tied_->search;
  const double before = context.spent();
  const Size goal = std::max(target, search.bound().bytes), arena = search.arena();
  const bool exhausted = search.arena() <= goal || !search.step(goal, context);
  tied_->spent += context.spent() - before;
  if (search.arena() < arena_) keep(tied_->offsets());
  if (search.arena() < arena) tied_->improved = tied_->spent;
  if (arena_ <= target) return;
  double least = context.repeatable ? kTiedWork * static_cast<double>(problem_.size()) : kTiedSeconds;
  if (!brimful())
    least *= kRestless * static_cast<double>(luby(std::max(ties_, kTiesOpened) - kTiesOpened + 1));
  const double since = tied_->spent - tied_->improved, until = tied_->improved - tied_->began;
  const bool opened = ties_ <= kTiesOpened && !tied_->is_reading && search.round_ == 1 && search.turn_ == 1;
  if (exhausted || opened || since > std::max(least, kTiedPatience * until)) tie_up(context);
}

// --- rows ---

bool PartSearch::may_sweep(const SearchContext& context) const {
  return !context.exact_only && full() && on_grid() && problem_.size() <= kMostSwept &&
         spent_on_sweeps_ <= (brimful() ? sweep_share_ : kLeastShareOfSweeps) * spent_;
}

// From both ends of time. What has ended in vain starts again with other noise, later with more trees. The
// less comes of it, the less often.
void PartSearch::sweep(Size target, SearchContext& context) {
  const double before = context.spent();
  if (target != swept_to_) sweepers_ = {}, swept_to_ = target;
  // Of those that come through at all, many do so without noise.
  const std::uint64_t tries =
      sweep_turns_ == 0 && brimful() ? kTriesOfFirstTurn : kTriesOfTurn * luby(std::max(sweep_turns_, 1u));
  ++sweep_turns_;
  bool farther = false;
  std::array<std::uint64_t, kBothEnds> work{};
  for (std::size_t k = 0; k < kBothEnds; ++k) {
    Sweeper& mine = sweepers_[k];
    if (mine.search && !mine.search->ended()) continue;
    RowSweepOptions options;
    options.width = kFirstWidth << std::min(mine.starts / kStartsOfWidth, kMostDoublings);
    options.backwards = k == 1;
    options.goes_back = mine.starts % 2 == 1;
    options.noise = mine.starts > 0 ? kSweepNoise : 0;
    options.seed = context.seed + mine.starts++;
    mine.search.emplace(problem_, sections_, grid_, target, options);
  }
  first_attempt(kBothEnds, context.threads_now(), context.repeatable,
                [&](std::size_t k, unsigned, const std::atomic<bool>& enough) {
                  RowSweep& search = *sweepers_[k].search;
                  SearchLimits limits = context.limits;
                  limits.enough = &enough;
                  limits.nodes = context.work_left() / kBothEnds;
                  search.run(tries, limits, work[k]);
                  return search.offsets().size() == problem_.size() &&
                         arena_size(problem_, search.offsets()) <= target;
                });
  for (std::size_t k = 0; k < kBothEnds; ++k) {
    context.work += work[k];
    Sweeper& mine = sweepers_[k];
    farther |= mine.search->passed() > mine.passed;
    mine.passed = std::max(mine.passed, mine.search->passed());
    keep(mine.search->offsets());
  }
  spent_on_sweeps_ += context.spent() - before;
  if (!farther) sweep_share_ = std::max(kLeastShareOfSweeps, kShrinkOfTurn * sweep_share_);
}

// --- squeezing ---

bool PartSearch::may_squeeze() const { return pairs_ <= kMostSqueezed && on_grid(); }

// Each worker takes a share of the excess off the best plan. When it does not come through, it goes on with a
// smaller one.
void PartSearch::squeeze(Size target, SearchContext& context) {
  const unsigned count = context.repeatable ? 1 : context.threads_now();
  squeezers_.resize(std::max<std::size_t>(squeezers_.size(), count));
  const std::uint64_t met = 1 + 2 * pairs_ / problem_.size();
  const std::uint64_t moves =
      std::min({kMovesPerBuffer * problem_.size(), 1 + kLooksPerTurn / met, context.work_left() / count + 1});
  const Size largest =
      std::max_element(problem_.begin(), problem_.end(), [](const Buffer& a, const Buffer& b) {
        return a.size < b.size;
      })->size;
  first_attempt(count, count, context.repeatable, [&](std::size_t k, unsigned, const std::atomic<bool>&) {
    Squeezer& mine = squeezers_[k];
    if (!mine.search) {
      mine.search = std::make_unique<Squeeze>(problem_, sections_, grid_, context.seed + k);
      mine.share = 0.1 / static_cast<double>(k + 1);
    }
    Size arena = arena_;
    std::vector<Offset> offsets = offsets_;
    mine.work = 0;
    bool found = false;
    for (bool again = true; again && arena > target && mine.work < moves && !context.stopped();) {
      if (mine.from != arena) {
        const Size less =
            std::max<Size>(grid_.unit, static_cast<Size>(mine.share * static_cast<double>(arena - target)));
        mine.from = arena;
        mine.since = 0;
        mine.to = std::max({target, largest, arena - std::min(less, arena)}) / grid_.unit * grid_.unit;
        if (mine.to < std::max(target, largest)) mine.to += grid_.unit;
        if (mine.to >= arena) break;
        mine.search->start(offsets, mine.to);
      }
      const std::uint64_t before = mine.work;
      again = mine.search->run(moves - mine.work, context.limits, mine.work);
      mine.since += mine.work - before;
      if (!again) {
        if (mine.since >= kPatience * problem_.size()) {
          // From the best plan again, a smaller step.
          mine.share = std::max(kLeastShare, 0.3 * mine.share);
          mine.from = 0;
        }
        break;
      }
      offsets = mine.search->offsets();
      arena = arena_size(problem_, offsets);
      mine.share = std::min(0.2, 1.1 * mine.share);
      found = true;
    }
    if (found) mine.found = std::move(offsets);
    return arena <= target;
  });
  for (unsigned k = 0; k < count; ++k) {
    context.work += squeezers_[k].work;
    keep(std::move(squeezers_[k].found));
    squeezers_[k].found.clear();
  }
}

}  // namespace memoir
