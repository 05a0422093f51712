// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/arena_planner.h"

#include <algorithm>
#include <cmath>

#include "memoir/base/error.h"
#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/constrained/subproblem.h"

namespace memoir {
namespace {

// Of the time as a whole.
constexpr double kOfPrices = 0.03, kOfChoice = 0.08, kOfFees = 0.08;
constexpr double kOfPacking = 0.08, kOfMending = 0.04, kOfAnnealing = 0.25;  // each time
constexpr double kOfOpenArenas = 0.02, kOfSettling = 0.06;
// Of the room there is less for the next choice, by half of what was too much, within the first two; and at
// least the third. A choice that was packed is followed by one with more, up to within the last of what was
// too much.
constexpr double kLess = 0.02, kMuchLess = 0.06, kLeastRoom = 0.7, kNearRoom = 0.01;
// For each buffer: `auto` runs every cheap planner, whatever its deadline.
constexpr std::chrono::microseconds kOfCheapOnes{50};
constexpr double kWarm = 0.05;  // for plans that are good already

}  // namespace

bool ArenaPlanner::worthwhile(const Bodies& bodies) {
  if (bodies.arenas.size() < 2 || bodies.problem->constraints.replanned() || bodies.bodies.empty())
    return false;
  return std::any_of(bodies.arenas.begin(), bodies.arenas.end(),
                     [](const ArenaChoice& arena) { return arena.capacity != kNoLimit; });
}

ArenaPlanner::ArenaPlanner(const Bodies& bodies, const Sections& sections, const SearchOptions& options)
    : bodies_(bodies), sections_(sections), options_(options), program_(bodies, sections) {}

SearchLimits ArenaPlanner::limits(double share) const {
  SearchLimits limits;
  limits.stop = options_.stop;
  if (options_.work_limit != 0) {
    limits.nodes = static_cast<std::uint64_t>(share * static_cast<double>(options_.work_limit)) + 1;
    return limits;
  }
  const auto part = std::chrono::duration_cast<Clock::duration>(share * (deadline_ - begin_));
  limits.deadline = std::min(deadline_, Clock::now() + part);
  return limits;
}

/// Gives the buffers that the plan has in an arena their places. It may need more than the capacity.
bool ArenaPlanner::pack(std::uint32_t arena, ConstrainedPlanner planner, double share, ConstrainedPlan& plan,
                        std::uint64_t& work) const {
  std::vector<bool> kept;
  for (const std::uint32_t k : plan.arenas) kept.push_back(k == arena);
  Subproblem chosen = subproblem_of(*bodies_.problem, kept);
  plan.arena_sizes[arena] = 0;
  if (chosen.kept.empty()) return true;
  Constraints& said = chosen.problem.constraints;
  said.allowed.clear();
  said.weights.clear();
  said.hints.clear();
  said.locality = false;
  said.arenas = {bodies_.arenas[arena]};
  SearchOptions options = options_;
  options.improved = nullptr;
  options.tolerance = {};
  if (said.arenas[0].capacity != kNoLimit) options.capacity = said.arenas[0].capacity;
  const SearchLimits limits = this->limits(share);
  if (options_.work_limit == 0 &&
      deadline_ - Clock::now() < kOfCheapOnes * static_cast<int>(chosen.kept.size()))
    planner = ConstrainedPlanner::kFirstFit;
  if (options_.work_limit != 0) options.work_limit = limits.nodes;
  else options.deadline_s = std::chrono::duration<double>(limits.deadline - Clock::now()).count();
  ConstrainedResult result;
  try {
    result = plan_constrained(chosen.problem, planner, options);
  } catch (const Error&) {  // banks, or fixed offsets, that do not go together in one arena
  }
  work += result.work;
  for (std::size_t i = 0; i < chosen.kept.size(); ++i)
    plan.offsets[chosen.kept[i]] = result.found ? result.plan.offsets[i] : ArenaSearch::kNowhere;
  plan.arena_sizes[arena] = result.found ? result.plan.arena_sizes[0] : kNoLimit;
  return result.found;
}

void ArenaPlanner::prove() {
  std::uint64_t apart = 0;  // each in the cheapest arena that it may be in
  for (const Body& body : bodies_.bodies) {
    std::uint64_t least = ~std::uint64_t{0};
    for (std::uint32_t k = 0; k < bodies_.arenas.size(); ++k) {
      if (body.allowed >> k & 1) least = std::min(least, body.weight * bodies_.arenas[k].cost);
    }
    apart += least;
  }
  const double together = std::ceil(std::max(0.0, program_.bound() * (1 - 1e-9) - 1e-6));
  bound_ = std::max(apart, static_cast<std::uint64_t>(together));
}

double ArenaPlanner::cost_of_choice(const std::vector<std::uint32_t>& arenas) const {
  double cost = 0;
  for (std::uint32_t b = 0; b < arenas.size(); ++b) cost += program_.cost(b, arenas[b]);
  return cost;
}

/// Each body in its dearest arena.
double ArenaPlanner::highest_cost() const {
  double cost = 0;
  for (std::uint32_t b = 0; b < bodies_.bodies.size(); ++b) {
    double most = 0;
    for (std::uint32_t k = 0; k < bodies_.arenas.size(); ++k) {
      if (program_.allowed(b, k)) most = std::max(most, program_.cost(b, k));
    }
    cost += most;
  }
  return cost;
}

/// A better one from this one; nothing: there was none.
std::optional<ConstrainedPlan> ArenaPlanner::annealed(const ConstrainedPlan& from, double share,
                                                      std::uint64_t& work) {
  ArenaSearch search(bodies_, sections_, program_, Room::kOffsets, options_.seed * 1'000'003 + ++seeds_);
  std::vector<Offset> offsets(bodies_.bodies.size());
  std::vector<std::uint32_t> arenas(bodies_.bodies.size());
  for (std::uint32_t b = 0; b < offsets.size(); ++b) {
    const std::uint32_t member = bodies_.bodies[b].members.front();
    offsets[b] = from.offsets[member];
    if (offsets[b] != ArenaSearch::kNowhere) offsets[b] -= bodies_.shift[member];
    arenas[b] = from.arenas[member];
  }
  search.start(offsets, arenas);
  if (!search.run(kWarm, limits(share), work)) return std::nullopt;
  if (fits(*bodies_.problem, from) && cost_of_choice(search.arenas()) >= cost_of_choice(arenas))
    return std::nullopt;
  ConstrainedPlan plan = to_plan(bodies_, search.offsets(), search.arenas());
  for (std::uint32_t k = 0; k < bodies_.arenas.size(); ++k) {  // it looks for no places in open ones
    if (search.open(k) && !pack(k, ConstrainedPlanner::kFirstFit, kOfOpenArenas, plan, work))
      return std::nullopt;
  }
  return plan;
}

void ArenaPlanner::run(Clock::time_point deadline, std::uint64_t& work,
                       const std::function<bool(const ConstrainedPlan&)>& found) {
  begin_ = Clock::now();
  deadline_ = deadline;
  const std::uint64_t last = options_.work_limit == 0 ? ~std::uint64_t{0} : work + options_.work_limit;
  if (options_.work_limit == 0)
    deadline_ -= std::chrono::duration_cast<Clock::duration>(kOfSettling * (deadline - begin_));
  const auto stopped = [&] {
    return (options_.stop && *options_.stop) || work >= last || Clock::now() >= deadline_;
  };
  std::optional<ConstrainedPlan> best;  // of those that keep to the capacities
  std::uint64_t least = ~std::uint64_t{0};
  bool enough = false;
  const auto offer = [&](const ConstrainedPlan& plan) {
    enough = found(plan);
    if (!fits(*bodies_.problem, plan)) return;
    const std::uint64_t cost = cost_of(*bodies_.problem, plan);
    if (cost < least) least = cost, best = plan;
  };

  program_.raise_prices(highest_cost(), limits(kOfPrices), work);
  prove();
  double room = 1, too_much = 1;
  bool choosing = true, best_is_packed = false;
  for (std::uint64_t round = 0; !stopped() && !enough && least > bound_; ++round) {
    if (!choosing) {
      program_.raise_fees(static_cast<double>(least), limits(kOfFees), work);
      prove();
      if (least <= bound_) break;
      if (const auto plan = annealed(*best, kOfAnnealing, work)) offer(*plan);
      ++work;  // so that it ends
      continue;
    }
    ArenaSearch choice(bodies_, sections_, program_, Room::kLoads, options_.seed * 1'000'003 + ++seeds_,
                       room);
    choice.start();
    const bool chosen = choice.run(1, limits(kOfChoice), work);
    const double cost = chosen ? cost_of_choice(choice.arenas()) : HUGE_VAL;
    if (room == 1 && chosen) {
      if (round == 0) program_.raise_prices(cost, limits(kOfPrices), work);
      program_.raise_fees(cost, limits(kOfFees), work);
      prove();
    }
    if (!chosen || (best && cost >= static_cast<double>(least))) {  // less room leads nowhere
      choosing = false;
      if (!best) return;
      continue;
    }
    const std::vector<Offset> nowhere(bodies_.bodies.size(), 0);
    ConstrainedPlan plan = to_plan(bodies_, nowhere, choice.arenas());
    const auto closed = std::count_if(bodies_.arenas.begin(), bodies_.arenas.end(),
                                      [](const ArenaChoice& arena) { return arena.capacity != kNoLimit; });
    const double of_packing = kOfPacking / static_cast<double>(closed);
    double excess = 0;
    ++work;  // so that it ends
    bool packed = true;
    for (std::uint32_t k = 0; k < bodies_.arenas.size(); ++k) {
      packed &= pack(k, ConstrainedPlanner::kAuto, choice.open(k) ? kOfOpenArenas : of_packing, plan, work);
      const auto capacity = static_cast<double>(bodies_.arenas[k].capacity);
      excess = std::max(excess, static_cast<double>(plan.arena_sizes[k]) / capacity - 1);
    }
    if (packed) offer(plan);
    if (!packed) excess = kMuchLess;
    if (excess > 0 && !stopped() && !enough) {
      if (const auto mended = annealed(plan, kOfMending, work)) offer(*mended);
    }
    if (excess > 0) {
      choosing = !best_is_packed;
      too_much = room;
      room -= std::clamp(excess / 2, kLess, kMuchLess);
    } else {
      best_is_packed = true;
      choosing = room == 1 || too_much - room > kNearRoom;
      room = (room + too_much) / 2;
    }
    if (room < kLeastRoom) {
      choosing = false;
      if (!best) return;
    }
  }
  if (!best || enough || options_.work_limit != 0) return;
  deadline_ = deadline;
  for (std::uint32_t k = 0; k < bodies_.arenas.size(); ++k) {
    if (Clock::now() >= deadline_ || !pack(k, ConstrainedPlanner::kAuto, kOfSettling / 2, *best, work))
      return;
  }
  if (fits(*bodies_.problem, *best)) found(*best);
}

}  // namespace memoir
