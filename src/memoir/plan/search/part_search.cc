// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/part_search.h"

#include <algorithm>
#include <array>
#include <bit>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/attempts.h"
#include "memoir/plan/search/bounds.h"

namespace memoir {
namespace {

constexpr std::size_t kLargestSearch = 6000;      // buffers; beyond, only pieces are searched
constexpr std::uint64_t kMostPairs = 20'000'000;  // 160 MB of neighbour lists
constexpr std::uint64_t kFirstNodes = 1000;       // limit of an attempt in the first round
constexpr unsigned kMostMisses = 3;
constexpr std::size_t kLargestWindow = 1000;  // buffers
constexpr std::uint64_t kWindowNodes = 1000;  // of the first search of a window; four times more in the next
constexpr std::size_t kFewBuffers = 500;      // nothing but the exact search is worth its time
constexpr std::uint64_t kFirstFits = 1000;    // of the first local search over orders
constexpr std::uint64_t kTiesPerRound = 24;   // at the least effort
constexpr double kWorthTying = 0.1;           // of the buffers are tied to others
constexpr double kMuchTied = 0.3;             // for the first round
constexpr std::size_t kLargestExact = 700;    // buffers of a piece of the core that is tried otherwise too
constexpr unsigned kRetries = 7, kManyRetries = 40;  // of a piece
constexpr std::uint64_t kFewRepairs = 200;           // comparisons a buffer: about as long as one fit

// The static orders that solve most, and for restarts those that bear perturbation: each order's successes
// are heavy-tailed, so several short attempts beat a long one (measured on the challenging instances of
// minimalloc).
constexpr std::array<std::string_view, 5> kOrders{"TWA", "WAT", "U", "AW", "L"};
constexpr std::array<std::string_view, 4> kRestarts{"W", "TW", "W", "AW"};
constexpr std::array<double, 4> kNoise{0.05, 0.1, 0.2, 0.1};

std::uint64_t count_pairs(const Sections& sections) {
  // Followers that start before each ends, by prefix sums of births.
  std::vector<std::uint64_t> born(sections.count + 1);
  for (const std::uint32_t first : sections.first) ++born[first + 1];
  for (std::uint32_t s = 0; s < sections.count; ++s) born[s + 1] += born[s];
  std::uint64_t pairs = 0;
  for (std::size_t i = 0; i < sections.first.size(); ++i)
    pairs += born[sections.last[i]] - born[sections.first[i]];
  return pairs;
}

// Their ticks are for people only.
Sections sections_from(const Problem& problem, Tick origin) {
  Sections sections = find_sections(problem);
  for (Tick& tick : sections.tick) tick += origin;
  return sections;
}

}  // namespace

bool SearchContext::stopped() const {
  if (limits.stop && limits.stop->load(std::memory_order_relaxed)) return true;
  return work >= work_limit || std::chrono::steady_clock::now() >= limits.deadline;
}

PartSearch::PartSearch(Problem problem, Tick origin)
    : problem_(std::move(problem)),
      sections_(sections_from(problem_, origin)),
      grid_(find_grid(problem_)),
      bound_(lower_bound(problem_, sections_)) {
  long_lives_ = lives_long(sections_);
  searchable_ = problem_.size() <= kLargestSearch && count_pairs(sections_) <= kMostPairs;
}

void PartSearch::keep(std::vector<Offset> offsets) {
  if (offsets.size() != problem_.size()) return;  // given up half-way
  const Size arena = arena_size(problem_, offsets);
  if (arena >= arena_) return;
  arena_ = arena;
  offsets_ = std::move(offsets);
}

void PartSearch::prove_above(Size capacity, const std::string& who) {
  const Size bytes = next_reachable(problem_, grid_, capacity + 1);
  if (bytes <= bound_.bytes) return;
  bound_ = {bytes, "search: " + who + " were tried in every order in " + std::to_string(capacity) +
                       " bytes and do not fit"};
}

// What lives in a window of time must fit by itself. The exact search often ends on the few sections around
// the fullest one where the whole is far too large for it; whatever it refutes there is refuted for all.
bool PartSearch::refute_windows(Size target, SearchContext& context) {
  const std::uint64_t nodes = kWindowNodes << (2 * std::min(windows_++, 10u));
  const auto fullest = static_cast<std::uint32_t>(
      std::max_element(sections_.load.begin(), sections_.load.end()) - sections_.load.begin());
  for (std::uint32_t reach = 2; !context.stopped(); reach *= 2) {
    const std::uint32_t first = fullest - std::min(fullest, reach);
    const std::uint32_t last = std::min(sections_.count, fullest + reach + 1);
    if (first == 0 && last == sections_.count) return false;  // the whole is not a window
    std::vector<std::uint32_t> members;
    for (std::uint32_t i = 0; i < problem_.size(); ++i) {
      if (sections_.first[i] < last && sections_.last[i] > first) members.push_back(i);
    }
    if (members.size() > kLargestWindow) return false;
    // Lifetimes cut to the window, in sections: what happens outside is left out.
    Problem window;
    for (const std::uint32_t i : members) {
      window.push_back(problem_[i]);
      window.back().lifetime = {std::max(sections_.first[i], first), std::min(sections_.last[i], last)};
    }
    ExactSearch search(window);
    SearchLimits limits = context.limits;
    Verdict verdict = Verdict::kGaveUp;
    for (const std::string_view keys : {"TWA", "WAT"}) {
      limits.nodes = std::min(nodes, context.work_limit - std::min(context.work, context.work_limit));
      std::vector<Offset> offsets;
      verdict = search.run(target, make_order(window, search.sections(), keys), limits, offsets);
      context.work += search.nodes();
      if (verdict != Verdict::kGaveUp) break;
    }
    if (verdict == Verdict::kGaveUp) return false;
    if (verdict == Verdict::kInfeasible) {
      prove_above(target, "the " + std::to_string(window.size()) + " buffers that live in the ticks " +
                              std::to_string(sections_.tick[first]) + " to " +
                              std::to_string(sections_.tick[last - 1]));
      return true;
    }
  }
  return false;
}

void PartSearch::choose_methods(const SearchContext& context) {
  const std::size_t n = problem_.size();
  if (context.exact_only || n <= kFewBuffers) {
    methods_ = {{Method::kFit, "W"}};
    return;
  }
  // When the core resists, a little slack is worth more than another threshold: 0.4 % over in time beats 7 %.
  if (long_lives_) {
    methods_ = {{Method::kFit, "TW", 0, 0, Fit::kBest},        {Method::kCore, "TW", 0.95, 0, Fit::kBest},
                {Method::kCore, "TW", 0.9, 0, Fit::kBest},     {Method::kCore, "TW", 0.95, 0.002, Fit::kBest},
                {Method::kCore, "TW", 0.8, 0.002, Fit::kBest}, {Method::kCore, "TW", 0.9, 0, Fit::kFirst},
                {Method::kCore, "TW", 0.85, 0.01, Fit::kFirst}};
    return;
  }
  // The first reaches the load of nine random problems in ten. Of the others each succeeds on some that the
  // rest fails on, and 1 % over soon is better than 8 % until one does.
  methods_ = {{Method::kCore, "TW", 0.85, 0, Fit::kFirst, kRetries},
              {Method::kCore, "TW", 0.9, 0},
              {Method::kCore, "TW", 0.9, 0, Fit::kBest},
              {Method::kCore, "TW", 0.85, 0.01, Fit::kBest, kRetries},
              {Method::kCore, "TW", 0.95, 0.004},
              {Method::kCore, "TW", 0.75, 0, Fit::kFirst, kRetries},
              {Method::kCore, "TW", 0.85, 0.002, Fit::kBest, kRetries},
              {Method::kCore, "TW", 0.97, 0},
              {Method::kOrder, "TW"},
              {Method::kCore, "TW", 0.85, 0, Fit::kFirst, kManyRetries},
              {Method::kCore, "TW", 0.9, 0.004, Fit::kBest},
              {Method::kCore, "TW", 0.97, 0.002},
              {Method::kOrder, "TW"},
              {Method::kCore, "TW", 0.9, 0.01},
              {Method::kCore, "TW", 0.8, 0},
              {Method::kCore, "W", 0.95, 0.002}};
}

bool PartSearch::step(Size target, SearchContext& context) {
  if (stage_ == 0) choose_methods(context);
  if (stage_ < methods_.size()) {
    const Quick& quick = methods_[stage_];
    if (quick.method == Method::kFit) {
      ++stage_;
      fit(quick, context);
    } else if (quick.method == Method::kOrder) {
      ++stage_;
      search_orders(target, problem_.size() / 8 + kFirstFits, context);
    } else if (searchable_ && round_ == 0 && arena_ != ~Size{0}) {
      return round(target, context);
    } else {
      std::size_t to = stage_ + 1;
      while (to < methods_.size() && to < stage_ + context.threads && methods_[to].method == Method::kCore)
        ++to;
      if (context.repeatable || stage_ == 0 || methods_[stage_ - 1].method != Method::kCore) to = stage_ + 1;
      core(target, stage_, to, context);
      stage_ = to;
    }
    return true;
  }
  // A small problem has its first round first: that ends most.
  if ((++turn_ > 1 || problem_.size() > kFewBuffers) && std::has_single_bit(turn_) &&
      refute_windows(target, context))
    return true;
  if (context.exact_only || problem_.size() <= kFewBuffers) {
    return searchable_ && round(target, context);
  }
  if (turn_ % 2 == 0 && !long_lives_) search_orders(target, problem_.size() / 2 + 8 * kFirstFits, context);
  else core_again(target, context);
  if (arena_ > target && searchable_) return round(target, context);
  return true;
}

void PartSearch::fit(const Quick& quick, SearchContext& context) {
  const Order order = make_order(problem_, sections_, quick.order);
  keep(long_lives_ ? place_in_order(problem_, order, quick.fit).offsets
                   : fit_in_order(problem_, sections_, order, quick.fit == Fit::kBest));
  context.work += problem_.size();
}

void PartSearch::search_orders(Size target, std::uint64_t fits, SearchContext& context) {
  if (!orders_ || stale_ > kMostMisses) {  // from another order close by
    orders_ = std::make_unique<OrderSearch>(
        problem_, sections_,
        make_order(problem_, sections_, "TW", orders_ ? 0.05 : 0.0, context.seed + context.work),
        context.seed);
    context.work += problem_.size();
    stale_ = 0;
  }
  fits = std::min(fits, context.work_limit - std::min(context.work, context.work_limit));
  const Size before = orders_->arena();
  orders_->run(target, fits, context.limits, context.work);
  stale_ = orders_->arena() < before ? 0 : stale_ + 1;
  if (orders_->arena() < arena_) keep(orders_->offsets());
}

void PartSearch::core(Size target, std::size_t from, std::size_t to, SearchContext& context) {
  std::vector<std::vector<Offset>> found(to - from);
  std::vector<std::uint64_t> work(to - from);
  first_attempt(to - from, context.threads, context.repeatable,
                [&](std::size_t k, unsigned, const std::atomic<bool>& enough) {
                  SearchLimits limits = context.limits;
                  limits.enough = arena_ == ~Size{0} && k == 0 ? nullptr : &enough;
                  CoreFirstOptions options;
                  options.threshold = methods_[from + k].threshold;
                  options.order = methods_[from + k].order;
                  options.fit = methods_[from + k].fit;
                  options.retries = methods_[from + k].retries;
                  options.repair_effort = kFewRepairs;
                  if (options.retries > 0) options.largest_exact = kLargestExact;
                  const Size aim =
                      target + static_cast<Size>(methods_[from + k].slack * static_cast<double>(target));
                  if (aim >= arena_) return false;
                  options.must_answer = arena_ == ~Size{0} && k == 0;
                  found[k] = core_first(problem_, sections_, aim, options, limits, work[k]);
                  return found[k].size() == problem_.size() && arena_size(problem_, found[k]) <= target;
                });
  for (std::size_t k = 0; k < found.size(); ++k) {
    context.work += work[k];
    keep(std::move(found[k]));
  }
}

// Everything cheap has failed: more nodes for each piece, other seeds, and targets between the wanted and the
// best.
void PartSearch::core_again(Size target, SearchContext& context) {
  constexpr std::array<double, 4> kThreshold{0.9, 0.85, 0.95, 0.8};
  constexpr std::array<double, 4> kReach{0.5, 0.1, 0.25, 0.0};
  const unsigned count = context.repeatable ? 2 : std::max(1u, context.threads);
  std::vector<std::vector<Offset>> found(count);
  std::vector<std::uint64_t> work(count);
  const std::uint64_t turn = again_;
  again_ += 2 * count;
  first_attempt(count, context.threads, context.repeatable,
                [&](std::size_t k, unsigned, const std::atomic<bool>& enough) {
                  const std::uint64_t t = turn / 2 + k;
                  SearchLimits limits = context.limits;
                  limits.enough = &enough;
                  CoreFirstOptions options;
                  options.threshold = kThreshold[t % 4];
                  options.fit = long_lives_ || t % 5 == 4 ? Fit::kBest : Fit::kFirst;
                  options.noise = 0.1 * static_cast<double>(t % 3);
                  options.seed = context.seed + 31 * t;
                  options.nodes_per_buffer = 8 << std::min<std::uint64_t>(t / 4, 10);
                  const auto between =
                      static_cast<Size>(kReach[t / 2 % 4] * static_cast<double>(arena_ - target));
                  found[k] = core_first(problem_, sections_, target + between, options, limits, work[k]);
                  return found[k].size() == problem_.size() && arena_size(problem_, found[k]) <= target;
                });
  for (unsigned k = 0; k < count; ++k) {
    context.work += work[k];
    keep(std::move(found[k]));
  }
}

// Of the buffers, those that tying makes away with.
double PartSearch::tied_share(const Bundles& bundles) const {
  return 1.0 - static_cast<double>(bundles.problem.size()) / static_cast<double>(problem_.size());
}

// What one round tries, in order. A plain attempt is the first: where it succeeds, that is at once. Tied up,
// what resists is often no harder, so this comes next; most that succeed do so within few placements, so
// other ties are worth more than a longer search.
std::vector<PartSearch::Attempt> PartSearch::choose_attempts(Size target, Size capacity, std::uint64_t seed) {
  const std::uint64_t least = std::max<std::uint64_t>(kFirstNodes, 2 * problem_.size());
  const std::uint64_t nodes = least << (2 * std::min(level_, 20u));
  seed += 1000 * round_;
  std::vector<Attempt> attempts;
  // A tighter capacity prunes more and is sometimes the easier one: two more attempts aim at the bound.
  const bool aim_at_bound = round_ == 1 && capacity > bound_.bytes;
  if (aim_at_bound) attempts.push_back({bound_.bytes, nodes, kOrders[0]});
  attempts.push_back({capacity, nodes, kOrders[0]});
  if (round_ == 1) {
    for (const std::string_view keys : {"TWA", "WAT"})
      attempts.push_back({capacity, nodes, keys, 0, seed, 1.0});
    if (aim_at_bound) attempts.push_back({bound_.bytes, nodes, kOrders[1]});
  } else if (tied_share(tie(problem_, sections_, {})) >= kWorthTying) {
    for (std::uint64_t k = 0; k < kTiesPerRound << std::min(level_, 3u); ++k) {
      const unsigned effort = std::array{0u, 2u, 0u, 4u}[k % 4];
      attempts.push_back({k % 3 == 0 ? capacity : target, least << std::min(effort, 2 * level_),
                          k % 5 == 0 ? "TWA" : "WAT", 0, seed + kOrders.size() + kRestarts.size() + k,
                          k % 7 == 0 ? 0.7 : 0.95});
    }
  }
  for (std::size_t k = 1; k < kOrders.size(); ++k) attempts.push_back({capacity, nodes, kOrders[k]});
  for (std::size_t r = 0; r < kRestarts.size(); ++r)
    attempts.push_back({capacity, nodes, kRestarts[r], kNoise[r], seed + kOrders.size() + r});
  return attempts;
}

bool PartSearch::round(Size target, SearchContext& context) {
  // At each level of effort: the target itself once, then something between it and the best plan for as long
  // as that works.
  const bool improve = misses_ > 0 && arena_ - target > grid_.unit;
  const auto between = static_cast<Size>(reach_ * static_cast<double>(arena_ - target));
  const Size capacity = improve ? std::min<Size>(arena_ - 1, target + between) : target;
  ++round_;
  const std::vector<Attempt> attempts = choose_attempts(target, capacity, context.seed);
  const std::uint64_t left = context.work_limit - std::min(context.work, context.work_limit);

  struct Answer {
    Verdict verdict = Verdict::kGaveUp;
    std::vector<Offset> offsets;
    std::uint64_t nodes = 0;
  };
  std::vector<Answer> answers(attempts.size());
  // the first round is over before a thread has started
  const unsigned threads = round_ == 1 ? 1 : context.threads;
  if (searches_.size() < std::max(1u, threads)) searches_.resize(std::max(1u, threads));
  const auto winner = first_attempt(
      attempts.size(), threads, context.repeatable,
      [&](std::size_t k, unsigned worker, const std::atomic<bool>& enough) {
        const Attempt& attempt = attempts[k];
        Answer& answer = answers[k];
        SearchLimits limits = context.limits;
        limits.nodes = std::min(attempt.nodes, left / attempts.size() + 1);
        limits.enough = &enough;
        if (attempt.keep > 0) {
          const Bundles bundles = tie(problem_, sections_, {attempt.keep, attempt.seed});
          if (round_ == 1 && tied_share(bundles) < kMuchTied) return false;
          answer.verdict =
              search_tied(bundles, attempt.aim, attempt.keys, limits, answer.offsets, answer.nodes);
          return answer.verdict != Verdict::kGaveUp;
        }
        if (!searches_[worker]) searches_[worker] = std::make_unique<ExactSearch>(problem_);
        ExactSearch& search = *searches_[worker];
        const Order order = make_order(problem_, sections_, attempt.keys, attempt.noise, attempt.seed);
        answer.verdict = search.run(attempt.aim, order, limits, answer.offsets);
        answer.nodes = search.nodes();
        return answer.verdict != Verdict::kGaveUp;
      });
  for (std::size_t k = 0; k < attempts.size() && k <= winner; ++k) context.work += answers[k].nodes;
  if (winner == attempts.size()) {
    if (improve) reach_ = 0.5 * (reach_ + 1.0);
    if (++misses_ > kMostMisses) ++level_, misses_ = 0, reach_ = 0.5;
    return true;
  }
  if (answers[winner].verdict == Verdict::kFits) keep(std::move(answers[winner].offsets));
  if (answers[winner].verdict == Verdict::kInfeasible)
    prove_above(attempts[winner].aim, "the " + std::to_string(problem_.size()) + " buffers around tick " +
                                          std::to_string(sections_.tick[sections_.tick.size() / 2]));
  return true;
}

}  // namespace memoir
