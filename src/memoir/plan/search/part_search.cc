// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/part_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/attempts.h"
#include "memoir/plan/search/exact/bounds.h"
#include "memoir/plan/search/tied_part.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

constexpr std::chrono::milliseconds kAlone{20};   // without other threads
constexpr std::size_t kLargestSearch = 6000;      // buffers; beyond, only pieces are searched
constexpr std::uint64_t kMostPairs = 20'000'000;  // 160 MB of neighbour lists
constexpr unsigned kMostMisses = 3;
constexpr unsigned kTurnsAlone = 6;         // of the exact search, where it is worth its time
constexpr unsigned kTurnsBeforeRows = 2;    // the same; one section of rows may take as long as both
constexpr std::size_t kMany = 20'000;       // buffers
constexpr std::size_t kFewBuffers = 500;    // nothing but the exact search is worth its time
constexpr std::uint64_t kFirstFits = 1000;  // of the first local search over orders
constexpr std::size_t kLargestExact = 700;  // buffers of a piece of the core that is tried otherwise too
constexpr unsigned kPieceRetries = 7, kManyPieceRetries = 40;  // of a piece
constexpr double kLoopsFirst = 0.4, kUsualSeconds = 1;         // of the time, of very many buffers
constexpr double kShrink = 0.9, kLeastShareOfLoops = 0.1;      // after a turn that led to nothing
constexpr std::uint64_t kRepairsPerBuffer = 200;  // comparisons a buffer: about as long as one fit

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

}  // namespace

bool SearchContext::stopped() const {
  if (limits.stop && limits.stop->load(std::memory_order_relaxed)) return true;
  return work >= work_limit || std::chrono::steady_clock::now() >= limits.deadline;
}

unsigned SearchContext::threads_now() const {
  return std::chrono::steady_clock::now() - start < kAlone ? 1 : threads;
}

double SearchContext::spent() const {
  if (repeatable) return static_cast<double>(work);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double SearchContext::total() const {
  if (repeatable) return static_cast<double>(work_limit);
  return limits.deadline == std::chrono::steady_clock::time_point::max()
             ? kUsualSeconds
             : std::chrono::duration<double>(limits.deadline - start).count();
}

PartSearch::PartSearch(Canonical canonical, std::vector<std::uint32_t> loops)
    : problem_(std::move(canonical.problem)),
      sections_(find_sections(problem_)),
      grid_(find_grid(problem_)),
      said_loops_(std::move(loops)) {
  sections_.tick = std::move(canonical.ticks);  // for people
  stop_point();
  bound_ = lower_bound(problem_, sections_);
  stop_point();
  Size step = 0;
  for (const Buffer& buffer : problem_) step = std::gcd(std::gcd(step, buffer.size), buffer.alignment);
  step_ = std::max<Size>(step, 1);
  long_lives_ = lives_long(sections_);
  pairs_ = count_pairs(sections_);
  searchable_ = problem_.size() <= kLargestSearch && pairs_ <= kMostPairs;
}

PartSearch::~PartSearch() = default;
PartSearch::PartSearch(PartSearch&&) noexcept = default;

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

void PartSearch::choose_methods(const SearchContext& context) {
  const std::size_t n = problem_.size();
  if (context.exact_only || n <= kFewBuffers) {
    methods_ = {{Method::kFit, "W"}};
    return;
  }
  if (full()) {
    methods_ = {{Method::kFit, "TW"}};  // there is no core: all of it is
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
  methods_ = {{Method::kCore, "TW", 0.85, 0, Fit::kFirst, kPieceRetries},
              {Method::kCore, "TW", 0.9, 0},
              {Method::kCore, "TW", 0.9, 0, Fit::kBest},
              {Method::kCore, "TW", 0.85, 0.01, Fit::kBest, kPieceRetries},
              {Method::kCore, "TW", 0.95, 0.004},
              {Method::kCore, "TW", 0.75, 0, Fit::kFirst, kPieceRetries},
              {Method::kCore, "TW", 0.85, 0.002, Fit::kBest, kPieceRetries},
              {Method::kCore, "TW", 0.97, 0},
              {Method::kOrder, "TW"},
              {Method::kCore, "TW", 0.85, 0, Fit::kFirst, kManyPieceRetries},
              {Method::kCore, "TW", 0.9, 0.004, Fit::kBest},
              {Method::kCore, "TW", 0.97, 0.002},
              {Method::kOrder, "TW"},
              {Method::kCore, "TW", 0.9, 0.01},
              {Method::kCore, "TW", 0.8, 0},
              {Method::kCore, "W", 0.95, 0.002}};
  // Here each takes a good part of a second, and what the first has not packed the third will not either.
  if (n > kMany) {
    methods_.insert(methods_.begin() + 1, {{Method::kCore, "TW", 0.9, 0.004, Fit::kFirst, kPieceRetries},
                                           {Method::kCore, "TW", 0.85, 0.004}});
  }
}

bool PartSearch::step(Size target, SearchContext& context) {
  if (may_unroll(context)) {
    step_loops(target, context);
    return true;
  }
  if (may_tie(context)) {
    step_tied(target, context);
    return true;
  }
  const double before = context.spent();
  const bool more = advance(target, context);
  spent_ += context.spent() - before;
  return more;
}

// As soon as there is a plan.
bool PartSearch::may_unroll(const SearchContext& context) {
  if (is_tied_ || context.exact_only || arena_ == ~Size{0}) return false;
  if (!loops_) loops_ = std::make_unique<LoopSearch>(problem_, sections_, said_loops_, context.seed);
  const double others = spent_ + (tied_ ? tied_->spent : 0);
  return loops_->worthwhile() && !loops_->ended() &&
         (1 - loop_share_) * spent_on_loops_ <= loop_share_ * others;
}

// The less comes of it, the less often. Of very many buffers everything else takes long, so loops come first.
void PartSearch::step_loops(Size target, SearchContext& context) {
  const double before = context.spent();
  const double first = problem_.size() <= kMany ? 0 : kLoopsFirst * context.total();
  do {
    SearchLimits limits = context.limits;
    limits.nodes = context.work_left();
    const Size arena = arena_;
    std::vector<Offset> found = loops_->step(target, limits, context.work);
    if (!found.empty()) keep(std::move(found));
    if (arena_ == arena && loops_->arena() > arena_)
      loop_share_ = std::max(kLeastShareOfLoops, kShrink * loop_share_);
  } while (arena_ > target && context.spent() - before < first && !loops_->ended() && !context.stopped());
  spent_on_loops_ += context.spent() - before;
}

bool PartSearch::advance(Size target, SearchContext& context) {
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
      while (to < methods_.size() && to < stage_ + context.threads_now() &&
             methods_[to].method == Method::kCore)
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
  if (context.exact_only) return searchable_ && round(target, context);
  if ((turn_ > kTurnsBeforeRows || problem_.size() > kFewBuffers) && may_sweep(context)) {
    sweep(target, context);
    if (arena_ <= target) return true;
  }
  // The smaller the problem, the more often the exact search is the better one.
  const bool small = problem_.size() <= kFewBuffers;
  if (turn_ >= next_squeeze_ && turn_ > (small ? kTurnsAlone : 0) && may_squeeze()) {
    const Size before = arena_;
    squeeze(target, context);
    if (arena_ <= target) return true;
    squeeze_pause_ = small && arena_ == before ? 2 * squeeze_pause_ + 1 : 0;
    next_squeeze_ = turn_ + 1 + squeeze_pause_;
  }
  if (small || full()) return !may_round(context) || (searchable_ && round(target, context));
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
  fits = std::min(fits, context.work_left());
  const Size before = orders_->arena();
  orders_->run(target, fits, context.limits, context.work);
  stale_ = orders_->arena() < before ? 0 : stale_ + 1;
  if (orders_->arena() < arena_) keep(orders_->offsets());
}

void PartSearch::core(Size target, std::size_t from, std::size_t to, SearchContext& context) {
  std::vector<std::vector<Offset>> found(to - from);
  std::vector<std::uint64_t> work(to - from);
  first_attempt(to - from, context.threads_now(), context.repeatable,
                [&](std::size_t k, unsigned, const std::atomic<bool>& enough) {
                  SearchLimits limits = context.limits;
                  limits.enough = arena_ == ~Size{0} && k == 0 ? nullptr : &enough;
                  limits.nodes = context.work_left() / (to - from);
                  CoreFirstOptions options;
                  options.threshold = methods_[from + k].threshold;
                  options.order = methods_[from + k].order;
                  options.fit = methods_[from + k].fit;
                  options.retries = methods_[from + k].retries;
                  options.repair_effort = kRepairsPerBuffer;
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
                  limits.nodes = context.work_left() / count;
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

}  // namespace memoir
