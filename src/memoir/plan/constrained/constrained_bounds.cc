// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/constrained_bounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "memoir/plan/align.h"

namespace memoir {
namespace {

/// Bytes needed (or, negative, perhaps shared) from one tick to another.
struct Demand {
  Lifetime lifetime;
  std::int64_t bytes;
  Size padding = 0;  // of the bytes: what it does not take up where nothing lies above it
};

struct Peak {
  std::int64_t bytes = 0;
  Tick tick = 0;
};

/// Of the sums at each tick, less the largest padding there.
Peak highest(const std::vector<Demand>& demands) {
  struct Step {
    Tick tick;
    std::int64_t bytes;
    Size padding;
    bool begins;
  };
  std::vector<Step> steps;
  steps.reserve(2 * demands.size());
  for (const auto& [lifetime, bytes, padding] : demands) {
    steps.push_back({lifetime.begin, bytes, padding, true});
    steps.push_back({lifetime.end, -bytes, padding, false});
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.tick < b.tick; });
  Peak peak;
  std::int64_t now = 0;
  std::map<Size, std::size_t> paddings;  // how many are live that have it
  for (std::size_t i = 0; i < steps.size();) {
    const Tick tick = steps[i].tick;
    for (; i < steps.size() && steps[i].tick == tick; ++i) {
      now += steps[i].bytes;
      if (steps[i].padding == 0) continue;
      std::size_t& count = paddings[steps[i].padding];
      if (steps[i].begins) ++count;
      else if (--count == 0) paddings.erase(steps[i].padding);
    }
    const Size most = paddings.empty() ? 0 : paddings.rbegin()->first;
    if (now - static_cast<std::int64_t>(most) > peak.bytes)
      peak = {now - static_cast<std::int64_t>(most), tick};
  }
  return peak;
}

/// The bytes that lie in any of the windows.
Size union_of(std::vector<Range> windows) {
  std::sort(windows.begin(), windows.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  Size bytes = 0;
  Offset end = 0;
  for (const Range& window : windows) {
    if (window.end() <= end) continue;
    bytes += window.end() - std::max(window.begin, end);
    end = window.end();
  }
  return bytes;
}

/// The needed bytes of one body over time, where several of its pieces may be live at once.
void add_demands(const Bodies& bodies, const Body& body, std::vector<Demand>& out) {
  const std::uint32_t first = body.first_piece, last = body.last_piece;
  bool one_by_one = true;
  for (std::uint32_t p = first; p + 1 < last; ++p) {
    one_by_one &= bodies.pieces[p].lifetime.end <= bodies.pieces[p + 1].lifetime.begin;
  }
  if (one_by_one) {
    for (std::uint32_t p = first; p < last; ++p)
      out.push_back({bodies.pieces[p].lifetime, static_cast<std::int64_t>(bodies.pieces[p].size)});
    return;
  }
  std::vector<Tick> ticks;
  for (std::uint32_t p = first; p < last; ++p) {
    ticks.push_back(bodies.pieces[p].lifetime.begin);
    ticks.push_back(bodies.pieces[p].lifetime.end);
  }
  std::sort(ticks.begin(), ticks.end());
  ticks.erase(std::unique(ticks.begin(), ticks.end()), ticks.end());
  for (std::size_t t = 0; t + 1 < ticks.size(); ++t) {
    const Lifetime slice{ticks[t], ticks[t + 1]};
    std::vector<Range> windows;
    for (std::uint32_t p = first; p < last; ++p) {
      if (bodies.pieces[p].lifetime.overlaps(slice))
        windows.push_back({bodies.window_begin[p], bodies.pieces[p].size});
    }
    if (!windows.empty()) out.push_back({slice, static_cast<std::int64_t>(union_of(std::move(windows)))});
  }
}

/// What an output saves at most in the tick of its birth: all of itself or of its largest input.
void add_savings(const Bodies& bodies, Size granule, std::vector<Demand>& out) {
  const auto& [buffers, said, source, lines] = *bodies.problem;
  std::vector<Size> saved(said.in_place.empty() ? 0 : buffers.size());
  for (const auto& [output, input] : said.in_place) {
    if (!bodies.may_share(output, input)) continue;
    saved[output] = std::max(saved[output], std::min(buffers[output].size, buffers[input].size));
  }
  for (std::size_t i = 0; i < saved.size(); ++i) {
    if (saved[i] == 0) continue;
    const Tick birth = buffers[i].lifetime.begin;
    out.push_back({{birth, birth + 1}, -static_cast<std::int64_t>(align_to(saved[i], granule))});
  }
}

struct Load {
  Size bytes = 0;
  Tick tick = 0;
  std::string reason;
};

Load timed_load(const Bodies& bodies) {
  std::vector<Demand> demands;
  for (const Body& body : bodies.bodies) add_demands(bodies, body, demands);
  std::vector<Demand> plain = demands;
  add_savings(bodies, 1, plain);
  const Peak peak = highest(plain);
  Load load{static_cast<Size>(peak.bytes), peak.tick, "the load at tick " + std::to_string(peak.tick)};
  if (!bodies.sharing.empty()) load.reason += ", as far as outputs cannot lie over their inputs";

  // With whole pieces and a common divisor of all alignments, all but the topmost take up their padding.
  Size granule = 0;
  bool whole = bodies.arenas.size() == 1;
  for (const Body& body : bodies.bodies) {
    granule = std::gcd(granule, body.alignment);
    for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p)
      whole &= bodies.pieces[p].size == body.size;
  }
  if (granule <= 1 || !whole) return load;
  for (Demand& demand : demands) {
    const Size size = static_cast<Size>(demand.bytes), padded = align_to(size, granule);
    demand.padding = padded - size;
    demand.bytes = static_cast<std::int64_t>(padded);
  }
  add_savings(bodies, granule, demands);
  const Peak padded = highest(demands);
  if (static_cast<Size>(padded.bytes) > load.bytes) {
    load = {static_cast<Size>(padded.bytes), padded.tick,
            "the load at tick " + std::to_string(padded.tick) +
                " with all but the topmost buffer rounded up to " + std::to_string(granule) +
                " bytes, a divisor of every alignment"};
  }
  return load;
}

/// Bodies that all conflict with each other by the graph alone: grown from the largest ones, the largest
/// neighbour first.
Load clique_load(const Bodies& bodies) {
  const auto n = static_cast<std::uint32_t>(bodies.bodies.size());
  std::vector<std::vector<std::uint32_t>> near(n);
  for (std::uint32_t b = 0; b < n; ++b) {
    for (const Body::Edge& edge : bodies.bodies[b].edges) {
      if (!bodies.bodies[b].row && !bodies.bodies[edge.body].row) near[b].push_back(edge.body);
    }
    std::sort(near[b].begin(), near[b].end());
    near[b].erase(std::unique(near[b].begin(), near[b].end()), near[b].end());
  }
  const auto larger = [&](auto a, auto b) {
    const Size x = bodies.bodies[a].size, y = bodies.bodies[b].size;
    return x != y ? x > y : a < b;
  };
  std::vector<Size> around(n);  // a clique with b is no larger
  std::vector<std::uint32_t> seeds(n);
  std::iota(seeds.begin(), seeds.end(), 0u);
  for (std::uint32_t b = 0; b < n; ++b) {
    around[b] = bodies.bodies[b].size;
    for (const std::uint32_t other : near[b]) around[b] += bodies.bodies[other].size;
  }
  std::sort(seeds.begin(), seeds.end(),
            [&](auto a, auto b) { return around[a] != around[b] ? around[a] > around[b] : a < b; });
  Load load;
  std::vector<std::uint32_t> best, clique, candidates;
  std::size_t effort = 0;
  for (const std::uint32_t seed : seeds) {
    if (around[seed] <= load.bytes || effort > 20'000'000) break;
    clique = {seed};
    candidates = near[seed];
    std::sort(candidates.begin(), candidates.end(), larger);
    Size bytes = bodies.bodies[seed].size;
    for (const std::uint32_t other : candidates) {
      effort += clique.size();
      const auto adjacent = [&](auto member) {
        return std::binary_search(near[member].begin(), near[member].end(), other);
      };
      if (!std::all_of(clique.begin(), clique.end(), adjacent)) continue;
      clique.push_back(other);
      bytes += bodies.bodies[other].size;
    }
    if (bytes > load.bytes) load.bytes = bytes, best = clique;
  }
  std::string names;
  for (std::size_t k = 0; k < best.size() && k < 4; ++k) {
    names += (k == 0 ? "" : ", ") + std::to_string(bodies.bodies[best[k]].members.front());
  }
  load.reason = std::to_string(best.size()) + " buffers all conflict with each other (" + names +
                (best.size() > 4 ? ", ..." : "") + ")";
  return load;
}

/// The smallest arena of which `bytes` are not forbidden.
Size with_forbidden(const ArenaChoice& arena, Size bytes) {
  for (const Range& range : arena.forbidden) {
    if (range.begin < bytes) bytes += range.size;
  }
  return bytes;
}

void bound_cost(const Bodies& bodies, Tick tick, ConstrainedBound& bound) {
  std::vector<std::size_t> order(bodies.arenas.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return bodies.arenas[a].cost < bodies.arenas[b].cost; });
  const auto cheapest = [&](const Body& body) {
    for (const std::size_t k : order) {
      if (body.allowed >> k & 1) return body.weight * bodies.arenas[k].cost;
    }
    return std::uint64_t{0};
  };
  // At the fullest tick the capacities bind: the heaviest bytes to the cheapest arena, fractions allowed.
  struct Live {
    double bytes, weight;
  };
  std::vector<Live> live;
  std::uint64_t least = 0, others = 0;
  for (const Body& body : bodies.bodies) {
    least += cheapest(body);
    Size needed = 0;
    for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p) {
      const auto& [lifetime, size, alignment] = bodies.pieces[p];
      if (lifetime.begin <= tick && tick < lifetime.end) needed = std::max(needed, size);
    }
    if (needed == 0 || !body.partners.empty()) {
      others += cheapest(body);
    } else {
      live.push_back({static_cast<double>(needed), static_cast<double>(body.weight)});
    }
  }
  bound.objective.cost = least;
  std::sort(live.begin(), live.end(),
            [](const Live& a, const Live& b) { return a.weight * b.bytes > b.weight * a.bytes; });
  double cost = 0;
  std::size_t at = 0;
  double room = static_cast<double>(bodies.arenas[order[0]].capacity);
  for (const Live& one : live) {
    for (double left = one.bytes; left > 0 && at < order.size();) {
      const double part = std::min(left, room);
      cost += part / one.bytes * one.weight * static_cast<double>(bodies.arenas[order[at]].cost);
      left -= part;
      room -= part;
      if (room <= 0 && ++at < order.size()) room = static_cast<double>(bodies.arenas[order[at]].capacity);
    }
  }
  const auto whole = static_cast<std::uint64_t>(std::ceil(std::max(0.0, cost * (1 - 1e-9) - 1e-6)));
  if (others + whole > least) {
    bound.objective.cost = others + whole;
    bound.cost_reason = "of what lives at tick " + std::to_string(tick) + ", the cheap arenas hold a part";
  }
}

}  // namespace

ConstrainedBound lower_bound(const Bodies& bodies) {
  const Constraints& said = bodies.problem->constraints;
  ConstrainedBound bound;
  Load load{0, 0, "there are no buffers"};
  if (said.timed && !bodies.bodies.empty()) load = timed_load(bodies);
  if (!said.conflicts.empty()) {
    Load clique = clique_load(bodies);
    if (clique.bytes > load.bytes) load = std::move(clique);
  }
  const Tick fullest = load.tick;
  bound.load = bound.objective.total = load.bytes;
  bound.reason = load.reason;
  if (bodies.arenas.size() == 1 && !bodies.arenas[0].forbidden.empty()) {
    const Size raised = with_forbidden(bodies.arenas[0], load.bytes);
    if (raised > load.bytes) {
      bound.objective.total = raised;
      bound.reason += ", around the forbidden ranges";
    }
  }
  std::uint64_t moves = 0;
  Size capacities = 0;
  for (const ArenaChoice& arena : bodies.arenas)
    capacities = arena.capacity > kNoLimit - capacities ? kNoLimit : capacities + arena.capacity;
  for (const Body& body : bodies.bodies) {
    Size least = kNoLimit;
    bool fits = false;
    for (std::size_t k = 0; k < bodies.arenas.size(); ++k) {
      if ((body.allowed >> k & 1) == 0) continue;
      const Offset at = next_place(body, bodies.arenas[k], 0);
      if (at == kNoOffset) continue;
      least = std::min(least, at + body.size);
      fits |= at + body.size <= bodies.arenas[k].capacity;
    }
    const std::uint32_t first = body.members.front();
    if (least != kNoLimit && least > bound.objective.total) {
      bound.objective.total = least;
      bound.reason = bodies.problem->name(first) + " cannot end lower";
    }
    if (!fits) {
      bound.infeasible = true;
      bound.infeasible_reason = bodies.problem->name(first) + " fits into no arena that it may be in";
    }
    if (said.old.empty()) continue;
    // Members that lay in different places cannot all stay; nor can one whose place is not one any more.
    std::uint64_t known = 0, most = 0;
    for (const std::uint32_t i : body.members) {
      const OldPlace& old = said.old[i];
      if (old.offset == kNoOffset) continue;
      ++known;
      if ((body.allowed >> old.arena & 1) == 0) continue;
      if (next_place(body, bodies.arenas[old.arena], old.offset) != old.offset) continue;
      most = std::max<std::uint64_t>(most, std::count_if(body.members.begin(), body.members.end(),
                                                         [&](auto j) { return said.old[j] == old; }));
    }
    moves += known - most;
  }
  if (!said.moves) bound.objective.moves = moves;
  if (bound.objective.total > capacities) {
    bound.infeasible = true;
    bound.infeasible_reason = bound.reason;
  } else if (said.moves && moves > *said.moves) {
    bound.infeasible = true;
    bound.infeasible_reason = std::to_string(moves) + " buffers cannot stay where they were";
  }
  if (bodies.arenas.size() > 1) bound_cost(bodies, fullest, bound);
  return bound;
}

Size low_load(const ConstrainedProblem& problem) {
  ConstrainedProblem low = problem;
  Constraints& said = low.constraints;
  for (std::size_t i = 0; i < said.low_sizes.size(); ++i) {
    low.buffers[i].size = said.low_sizes[i];
    if (said.gaps.empty()) continue;
    for (Gap& gap : said.gaps[i]) {
      if (!gap.window) continue;
      const Size end = std::min(gap.window->end(), said.low_sizes[i]);
      if (end > gap.window->begin) {
        gap.window->size = end - gap.window->begin;
      } else {
        gap.window.reset();
      }
    }
  }
  return lower_bound(make_bodies(low)).load;
}

}  // namespace memoir
