// SPDX-License-Identifier: Apache-2.0
//
// PartSearch's rounds of the exact search.
#include <algorithm>

#include "memoir/plan/search/attempts.h"
#include "memoir/plan/search/exact/bundles.h"
#include "memoir/plan/search/part_search.h"

namespace memoir {
namespace {

constexpr std::size_t kAttemptsOfRound = 24;  // of a round; at each level of effort twice as many
constexpr std::size_t kTowardsTarget = 4;     // one in so many aims at a small improvement only
constexpr unsigned kMissesOfRounds = 3;       // rounds without success before more effort
constexpr std::size_t kAlwaysRounds = 500;    // buffers
constexpr double kShareOfRounds = 0.2;        // of what a part spends
constexpr double kNodesOfOpening = 24;        // for each buffer
constexpr double kSecondsOfLook = 1e-7;       // of one buffer at another
constexpr std::size_t kLargestWindow = 1000;  // buffers
constexpr std::uint64_t kWindowNodes = 1000;  // of the first search of a window; four times more in the next

}  // namespace

// What lives in a window of time must fit by itself. The exact search often ends on the few sections around
// the fullest one where the whole is far too large for it; whatever it refutes there is refuted for all.
bool PartSearch::refute_windows(Size target, SearchContext& context) {
  const std::uint64_t nodes = kWindowNodes << (2 * std::min(windows_++, 10u));
  auto first = static_cast<std::uint32_t>(std::max_element(sections_.load.begin(), sections_.load.end()) -
                                          sections_.load.begin());
  std::uint32_t last = first + 1;
  for (std::uint32_t width = 5; !context.stopped(); width = 2 * width - 1) {
    // It grows where the load is higher.
    while (last - first < std::min(width, sections_.count)) {
      if (last == sections_.count || (first > 0 && sections_.load[first - 1] >= sections_.load[last]))
        --first;
      else ++last;
    }
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
      limits.nodes = std::min(nodes, context.work_left());
      std::vector<Offset> offsets;
      verdict = search.run(target, Ranking{keys}, limits, offsets);
      context.work += search.nodes();
      if (verdict != Verdict::kGaveUp) break;
    }
    if (verdict == Verdict::kGaveUp) return false;
    if (verdict == Verdict::kInfeasible) {
      const auto [from, to] = std::minmax(sections_.tick[first], sections_.tick[last - 1]);
      prove_above(target, "the " + std::to_string(window.size()) + " buffers that live in the ticks " +
                              std::to_string(from) + " to " + std::to_string(to));
      return true;
    }
  }
  return false;
}

// What one round tries, in order.
std::vector<PartSearch::Aimed> PartSearch::choose_attempts(Size target, Size capacity, std::uint64_t seed) {
  std::vector<Aimed> attempts;
  if (!portfolio_) {
    portfolio_.emplace(problem_.size(), tie(problem_, sections_, {}).problem.size(), seed);
    // A tighter capacity prunes more and is sometimes the easier one.
    for (const Attempt& attempt : portfolio_->opening()) {
      if (capacity > bound_.bytes) attempts.push_back({bound_.bytes, attempt});
      attempts.push_back({capacity, attempt});
    }
    return attempts;
  }
  // Many short ones, and one as long as a quarter of them together, which may end with a proof.
  std::uint64_t nodes = 0;
  for (const Attempt& attempt : portfolio_->next(kAttemptsOfRound << std::min(level_, 12u))) {
    attempts.push_back({attempts.size() % kTowardsTarget == kTowardsTarget - 1 ? capacity : target, attempt});
    nodes += attempt.nodes;
  }
  attempts.push_back({capacity, {nodes / 4, {}}});
  return attempts;
}

// Of what is large and full nearly everywhere they seldom solve any.
bool PartSearch::may_round(const SearchContext& context) const {
  if (problem_.size() <= kAlwaysRounds || !full() || !may_squeeze()) return true;
  const auto n = static_cast<double>(problem_.size());
  const double looks = kNodesOfOpening * 2 * static_cast<double>(pairs_);
  const double first = context.repeatable ? kNodesOfOpening * n : kSecondsOfLook * looks;
  return spent_on_rounds_ + (round_ == 0 ? first : last_round_) <= kShareOfRounds * spent_;
}

bool PartSearch::round(Size target, SearchContext& context) {
  const double before = context.spent();
  // At each level of effort: the target itself once, then something between it and the best plan for as long
  // as that works.
  const bool improve = misses_ > 0 && arena_ - target > step_;
  // In steps that scale with the problem.
  const auto between = static_cast<Size>(reach_ * static_cast<double>((arena_ - target) / step_)) * step_;
  const Size capacity = improve ? std::min<Size>(arena_ - step_, target + between) : target;
  ++round_;
  const std::vector<Aimed> attempts = choose_attempts(target, capacity, context.seed);
  const std::uint64_t left = context.work_left();

  struct Answer {
    Verdict verdict = Verdict::kGaveUp;
    std::vector<Offset> offsets;
    std::uint64_t nodes = 0;
  };
  std::vector<Answer> answers(attempts.size());
  const unsigned threads = context.threads_now();
  if (searches_.size() < threads) searches_.resize(threads);
  const auto winner = first_attempt(
      attempts.size(), threads, context.repeatable,
      [&](std::size_t k, unsigned worker, const std::atomic<bool>& enough) {
        if (context.stopped()) return false;  // each prepares for long
        const auto& [aim, attempt] = attempts[k];
        Answer& answer = answers[k];
        SearchLimits limits = context.limits;
        limits.nodes = std::min(attempt.nodes, left / attempts.size() + 1);
        limits.enough = &enough;
        if (attempt.keep > 0) {
          const Bundles bundles = tie(problem_, sections_, {attempt.keep, attempt.seed});
          answer.verdict = search_tied(bundles, aim, attempt.ranking, limits, answer.offsets, answer.nodes);
          return answer.verdict != Verdict::kGaveUp;
        }
        if (!searches_[worker]) searches_[worker] = std::make_unique<ExactSearch>(problem_);
        ExactSearch& search = *searches_[worker];
        answer.verdict = search.run(aim, attempt.ranking, limits, answer.offsets);
        answer.nodes = search.nodes();
        return answer.verdict != Verdict::kGaveUp;
      });
  for (std::size_t k = 0; k < attempts.size() && k <= winner; ++k) context.work += answers[k].nodes;
  last_round_ = context.spent() - before;
  spent_on_rounds_ += last_round_;
  if (winner == attempts.size()) {
    if (improve) reach_ = 0.5 * (reach_ + 1.0);
    if (++misses_ > kMissesOfRounds) ++level_, misses_ = 0, reach_ = 0.5;
    return true;
  }
  if (answers[winner].verdict == Verdict::kFits) keep(std::move(answers[winner].offsets));
  if (answers[winner].verdict == Verdict::kInfeasible)
    prove_above(attempts[winner].aim, "the " + std::to_string(problem_.size()) + " buffers around tick " +
                                          std::to_string(sections_.tick[sections_.tick.size() / 2]));
  return true;
}

}  // namespace memoir
