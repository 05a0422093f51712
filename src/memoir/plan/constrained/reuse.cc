// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/reuse.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace memoir {
namespace {

/// Per stretch of an arena, when the last buffer on it dies: stretches [key, end) that do not overlap.
class History {
 public:
  /// Visits the parts of [range) that were used: visit(bytes, the death of the last one there).
  template <class Visit>
  void each_used(Range range, Visit&& visit) const {
    auto at = used_.upper_bound(range.begin);
    if (at != used_.begin()) --at;
    for (; at != used_.end() && at->first < range.end(); ++at) {
      const Offset begin = std::max(at->first, range.begin), end = std::min(at->second.end, range.end());
      if (begin < end) visit(end - begin, at->second.death);
    }
  }
  void use(Range range, Tick death) {
    auto at = used_.upper_bound(range.begin);
    if (at != used_.begin()) --at;
    while (at != used_.end() && at->first < range.end()) {
      const auto [begin, old] = *at;
      if (old.end <= range.begin) {
        ++at;
        continue;
      }
      at = used_.erase(at);
      if (begin < range.begin) used_[begin] = {range.begin, old.death};
      if (old.end > range.end()) at = used_.insert_or_assign(range.end(), Stretch{old.end, old.death}).first;
    }
    used_[range.begin] = {range.end(), death};
  }

 private:
  struct Stretch {
    Offset end;
    Tick death;
  };
  std::map<Offset, Stretch> used_;
};

void add(const History& history, Range range, Tick birth, Reuse& reuse) {
  Size warm = 0;
  history.each_used(range, [&](Size bytes, Tick death) {
    warm += bytes;
    reuse.age += static_cast<double>(bytes) * static_cast<double>(birth > death ? birth - death : 0);
  });
  reuse.warm_bytes += warm;
  reuse.cold_bytes += range.size - warm;
}

std::vector<std::uint32_t> by_birth(const std::vector<Tick>& births) {
  std::vector<std::uint32_t> order(births.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return births[a] < births[b]; });
  return order;
}

double score(const Reuse& reuse, double span) {
  return reuse.age + static_cast<double>(reuse.cold_bytes) * span;
}

void insert_all(Fitter& fitter, const Bodies& bodies, const ConstrainedPlan& plan) {
  for (std::uint32_t b = 0; b < bodies.bodies.size(); ++b) {
    const std::uint32_t member = bodies.bodies[b].members.front();
    fitter.insert(b, plan.arenas[member], plan.offsets[member] - bodies.shift[member]);
  }
}

bool has_old_place(const Bodies& bodies, const Body& body) {
  const auto& old = bodies.problem->constraints.old;
  return !old.empty() && std::any_of(body.members.begin(), body.members.end(),
                                     [&](auto i) { return old[i].offset != kNoOffset; });
}

}  // namespace

Reuse reuse_of(const ConstrainedProblem& problem, const ConstrainedPlan& plan) {
  Reuse reuse;
  if (!problem.constraints.timed) return reuse;
  std::vector<Tick> births;
  for (const Buffer& buffer : problem.buffers) births.push_back(buffer.lifetime.begin);
  std::vector<History> histories(plan.arena_sizes.size());
  for (const std::uint32_t i : by_birth(births)) {
    History& history = histories[plan.arenas[i]];
    const Range range{plan.offsets[i], problem.buffers[i].size};
    add(history, range, births[i], reuse);
    history.use(range, problem.buffers[i].lifetime.end);
  }
  return reuse;
}

void warm_up(const Bodies& bodies, const Sections& sections, ConstrainedPlan& plan) {
  const ConstrainedProblem& problem = *bodies.problem;
  if (!problem.constraints.timed || bodies.bodies.empty()) return;
  std::vector<Tick> births, deaths;
  for (const Body& body : bodies.bodies) {
    Tick birth = ~Tick{0}, death = 0;
    for (const std::uint32_t i : body.members) {
      birth = std::min(birth, problem.buffers[i].lifetime.begin);
      death = std::max(death, problem.buffers[i].lifetime.end);
    }
    births.push_back(birth);
    deaths.push_back(death);
  }
  const std::vector<std::uint32_t> order = by_birth(births);
  const double span = static_cast<double>(*std::max_element(deaths.begin(), deaths.end()) -
                                          *std::min_element(births.begin(), births.end()));
  double best = score(reuse_of(problem, plan), span);
  for (int pass = 0; pass < 4; ++pass) {
    Fitter fitter(bodies, sections);
    insert_all(fitter, bodies, plan);
    std::vector<History> histories(bodies.arenas.size());
    for (const std::uint32_t b : order) {
      const Body& body = bodies.bodies[b];
      const std::uint32_t arena = fitter.arena_of(b);
      const auto warmth = [&](Offset at) {
        Reuse reuse;
        add(histories[arena], {at, body.size}, births[b], reuse);
        return score(reuse, span);
      };
      Offset place = fitter.offset_of(b);
      if (body.fixed == kNoOffset && body.hint != place && !has_old_place(bodies, body)) {
        double least = warmth(place);
        fitter.erase(b);
        fitter.each_place(b, arena, plan.arena_sizes[arena], [&](Offset at) {
          const double here = warmth(at);
          if (here < least || (here == least && at < place)) least = here, place = at;
        });
        fitter.insert(b, arena, place);
      }
      histories[arena].use({place, body.size}, deaths[b]);
    }
    ConstrainedPlan warmer = to_plan(bodies, fitter.offsets(), fitter.arenas());
    const double now = score(reuse_of(problem, warmer), span);
    if (now >= best) return;
    best = now;
    plan = std::move(warmer);
  }
}

void follow_hints(const Bodies& bodies, const Sections& sections, ConstrainedPlan& plan) {
  const auto hinted = [](const Body& body) { return body.hint != kNoOffset && body.fixed == kNoOffset; };
  if (std::none_of(bodies.bodies.begin(), bodies.bodies.end(), hinted)) return;
  Fitter fitter(bodies, sections);
  insert_all(fitter, bodies, plan);
  for (bool again = true; again;) {  // each time at least one more follows, and none leaves its hint
    again = false;
    for (std::uint32_t b = 0; b < bodies.bodies.size(); ++b) {
      const Body& body = bodies.bodies[b];
      if (!hinted(body) || fitter.offset_of(b) == body.hint || has_old_place(bodies, body)) continue;
      const std::uint32_t arena = fitter.arena_of(b);
      if (body.hint > kMaxConstrainedBytes || body.hint + body.size > plan.arena_sizes[arena]) continue;
      const Offset before = fitter.offset_of(b);
      fitter.erase(b);
      const bool free = fitter.free_at(b, arena, body.hint);
      fitter.insert(b, arena, free ? body.hint : before);
      again |= free;
    }
  }
  plan = to_plan(bodies, fitter.offsets(), fitter.arenas());
}

}  // namespace memoir
