// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/priced.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <queue>
#include <string>
#include <tuple>

#include "memoir/base/error.h"

namespace memoir {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShareOfPlan = 0.2;         // of the time or work that is left
constexpr unsigned kMostPlans = 20'000;      // under a work limit
constexpr unsigned kMostFits = 16;           // plans of first_fit
constexpr std::uint64_t kLeastWork = 1'000;  // placements of one plan
constexpr unsigned kDives = 4;
constexpr std::size_t kManyPaid = 3;  // then all that pay are forbidden at once, before one after another

/// `hard`: the pairs that must not share, by their place in constraints.prices. The result has no prices.
ConstrainedProblem forbid(const ConstrainedProblem& problem, const std::vector<std::size_t>& hard) {
  ConstrainedProblem out = problem;
  Constraints& said = out.constraints;
  said.prices.clear();
  if (hard.empty()) return out;
  const auto pair_of = [&](std::size_t k) {
    const PricedPair& one = problem.constraints.prices[k];
    return Constraints::Pair(one.first, one.second);
  };
  Tick last = 0;
  for (const Buffer& buffer : problem.buffers) last = std::max(last, buffer.lifetime.end);
  // Who may lie in place, and what was freed a short time ago, depend on when lives end.
  if (!said.timed || !said.in_place.empty() || said.locality ||
      last >= std::numeric_limits<Tick>::max() / 2) {
    for (const std::size_t k : hard) {
      const auto [a, b] = pair_of(k);
      said.conflicts.emplace_back(a, b);
      std::erase_if(said.in_place, [&, a = a, b = b](const auto& one) {
        return one == Constraints::Pair(a, b) || one == Constraints::Pair(b, a);
      });
    }
    return out;
  }
  if (said.gaps.empty()) said.gaps.resize(problem.buffers.size());
  for (const std::size_t k : hard) {
    const auto [a, b] = pair_of(k);
    for (const std::uint32_t i : {a, b}) {
      Tick& end = out.buffers[i].lifetime.end;
      if (end < last) said.gaps[i].push_back({{end, last}, std::nullopt});
      end = last + 1;
    }
    ++last;
  }
  return out;
}

class Branching {
 public:
  Branching(const ConstrainedProblem& problem, ConstrainedPlanner planner, const SearchOptions& options)
      : problem_(problem), planner_(planner), options_(options), start_(Clock::now()) {
    const Constraints& said = problem.constraints;
    limited_ = !said.several_arenas() &&
               (options.capacity || (!said.arenas.empty() && said.arenas[0].capacity != kNoLimit));
  }

  ConstrainedResult run() {
    validate(problem_);
    Node root;
    root.state.assign(problem_.constraints.prices.size(), State::kOpen);
    root.made = make(root);
    root_ = root.made;
    if (!best_.result.found) best_ = *root_;
    root.bound = bound_of(root);
    if (root.made->result.proven_infeasible) return finish(root.bound);
    dive(*root.made);
    std::size_t count = 0;
    open_.push(Entry{root.bound, count++, std::make_shared<Node>(std::move(root))});
    Value unproven = kNoValue;
    while (!open_.empty() && !over()) {
      const auto node = open_.top().node;
      open_.pop();
      if (node->bound >= value_) break;  // and so are all others
      if (!node->made) {
        node->made = make(*node);
        if (node->made->result.proven_infeasible) continue;
        node->bound = std::max(node->bound, bound_of(*node));
        if (node->bound >= value_) continue;
      }
      const std::size_t pair = dearest(*node);
      if (pair == kNoPair) {
        const ConstrainedResult& made = node->made->result;
        if (!(limited_ ? made.fits : made.optimal)) unproven = std::min(unproven, node->bound);
        continue;
      }
      auto pays = std::make_shared<Node>(*node);
      pays->state[pair] = State::kPays;
      pays->bound = std::max(node->bound, bound_of(*pays));
      auto shares_not = std::make_shared<Node>(*node);
      shares_not->state[pair] = State::kForbidden;
      shares_not->made = nullptr;
      for (auto& child : {shares_not, pays}) {
        if (child->bound < value_) open_.push(Entry{child->bound, count++, child});
      }
    }
    Value least = unproven;
    if (!open_.empty()) least = std::min(least, open_.top().bound);
    return finish(std::min(least, value_));
  }

 private:
  // Moves, cost, arenas and prices; with a limit moves, cost, prices.
  using Value = std::tuple<std::uint64_t, std::uint64_t, Size>;
  static constexpr Size kMost = std::numeric_limits<Size>::max();
  static constexpr Value kNoValue{kMost, kMost, kMost};
  static constexpr std::size_t kNoPair = ~std::size_t{0};
  enum class State : std::uint8_t { kOpen, kForbidden, kPays };

  struct Made {
    ConstrainedResult result;
    std::vector<std::size_t> paid;  // pairs that share in it
  };
  struct Node {
    std::vector<State> state;  // per pair
    Value bound{0, 0, 0};
    std::shared_ptr<const Made> made;  // with what is forbidden; null: not yet
  };
  struct Entry {
    Value bound;
    std::size_t number;
    std::shared_ptr<Node> node;
    bool operator<(const Entry& other) const {  // the top is the least bound, then the latest
      return bound != other.bound ? bound > other.bound : number < other.number;
    }
  };

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool over() const {
    if (options_.stop && *options_.stop) return true;
    if (planner_ == ConstrainedPlanner::kFirstFit && plans_ >= kMostFits) return true;
    if (options_.work_limit != 0) return work_ >= options_.work_limit || plans_ >= kMostPlans;
    return seconds() >= options_.deadline_s;
  }

  Value value_of(const ConstrainedResult& made, Size paid) const {
    return {made.objective.moves, made.objective.cost, limited_ ? paid : made.objective.total + paid};
  }
  Value bound_of(const Node& node) const {
    Size paid = 0;
    for (std::size_t k = 0; k < node.state.size(); ++k)
      paid += node.state[k] == State::kPays ? problem_.constraints.prices[k].price : 0;
    const Objective& least = node.made->result.lower_bound;
    return {least.moves, least.cost, limited_ ? paid : least.total + paid};
  }

  std::shared_ptr<const Made> make(const Node& node) {
    std::vector<std::size_t> hard;
    for (std::size_t k = 0; k < node.state.size(); ++k) {
      if (node.state[k] == State::kForbidden) hard.push_back(k);
    }
    return make(hard);
  }

  std::shared_ptr<const Made> make(const std::vector<std::size_t>& hard) {
    const ConstrainedProblem problem = forbid(problem_, hard);
    auto made = std::make_shared<Made>();
    if (plans_++ > 0) {
      try {
        validate(problem);
      } catch (const Error&) {  // aliases or fixed offsets that share whatever is done
        made->result.proven_infeasible = true;
        ++work_;
        return made;
      }
    }
    SearchOptions options = options_;
    options.improved = nullptr;
    if (options.work_limit != 0) {
      const double left = static_cast<double>(options.work_limit - std::min(work_, options.work_limit));
      options.work_limit = std::max(kLeastWork, static_cast<std::uint64_t>(kShareOfPlan * left));
    } else {
      options.deadline_s = kShareOfPlan * std::max(0.0, options.deadline_s - seconds());
    }
    made->result = plan_constrained(problem, planner_, options);
    work_ += 1 + made->result.work;
    if (!made->result.found) return made;
    const auto& prices = problem_.constraints.prices;
    Size paid = 0;
    for (std::size_t k = 0; k < prices.size(); ++k) {
      if (!shares(problem_, made->result.plan, prices[k])) continue;
      made->paid.push_back(k);
      paid += prices[k].price;
    }
    const Value value = value_of(made->result, paid);
    const auto rank = [](const ConstrainedResult& one, const Value& value) {
      return std::tuple(!one.found, !one.fits, value, one.objective.total);
    };
    if (!best_.result.found || rank(made->result, value) < rank(best_.result, best_value_)) {
      best_ = *made;
      best_value_ = value;
      best_.result.paid = paid;
      if (made->result.fits) value_ = value;
      if (options_.improved) options_.improved(made->result.objective.total, seconds());
    }
    return made;
  }

  // Many pay: all of them are forbidden at once, then those that pay instead too, and the dearer half alone.
  void dive(const Made& root) {
    if (root.paid.size() < kManyPaid) return;
    std::vector<std::size_t> dear = root.paid, hard = root.paid;
    for (unsigned k = 0; k < kDives && !over(); ++k) {
      const auto made = make(hard);
      if (made->result.proven_infeasible || made->paid.empty()) break;
      hard.insert(hard.end(), made->paid.begin(), made->paid.end());
    }
    const auto& prices = problem_.constraints.prices;
    std::stable_sort(dear.begin(), dear.end(),
                     [&](auto a, auto b) { return prices[a].price > prices[b].price; });
    for (unsigned k = 0; k < kDives && dear.size() > 1 && !over(); ++k) {
      dear.resize((dear.size() + 1) / 2);
      make(dear);
    }
  }

  // Of those that share in its plan and are neither forbidden to nor have their price counted.
  std::size_t dearest(const Node& node) const {
    std::size_t best = kNoPair;
    const auto& prices = problem_.constraints.prices;
    for (const std::size_t k : node.made->paid) {
      if (node.state[k] == State::kOpen && (best == kNoPair || prices[k].price > prices[best].price))
        best = k;
    }
    return best;
  }

  ConstrainedResult finish(const Value& bound) {
    ConstrainedResult result = std::move(best_.result);
    result.lower_bound = root_->result.lower_bound;
    result.bound_reason = root_->result.bound_reason;
    result.cost_reason = root_->result.cost_reason;
    result.load = root_->result.load;
    result.proven_infeasible = root_->result.proven_infeasible;
    result.least_priced = std::get<2>(bound);
    const bool proven = result.found && result.fits && best_value_ <= bound;
    if (proven)
      result.lower_bound.moves = result.objective.moves, result.lower_bound.cost = result.objective.cost;
    result.optimal = proven;
    result.seconds = seconds();
    result.work = work_;
    return result;
  }

  const ConstrainedProblem& problem_;
  const ConstrainedPlanner planner_;
  const SearchOptions& options_;
  const Clock::time_point start_;
  bool limited_;
  std::priority_queue<Entry> open_;
  std::shared_ptr<const Made> root_;
  Made best_;
  Value best_value_ = kNoValue, value_ = kNoValue;  // value_: of the best that keeps to the limits
  std::uint64_t work_ = 0;
  unsigned plans_ = 0;
};

}  // namespace

ConstrainedResult plan_priced(const ConstrainedProblem& problem, ConstrainedPlanner planner,
                              const SearchOptions& options) {
  return Branching(problem, planner, options).run();
}

}  // namespace memoir
