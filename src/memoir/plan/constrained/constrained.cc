// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/constrained.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>
#include <string_view>
#include <tuple>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/plan/constrained/arena_planner.h"
#include "memoir/plan/constrained/assignment_search.h"
#include "memoir/plan/constrained/constrained_fit.h"
#include "memoir/plan/constrained/empty_buffers.h"
#include "memoir/plan/constrained/gapped_search.h"
#include "memoir/plan/constrained/priced.h"
#include "memoir/plan/constrained/reuse.h"
#include "memoir/plan/search/auto.h"

namespace memoir {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kManyBodies = 5000;
constexpr std::size_t kAllFits = ~std::size_t{0};
constexpr std::size_t kMostComplete = 300;  // bodies: of more the complete search has never come to an end
constexpr double kShareOfGaps = 0.8;        // of the time that is left
constexpr double kShareOfSearch = 0.1;
constexpr double kShareOfArenas = 0.9;
constexpr std::size_t kMostSearched = 2000;  // bodies: beyond, even the pairs are too many to keep

// To fit in, for one arena and for several: keys as fit_bodies() takes them.
constexpr std::string_view kOrders[2][5] = {{"AT", "TA", "WT", "ZW", "LZ"}, {"BA", "DB", "AB", "WB", "BZ"}};
constexpr std::string_view kShakenOrders[2][4] = {{"A", "W", "TA", "Z"}, {"B", "D", "A", "W"}};

template <std::size_t kCount>
std::span<const std::string_view> orders(const std::string_view (&table)[2][kCount], bool several) {
  return table[several ? 1 : 0];
}

/// Nothing is said but gaps, aliases, rows, fixed offsets and forbidden ranges, in one arena.
bool is_searchable(const Bodies& bodies) {
  const Constraints& said = bodies.problem->constraints;
  if (!said.timed || !said.conflicts.empty() || bodies.arenas.size() != 1 || said.replanned()) return false;
  return std::all_of(bodies.bodies.begin(), bodies.bodies.end(), [&](const Body& body) {
    return body.apart.empty() && body.partners.empty() && body.first_piece != body.last_piece;
  });
}

/// Without fixed offsets and forbidden ranges.
bool is_plain(const Bodies& bodies, bool gaps_too) {
  if (!is_searchable(bodies) || !bodies.arenas[0].forbidden.empty()) return false;
  return std::all_of(bodies.bodies.begin(), bodies.bodies.end(), [&](const Body& body) {
    if (body.fixed != kNoOffset) return false;
    return gaps_too ||
           (body.last_piece - body.first_piece == 1 && bodies.pieces[body.first_piece].size == body.size);
  });
}

/// Per body, what is said of the first of its members.
std::vector<std::uint32_t> loops_of(const Bodies& bodies) {
  std::vector<std::uint32_t> loops;
  if (bodies.problem->constraints.loops.empty()) return loops;
  for (const Body& body : bodies.bodies)
    loops.push_back(bodies.problem->constraints.loops[body.members.front()]);
  return loops;
}

/// The problem with outputs made aliases of inputs of their size, as far as nothing else is said against it.
/// Its plans are plans of the problem, though perhaps not its best ones.
std::optional<ConstrainedProblem> merge_in_place(const Bodies& bodies) {
  const ConstrainedProblem& problem = *bodies.problem;
  const auto n = static_cast<std::uint32_t>(bodies.bodies.size());
  std::vector<std::uint32_t> heir(n, kNoBuffer), parent(n, kNoBuffer), root(n);  // bodies
  std::iota(root.begin(), root.end(), 0u);
  const auto find = [&](std::uint32_t b) {
    while (root[b] != b) b = root[b] = root[root[b]];
    return b;
  };
  std::vector<std::vector<std::uint32_t>> merged(n);
  for (std::uint32_t b = 0; b < n; ++b) merged[b] = {b};
  const auto compatible = [&](std::uint32_t a, std::uint32_t b) {
    const Body &x = bodies.bodies[a], &y = bodies.bodies[b];
    if (x.size != y.size || (x.allowed & y.allowed) == 0) return false;
    if (x.fixed != kNoOffset && y.fixed != kNoOffset && x.fixed != y.fixed) return false;
    if (std::binary_search(x.apart.begin(), x.apart.end(), b)) return false;
    for (const Body::Edge& edge : x.edges) {
      if (edge.body == b) return false;
    }
    for (std::uint32_t p = x.first_piece; p < x.last_piece; ++p) {
      for (std::uint32_t q = y.first_piece; q < y.last_piece; ++q) {
        if (bodies.pieces[p].lifetime.overlaps(bodies.pieces[q].lifetime) &&
            !bodies.may_share(bodies.piece_buffer[p], bodies.piece_buffer[q]))
          return false;
      }
    }
    return true;
  };
  ConstrainedProblem out = problem;
  Constraints& said = out.constraints;
  bool any = false;
  for (const auto& [output, input] : problem.constraints.in_place) {
    const std::uint32_t a = bodies.body_of[output], b = bodies.body_of[input];
    if (a == b || !bodies.may_share(output, input) || parent[a] != kNoBuffer || heir[b] != kNoBuffer)
      continue;
    const std::uint32_t x = find(a), y = find(b);
    if (x == y) continue;
    bool all = merged[x].size() * merged[y].size() < 4096;
    for (const std::uint32_t one : merged[x]) {
      for (const std::uint32_t other : merged[y]) all = all && compatible(one, other);
    }
    if (!all) continue;
    parent[a] = b;
    heir[b] = a;
    root[x] = y;
    merged[y].insert(merged[y].end(), merged[x].begin(), merged[x].end());
    any = true;
  }
  if (!any) return std::nullopt;
  if (said.alias.empty()) said.alias.assign(problem.buffers.size(), kNoBuffer);
  for (std::uint32_t b = 0; b < n; ++b) {  // all members to the first one of the whole chain
    const std::uint32_t first = bodies.bodies[find(b)].members.front();
    for (const std::uint32_t i : bodies.bodies[b].members) {
      if (merged[find(b)].size() > 1) said.alias[i] = i == first ? kNoBuffer : first;
    }
  }
  std::erase_if(said.in_place, [&](const auto& pair) {
    return find(bodies.body_of[pair.first]) == find(bodies.body_of[pair.second]);
  });
  try {  // alignments or places of more than two may still not go together
    validate(out);
  } catch (const Error&) {
    return std::nullopt;
  }
  return out;
}

class Run {
 public:
  Run(const ConstrainedProblem& problem, ConstrainedPlanner planner, const SearchOptions& options)
      : planner_(planner), options_(options), start_(Clock::now()), problem_(problem) {
    validate(problem_);
    if (options.capacity) {
      if (problem_.constraints.several_arenas())
        throw Error("a capacity is of the one arena; with several, give each its own");
      if (problem_.constraints.arenas.empty()) problem_.constraints.arenas = {ArenaChoice{}};
      Size& capacity = problem_.constraints.arenas[0].capacity;
      capacity = std::min(capacity, *options.capacity);
    }
    bodies_ = make_bodies(problem_);
    sections_ = find_sections(bodies_.pieces);
    bound_ = lower_bound(bodies_);
    if (options.work_limit == 0 && options.deadline_s < 1e9) {
      deadline_ = start_ + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(std::max(0.0, options.deadline_s)));
    }
  }

  ConstrainedResult run() {
    if (is_plain(bodies_, false)) {
      plain();
    } else if (!bound_.infeasible || planner_ != ConstrainedPlanner::kExact) {
      // Of many, each fit takes a good part of a second; restart() makes the others. With gaps alone they
      // gave no more than those in shaken orders.
      const bool few = planner_ == ConstrainedPlanner::kAuto && (has_many() || chooses_among_many());
      made_ = few && !is_plain(bodies_, true) ? 1 : kAllFits;
      fits_in_turn(bodies_, planner_ == ConstrainedPlanner::kFirstFit ? "" : "first_fit", few ? 1 : kAllFits);
      if (planner_ == ConstrainedPlanner::kAuto) automatic();
      if (planner_ == ConstrainedPlanner::kExact) search(deadline_);
    } else {
      fits_in_turn(bodies_, "first_fit");
    }
    return finish();
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool stopped() const { return (options_.stop && *options_.stop) || Clock::now() >= deadline_; }
  bool good_enough() const {
    if (bound_.infeasible || infeasible_) return found_;
    if (!found_ || !fits_) return false;
    return objective_ <= enough() || (options_.capacity && !problem_.constraints.replanned());
  }
  /// What is close enough to the bound.
  Objective enough() const {
    Objective objective = bound_.objective;
    if (!options_.capacity) objective.total = options_.tolerance.above(objective.total);
    return objective;
  }
  /// Until a share of what is left.
  Clock::time_point until(double share) const {
    if (deadline_ == Clock::time_point::max()) return start_ + std::chrono::seconds(10);
    const auto now = Clock::now();
    return now >= deadline_ ? now
                            : now + std::chrono::duration_cast<Clock::duration>((deadline_ - now) * share);
  }

  Size excess(const ConstrainedPlan& plan) const {
    Size bytes = 0;
    for (std::size_t k = 0; k < bodies_.arenas.size(); ++k)
      bytes += plan.arena_sizes[k] - std::min(plan.arena_sizes[k], bodies_.arenas[k].capacity);
    return bytes;
  }

  void consider(ConstrainedPlan plan, const std::string& maker) {
    const bool fitting = fits(problem_, plan);
    const Objective objective = objective_of(problem_, plan);
    const auto rank = [&](bool fits, const ConstrainedPlan& plan, const Objective& objective) {
      return std::tuple(!fits, fits ? 0 : excess(plan), objective);
    };
    if (found_ && rank(fitting, plan, objective) >= rank(fits_, plan_, objective_)) return;
    found_ = true;
    fits_ = fitting;
    objective_ = objective;
    plan_ = std::move(plan);
    maker_ = maker;
    if (options_.improved) options_.improved(objective.total, seconds());
  }

  // --- methods ---

  SearchOptions plain_options(Clock::time_point deadline) const {
    SearchOptions options = options_;
    options.improved = nullptr;
    if (options_.work_limit == 0 && deadline != Clock::time_point::max())
      options.deadline_s = std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count());
    return options;
  }

  void plain() {
    const Problem plain = hulls(bodies_);
    if (planner_ == ConstrainedPlanner::kFirstFit) {
      fits_in_turn(bodies_, "");
      return;
    }
    SearchOptions options = plain_options(deadline_);
    const Size capacity = bodies_.arenas[0].capacity;
    if (capacity != kNoLimit) options.capacity = capacity;
    const bool exact = planner_ == ConstrainedPlanner::kExact;
    options.loops = loops_of(bodies_);
    const SearchResult found = exact ? plan_exact(plain, options) : plan_auto(plain, options);
    consider(to_plan(bodies_, found.plan.offsets, std::vector<std::uint32_t>(plain.size())), "");
    work_ += found.work;
    if (found.lower_bound > bound_.objective.total) {
      bound_.objective.total = found.lower_bound;
      bound_.reason = found.bound_reason;
    }
    bound_.objective.cost = objective_.cost;  // there is one arena
    infeasible_ = found.lower_bound > capacity;
  }

  void try_fit(const Bodies& bodies, const Sections& sections, const FitOptions& options,
               const std::string& maker) {
    if (auto plan = fit_bodies(bodies, sections, options)) consider(std::move(*plan), maker);
  }

  bool has_many() const { return bodies_.bodies.size() > kManyBodies && is_searchable(bodies_); }

  /// Of arenas: then a choice by loads is better than any first fit, and sooner there.
  bool chooses_among_many() const {
    return bodies_.bodies.size() > kMostComplete && ArenaPlanner::worthwhile(bodies_);
  }

  static std::vector<FitOptions> fits_for(const Bodies& bodies) {
    std::vector<FitOptions> fits;
    for (const std::string_view order : orders(kOrders, bodies.arenas.size() > 1)) {
      for (const bool sharing : {true, false}) {
        if (!sharing && bodies.sharing.empty()) continue;
        for (const Fit fit : {Fit::kFirst, Fit::kBest}) fits.push_back({order, fit, sharing});
      }
    }
    return fits;
  }

  void fits_in_turn(const Bodies& bodies, const std::string& maker, std::size_t most = kAllFits) {
    const Sections sections = find_sections(bodies.pieces);
    for (const FitOptions& options : fits_for(bodies)) {
      if (good_enough() || (found_ && stopped()) || most-- == 0) return;
      try_fit(bodies, sections, options, maker);
    }
  }

  void automatic() {
    if (good_enough()) return;
    const auto merged = merge_in_place(bodies_);
    if (merged) {
      const Bodies bodies = make_bodies(*merged);
      const bool plain = is_plain(bodies, true);
      if (plain) hull(bodies, "merged", 0.3);
      else fits_in_turn(bodies, "merged");
      if (is_searchable(bodies)) around(bodies, "merged", until(0.3));
    }
    if (good_enough() || stopped()) return;
    if (is_plain(bodies_, true) && !(has_many() && load(hulls(bodies_)) > enough().total))
      hull(bodies_, "without gaps", 0.2);
    if (good_enough() || stopped()) return;
    if (is_searchable(bodies_))
      around(bodies_, is_plain(bodies_, true) ? "gaps" : "obstacles", until(kShareOfGaps));
    if (good_enough() || stopped() || infeasible_) return;
    const bool several = ArenaPlanner::worthwhile(bodies_);
    if (bodies_.bodies.size() <= kMostComplete) search(until(several ? kShareOfSearch : 0.5));
    if (proven_ || stopped()) return;
    if (several) arenas(until(kShareOfArenas));
    if (good_enough() || stopped()) return;
    restarts();
    if (!good_enough() && !stopped() && bodies_.bodies.size() <= kMostComplete) search(deadline_);
  }

  /// Who goes to which arena.
  void arenas(Clock::time_point deadline) {
    ArenaPlanner planner(bodies_, sections_, options_);
    planner.run(deadline, work_, [&](const ConstrainedPlan& plan) {
      consider(plan, "arenas");
      return good_enough();
    });
    if (planner.bound() <= bound_.objective.cost) return;
    bound_.objective.cost = planner.bound();
    bound_.cost_reason = "what the bytes of each arena are worth at each time";
  }

  /// As if every body needed all its bytes from its first tick to its last.
  void hull(const Bodies& bodies, const std::string& maker, double share) {
    SearchOptions options = plain_options(until(share));
    options.capacity = bodies_.arenas[0].capacity == kNoLimit ? enough().total : bodies_.arenas[0].capacity;
    options.loops = loops_of(bodies);
    const SearchResult found = plan_auto(hulls(bodies), options);
    work_ += found.work;
    const ConstrainedPlan plan =
        to_plan(bodies, found.plan.offsets, std::vector<std::uint32_t>(bodies.bodies.size()));
    consider(plan, maker);
  }

  /// What shares between methods are counted in: seconds of processor time or, where the answer must be
  /// repeatable, work.
  double spent() const {
    if (options_.work_limit != 0) return static_cast<double>(work_);
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  /// With gaps and around obstacles, as if windows were not there; in turn with first fits in other orders.
  void around(const Bodies& bodies, const std::string& maker, Clock::time_point deadline) {
    if (!found_ || good_enough() || stopped()) return;
    GappedSearch search(bodies, objective_.total, options_.seed);
    if (!search.worthwhile()) return;
    const bool timed = options_.work_limit == 0;
    SearchLimits limits;
    limits.deadline = timed ? deadline : Clock::time_point::max();
    limits.stop = options_.stop;
    const std::uint64_t last = timed ? ~std::uint64_t{0} : work_ + options_.work_limit;
    const Size capacity = bodies_.arenas[0].capacity;
    double of_steps = 0, of_restarts = 0;
    while (!good_enough() && !stopped() && Clock::now() < limits.deadline && work_ < last) {
      const double before = spent();
      if (of_restarts < of_steps) {
        restart();
        work_ += bodies_.bodies.size();
        of_restarts += spent() - before;
        continue;
      }
      limits.nodes = last - work_;
      const Size target = capacity == kNoLimit ? enough().total : capacity;
      const std::vector<Offset> offsets = search.step(target, objective_.total, limits, work_);
      if (!offsets.empty())
        consider(to_plan(bodies, offsets, std::vector<std::uint32_t>(bodies.bodies.size())), maker);
      if (&bodies == &bodies_ && search.bound() > bound_.objective.total) {
        bound_.objective.total = search.bound();
        bound_.reason = "every smaller one was excluded by complete search";
        infeasible_ = search.bound() > capacity;
        if (infeasible_) return;
      }
      if (search.ended() || search.bound() >= objective_.total) return;
      ++work_;  // so that it ends
      of_steps += spent() - before;
    }
  }

  void search(Clock::time_point deadline) {
    if (good_enough() || proven_ || bodies_.bodies.size() > kMostSearched) return;
    SearchLimits limits;
    limits.deadline = deadline;
    limits.stop = options_.stop;
    if (options_.work_limit != 0) {
      limits.nodes = options_.work_limit;
      limits.deadline = Clock::time_point::max();
    }
    const bool any_fit = options_.capacity && !problem_.constraints.replanned();
    AssignmentSearch search(bodies_, bound_, found_ && fits_ ? std::optional(objective_) : std::nullopt,
                            enough(), any_fit, [&](const ConstrainedPlan& plan) { consider(plan, "exact"); });
    const Verdict verdict = search.run(limits);
    work_ += search.nodes();
    if (verdict == Verdict::kGaveUp || (verdict == Verdict::kFits && !(objective_ <= bound_.objective)))
      return;
    proven_ = true;
    if (!found_ || !fits_) {
      infeasible_ = true;
    } else if (bound_.objective != objective_) {
      bound_.objective = objective_;
      bound_.reason = "every better plan was excluded by complete search";
    }
  }

  /// A first fit in another order.
  void restart() {
    const std::vector<FitOptions> fits = fits_for(bodies_);
    if (made_ < fits.size()) return try_fit(bodies_, sections_, fits[made_++], "first_fit");
    const auto keys = orders(kShakenOrders, bodies_.arenas.size() > 1);
    const std::uint64_t round = restarts_++;
    FitOptions options;
    options.order = keys[round % keys.size()];
    options.fit = round / 4 % 2 == 0 ? Fit::kFirst : Fit::kBest;
    options.sharing = round / 8 % 2 == 0;
    options.noise = 0.1 + 0.1 * static_cast<double>(round / 16 % 5);
    options.seed = options_.seed * 1'000'003 + round;
    try_fit(bodies_, sections_, options, "first_fit");
  }

  void restarts() {
    const std::uint64_t rounds =
        options_.work_limit == 0
            ? ~std::uint64_t{0}
            : std::min<std::uint64_t>(200, options_.work_limit / (bodies_.bodies.size() + 1));
    for (std::uint64_t round = 0; round < rounds && !good_enough() && !stopped(); ++round) {
      restart();
      // Small problems deserve more of the search than of dice.
      if (bodies_.bodies.size() <= kMostComplete && round > 400) return;
    }
  }

  ConstrainedResult finish() {
    ConstrainedResult result;
    result.found = found_;
    if (found_) {
      follow_hints(bodies_, sections_, plan_);
      if (problem_.constraints.locality) warm_up(bodies_, sections_, plan_);
      const auto violation = check(problem_, plan_);
      MEMOIR_CHECK(!violation, "a constrained plan is valid");
      MEMOIR_CHECK(objective_of(problem_, plan_) <= objective_, "what is preferred costs nothing");
      objective_ = objective_of(problem_, plan_);
    }
    result.plan = std::move(plan_);
    result.objective = objective_;
    result.lower_bound = bound_.objective;
    result.bound_reason = bound_.reason;
    if (!proven_) result.cost_reason = bound_.cost_reason;
    result.load = bound_.load;
    result.fits = found_ && fits_;
    result.proven_infeasible = bound_.infeasible || infeasible_;
    if (bound_.infeasible) result.bound_reason = bound_.infeasible_reason;
    result.optimal = result.fits && objective_ <= bound_.objective;
    result.maker = maker_;
    result.work = work_;
    result.seconds = seconds();
    return result;
  }

  const ConstrainedPlanner planner_;
  const SearchOptions& options_;
  const Clock::time_point start_;
  ConstrainedProblem problem_;  // with the capacity in its arena
  Clock::time_point deadline_ = Clock::time_point::max();
  Bodies bodies_;
  Sections sections_;
  ConstrainedBound bound_;

  bool found_ = false, fits_ = false, proven_ = false, infeasible_ = false;
  ConstrainedPlan plan_;
  Objective objective_;
  std::string maker_;
  std::uint64_t work_ = 0, restarts_ = 0;
  std::size_t made_ = 0;  // of the fits that need no dice
};

}  // namespace

std::optional<PlainForm> reduce_to_plain(const ConstrainedProblem& problem) {
  validate(problem);
  if (has_empty(problem.buffers)) return std::nullopt;
  Bodies bodies = make_bodies(problem);
  const auto& arenas = problem.constraints.arenas;
  if (!problem.constraints.prices.empty()) return std::nullopt;
  if (!is_plain(bodies, false) || (!arenas.empty() && arenas[0].capacity != kNoLimit)) return std::nullopt;
  return PlainForm{hulls(bodies), std::move(bodies.body_of), std::move(bodies.shift)};
}

ConstrainedResult plan_constrained(const ConstrainedProblem& problem, ConstrainedPlanner planner,
                                   const SearchOptions& options) {
  if (!problem.constraints.prices.empty()) return plan_priced(problem, planner, options);
  const auto plan_sized = [&](const ConstrainedProblem& sized) { return Run(sized, planner, options).run(); };
  if (!has_empty(problem.buffers)) return plan_sized(problem);
  validate(problem);
  const Subproblem reduced = without_empty(problem);
  return with_empty(problem, reduced, plan_sized(reduced.problem));
}

}  // namespace memoir
