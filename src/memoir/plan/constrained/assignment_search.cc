// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/assignment_search.h"

#include <algorithm>
#include <numeric>

namespace memoir {
namespace {

constexpr std::size_t kMostKnown = 100'000;  // layouts remembered

}  // namespace

AssignmentSearch::AssignmentSearch(const Bodies& bodies, const ConstrainedBound& bound,
                                   std::optional<Objective> incumbent, Objective enough, bool any_fit,
                                   std::function<void(const ConstrainedPlan&)> improved)
    : bodies_(bodies),
      bound_(bound),
      best_(incumbent),
      enough_(enough),
      any_fit_(any_fit),
      improved_(std::move(improved)) {
  const std::size_t n = bodies.bodies.size();
  for (const Body& body : bodies.bodies) {
    options_.push_back(options_of(body));
    only_one_ &= options_.back().size() == 1;
  }
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0u);
  const auto spread = [&](std::uint32_t b) {
    std::uint64_t least = ~std::uint64_t{0}, most = 0;
    for (const Option& option : options_[b]) {
      least = std::min(least, option.cost);
      most = std::max(most, option.cost);
    }
    return options_[b].empty() ? 0 : most - least;
  };
  std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) {
    return spread(a) != spread(b) ? spread(a) > spread(b) : bodies_.bodies[a].size > bodies_.bodies[b].size;
  });
  taken_.assign(n, kNoBuffer);
  moves_left_.assign(n + 1, 0);
  cost_left_.assign(n + 1, 0);
  for (std::size_t depth = n; depth-- > 0;) {
    std::uint64_t moves = ~std::uint64_t{0}, cost = ~std::uint64_t{0};
    for (const Option& option : options_[order_[depth]]) {
      moves = std::min(moves, option.moves);
      cost = std::min(cost, option.cost);
    }
    if (options_[order_[depth]].empty()) moves = cost = 0;
    moves_left_[depth] = moves_left_[depth + 1] + moves;
    cost_left_[depth] = cost_left_[depth + 1] + cost;
  }
}

/// To stay where some of its members were, or to go to any arena as if all of them moved.
std::vector<AssignmentSearch::Option> AssignmentSearch::options_of(const Body& body) const {
  const Constraints& said = bodies_.problem->constraints;
  std::vector<Option> options;
  const auto cost = [&](std::uint32_t arena) { return body.weight * bodies_.arenas[arena].cost; };
  std::uint64_t known = 0;
  if (said.replanned()) {
    std::vector<OldPlace> seen;
    for (const std::uint32_t i : body.members) {
      const OldPlace& old = said.old[i];
      if (old.offset == kNoOffset) continue;
      ++known;
      if ((body.allowed >> old.arena & 1) == 0 || std::find(seen.begin(), seen.end(), old) != seen.end())
        continue;
      seen.push_back(old);
    }
    for (const OldPlace& old : seen) {
      if (next_place(body, bodies_.arenas[old.arena], old.offset) != old.offset) continue;
      const auto stay = static_cast<std::uint64_t>(std::count_if(body.members.begin(), body.members.end(),
                                                                 [&](auto i) { return said.old[i] == old; }));
      options.push_back({old.arena, old.offset, known - stay, cost(old.arena)});
    }
  }
  for (std::uint32_t k = 0; k < bodies_.arenas.size(); ++k) {
    if (body.allowed >> k & 1) options.push_back({k, kNoOffset, known, cost(k)});
  }
  std::stable_sort(options.begin(), options.end(), [](const Option& a, const Option& b) {
    return a.moves != b.moves ? a.moves < b.moves : a.cost < b.cost;
  });
  return options;
}

Objective AssignmentSearch::reachable(std::uint64_t moves, std::uint64_t cost) const {
  Objective objective = bound_.objective;
  objective.cost = std::max(objective.cost, cost);
  if (!bodies_.problem->constraints.moves) objective.moves = std::max(objective.moves, moves);
  return objective;
}

Verdict AssignmentSearch::run(const SearchLimits& limits) {
  limits_ = limits;
  return assign(0, 0, 0);
}

Verdict AssignmentSearch::assign(std::size_t depth, std::uint64_t moves, std::uint64_t cost) {
  if (++nodes_ > limits_.nodes) return Verdict::kGaveUp;
  if ((nodes_ & 255) == 0 &&
      ((limits_.stop && *limits_.stop) || std::chrono::steady_clock::now() >= limits_.deadline)) {
    return Verdict::kGaveUp;
  }
  const auto& limit = bodies_.problem->constraints.moves;
  if (limit && moves + moves_left_[depth] > *limit) return Verdict::kInfeasible;
  if (best_ && reachable(moves + moves_left_[depth], cost + cost_left_[depth]) >= *best_)
    return Verdict::kInfeasible;
  if (depth == order_.size()) return lay_out(moves, cost);
  const std::uint32_t b = order_[depth];
  for (std::uint32_t k = 0; k < options_[b].size(); ++k) {
    const Option& option = options_[b][k];
    taken_[b] = k;
    if (!overloaded(option.arena)) {
      const Verdict verdict = assign(depth + 1, moves + option.moves, cost + option.cost);
      if (verdict != Verdict::kInfeasible) return verdict;
    }
    taken_[b] = kNoBuffer;
  }
  return Verdict::kInfeasible;
}

/// Of the bodies assigned so far, those that can never share need more at some tick than the arena has.
bool AssignmentSearch::overloaded(std::uint32_t arena) const {
  const Size capacity = bodies_.arenas[arena].capacity;
  if (capacity == kNoLimit || only_one_) return false;
  Problem pieces;
  for (std::uint32_t b = 0; b < taken_.size(); ++b) {
    const Body& body = bodies_.bodies[b];
    if (taken_[b] == kNoBuffer || options_[b][taken_[b]].arena != arena) continue;
    if (body.size > capacity) return true;
    if (!body.partners.empty()) continue;
    Tick end = 0;
    for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p) {
      if (bodies_.pieces[p].lifetime.begin < end) continue;
      end = bodies_.pieces[p].lifetime.end;
      pieces.push_back(bodies_.pieces[p]);
    }
  }
  return load(pieces) > capacity;
}

const AssignmentSearch::Layout& AssignmentSearch::smallest(std::uint32_t arena,
                                                           const std::vector<std::uint32_t>& chosen,
                                                           Size limit) {
  std::vector<std::uint32_t> key{arena};
  for (const std::uint32_t b : chosen) {
    key.push_back(b);
    key.push_back(taken_[b]);
  }
  if (known_.size() > kMostKnown) known_.clear();
  const auto [it, fresh] = known_.try_emplace(std::move(key));
  Layout& layout = it->second;
  if (!fresh && layout.verdict != Verdict::kGaveUp) return layout;
  std::vector<Offset> fixed;
  for (const std::uint32_t b : chosen) fixed.push_back(options_[b][taken_[b]].fixed);
  LayoutSearch search(bodies_, chosen, arena, fixed);
  layout = {Verdict::kInfeasible, 0, {}};
  for (Size capacity = std::min(limit, search.horizon());;) {
    std::vector<Offset> offsets;
    const Verdict verdict = search.run(capacity, limits_, offsets);
    if (verdict == Verdict::kGaveUp) layout.verdict = verdict;
    if (verdict != Verdict::kFits) break;
    layout.verdict = verdict;
    layout.size = 0;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      layout.size = std::max(layout.size, offsets[i] + bodies_.bodies[chosen[i]].size);
    layout.offsets = std::move(offsets);
    if (layout.size == 0 || any_fit_ || (only_one_ && layout.size <= bound_.objective.total)) break;
    if (only_one_ && layout.size <= enough_.total) {
      layout.verdict = Verdict::kGaveUp;  // there may be a smaller one
      break;
    }
    capacity = layout.size - 1;
  }
  nodes_ += search.nodes();
  return layout;
}

Verdict AssignmentSearch::lay_out(std::uint64_t moves, std::uint64_t cost) {
  const auto n = static_cast<std::uint32_t>(bodies_.bodies.size());
  std::vector<Offset> offsets(n);
  std::vector<std::uint32_t> arenas(n);
  Objective objective = reachable(moves, cost);
  objective.total = 0;
  Verdict worst = Verdict::kInfeasible;
  for (std::uint32_t k = 0; k < bodies_.arenas.size(); ++k) {
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t b = 0; b < n; ++b) {
      if (options_[b][taken_[b]].arena == k) chosen.push_back(b);
    }
    if (chosen.empty()) continue;
    Size limit = bodies_.arenas[k].capacity;
    if (only_one_ && best_) limit = std::min(limit, best_->total - 1);
    const Layout& layout = smallest(k, chosen, limit);
    if (layout.verdict == Verdict::kInfeasible) return Verdict::kInfeasible;
    if (layout.verdict == Verdict::kGaveUp) worst = Verdict::kGaveUp;
    if (layout.offsets.empty()) return Verdict::kGaveUp;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      offsets[chosen[i]] = layout.offsets[i];
      arenas[chosen[i]] = k;
    }
    objective.total += layout.size;
  }
  const ConstrainedPlan plan = to_plan(bodies_, offsets, arenas);
  objective = objective_of(*bodies_.problem, plan);
  if (!best_ || objective < *best_) {
    best_ = objective;
    improved_(plan);
    if (any_fit_ || objective <= enough_) return Verdict::kFits;
  }
  return worst;
}

}  // namespace memoir
