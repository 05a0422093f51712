// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/loop/exact_turns.h"

#include <algorithm>

#include "memoir/plan/search/loop/press.h"

namespace memoir {
namespace {

constexpr std::size_t kAttempts = 8;
constexpr std::uint64_t kAtTarget = 4;  // every so many attempts one
constexpr double kFarthest = 0.97;

}  // namespace

ExactTurns::ExactTurns(Problem problem, Stretches stretches, std::uint64_t seed)
    : problem_(std::move(problem)),
      stretches_(std::move(stretches)),
      exact_(problem_, stretches_),
      portfolio_(std::max<std::size_t>(1, problem_.size()), std::max<std::size_t>(1, problem_.size()), seed),
      attempts_(portfolio_.opening()) {
  std::reverse(attempts_.begin(), attempts_.end());
}

std::vector<Offset> ExactTurns::run(Size height, Size target, std::uint64_t last, const SearchLimits& limits,
                                    std::uint64_t& work) {
  while (height > std::max(target, bound_) && work < last && !is_over(limits)) {
    const Size lowest = std::max(target, bound_);
    if (attempts_.empty()) {
      attempts_ = portfolio_.next(kAttempts);
      std::reverse(attempts_.begin(), attempts_.end());
    }
    const Attempt attempt = attempts_.back();
    attempts_.pop_back();
    const bool between = turn_++ % kAtTarget != 0;
    const auto more = static_cast<Size>(reach_ * static_cast<double>(height - lowest));
    const Size aim = between ? std::min(height - 1, lowest + more) : lowest;
    SearchLimits own = limits;
    own.nodes = attempt.nodes;
    std::vector<Offset> offsets;
    const Verdict verdict = exact_.run(aim, attempt.ranking, own, offsets);
    work += 1 + exact_.nodes();
    if (verdict == Verdict::kInfeasible) bound_ = std::max(bound_, aim + 1);
    if (verdict == Verdict::kFits) return offsets;
    if (between) reach_ = reach_ > kFarthest ? 0.5 : 0.5 * (reach_ + 1.0);
  }
  return {};
}

}  // namespace memoir
