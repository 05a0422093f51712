// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/gapped_search.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/core_first.h"

namespace memoir {
namespace {

constexpr std::size_t kFewBodies = 500;  // then the exact search has most of the time
constexpr std::size_t kLargestSearched = 6000;
constexpr std::uint64_t kMostPairsSearched = 20'000'000;
constexpr std::uint64_t kCoreEvery = 4;  // steps, with few bodies; with many every second
constexpr std::size_t kAttemptsAtOnce = 24;
constexpr std::uint64_t kStepsWithWindows = 64;

/// When any of the body's bytes are needed: by time, what touches joined.
std::vector<Lifetime> needed(const Bodies& bodies, const Body& body) {
  std::vector<Lifetime> times;
  for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p)
    times.push_back(bodies.pieces[p].lifetime);
  std::sort(times.begin(), times.end(),
            [](const Lifetime& a, const Lifetime& b) { return a.begin < b.begin; });
  std::vector<Lifetime> joined;
  for (const Lifetime& time : times) {
    if (!joined.empty() && time.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, time.end);
    else joined.push_back(time);
  }
  return joined;
}

std::vector<std::uint32_t> free_bodies(const Bodies& bodies) {
  std::vector<std::uint32_t> free;
  for (std::uint32_t b = 0; b < bodies.bodies.size(); ++b) {
    if (bodies.bodies[b].fixed == kNoOffset) free.push_back(b);
  }
  return free;
}

std::vector<Offset> fixed_offsets(const Bodies& bodies) {
  std::vector<Offset> fixed;
  for (const Body& body : bodies.bodies) fixed.push_back(body.fixed);
  return fixed;
}

Problem some_hulls(const Bodies& bodies, const std::vector<std::uint32_t>& some) {
  Problem plain;
  for (const std::uint32_t b : some) {
    const Body& body = bodies.bodies[b];
    Lifetime lifetime = bodies.pieces[body.first_piece].lifetime;
    for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p) {
      lifetime.begin = std::min(lifetime.begin, bodies.pieces[p].lifetime.begin);
      lifetime.end = std::max(lifetime.end, bodies.pieces[p].lifetime.end);
    }
    plain.push_back({lifetime, body.size, body.alignment});
  }
  return plain;
}

Stretches stretches_of(const Bodies& bodies, const std::vector<std::uint32_t>& free, Size below) {
  Stretches stretches;
  for (const std::uint32_t b : free) {
    const Body& body = bodies.bodies[b];
    stretches.add({{}, body.size, body.alignment}, needed(bodies, body));
  }
  if (free.empty()) return stretches;
  // What is above counts for nothing, also not as load.
  const auto add = [&](const Lifetime& lifetime, Range range) {
    if (range.begin >= below) return;
    range.size = std::min(range.size, below - range.begin);
    stretches.add_obstacle(lifetime, range);
  };
  Lifetime all = bodies.pieces.front().lifetime;
  for (std::uint32_t p = 0; p < bodies.pieces.size(); ++p) {
    const auto& [lifetime, size, alignment] = bodies.pieces[p];
    all = {std::min(all.begin, lifetime.begin), std::max(all.end, lifetime.end)};
    const Offset fixed = bodies.bodies[bodies.piece_body[p]].fixed;
    if (fixed != kNoOffset) add(lifetime, {fixed + bodies.window_begin[p], size});
  }
  for (const Range& range : bodies.arenas[0].forbidden) add(all, range);
  return stretches;
}

/// Pairs of buffers whose hulls meet.
std::uint64_t count_pairs(const Problem& problem) {
  std::vector<Tick> births, deaths;
  for (const Buffer& buffer : problem) {
    births.push_back(buffer.lifetime.begin);
    deaths.push_back(buffer.lifetime.end);
  }
  std::sort(births.begin(), births.end());
  std::sort(deaths.begin(), deaths.end());
  std::uint64_t pairs = 0, live = 0;
  std::size_t dead = 0;
  for (const Tick birth : births) {
    while (dead < deaths.size() && deaths[dead] <= birth) ++dead, --live;
    pairs += live++;
  }
  return pairs;
}

}  // namespace

Problem hulls(const Bodies& bodies) {
  std::vector<std::uint32_t> all(bodies.bodies.size());
  std::iota(all.begin(), all.end(), 0u);
  return some_hulls(bodies, all);
}

GappedSearch::GappedSearch(const Bodies& bodies, Size below, std::uint64_t seed)
    : free_(free_bodies(bodies)),
      fixed_(fixed_offsets(bodies)),
      problem_(some_hulls(bodies, free_)),
      stretches_(stretches_of(bodies, free_, below)),
      sections_(find_sections(stretches_.pieces)),
      searchable_(problem_.size() <= kLargestSearched && count_pairs(problem_) <= kMostPairsSearched),
      seed_(seed),
      exact_(problem_, stretches_),
      portfolio_(std::max<std::size_t>(1, problem_.size()), std::max<std::size_t>(1, problem_.size()), seed) {
  for (const std::uint32_t b : free_) {
    const Body& body = bodies.bodies[b];
    for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p)
      whole_ &= bodies.pieces[p].size == body.size;
  }
  attempts_ = portfolio_.opening();
  std::reverse(attempts_.begin(), attempts_.end());
}

bool GappedSearch::ended() const { return !whole_ && steps_ >= kStepsWithWindows; }

std::vector<Offset> GappedSearch::step(Size target, Size best, const SearchLimits& limits,
                                       std::uint64_t& work) {
  target = std::max(target, bound_);
  if (best <= target) return {};
  const std::uint64_t step = steps_++;
  const bool few = problem_.size() <= kFewBodies;
  const bool searches = searchable_ && (few ? (step + 1) % kCoreEvery != 0 : step % 2 == 1);
  return with_fixed(searches ? search(target, best, limits, work) : core(target, best, limits, work));
}

std::vector<Offset> GappedSearch::with_fixed(const std::vector<Offset>& offsets) const {
  if (offsets.empty()) return {};
  std::vector<Offset> all = fixed_;
  for (std::size_t k = 0; k < free_.size(); ++k) all[free_[k]] = offsets[k];
  return all;
}

std::vector<Offset> GappedSearch::search(Size target, Size best, const SearchLimits& limits,
                                         std::uint64_t& work) {
  if (attempts_.empty()) {
    attempts_ = portfolio_.next(kAttemptsAtOnce);
    std::reverse(attempts_.begin(), attempts_.end());
  }
  const Attempt attempt = attempts_.back();
  attempts_.pop_back();
  const bool between = searches_++ % 2 == 1;
  const auto more = static_cast<Size>(reach_ * static_cast<double>(best - target));
  const Size aim = between ? std::min<Size>(best - 1, target + more) : target;
  SearchLimits own = limits;
  own.nodes = std::min(attempt.nodes, limits.nodes);
  std::vector<Offset> offsets;
  const Verdict verdict = exact_.run(aim, attempt.ranking, own, offsets);
  work += exact_.nodes();
  if (verdict == Verdict::kInfeasible && whole_)
    bound_ = std::max(bound_, next_reachable(problem_, exact_.grid(), aim + 1));
  if (verdict == Verdict::kFits) return offsets;
  if (between) reach_ = reach_ > 0.97 ? 0.5 : 0.5 * (reach_ + 1.0);
  return {};
}

std::vector<Offset> GappedSearch::core(Size target, Size best, const SearchLimits& limits,
                                       std::uint64_t& work) {
  constexpr std::array<double, 4> kThreshold{0.85, 0.9, 0.95, 0.8};
  const std::uint64_t turn = cores_++;
  CoreFirstOptions options;
  options.threshold = kThreshold[turn % 4];
  options.fit = turn / 2 % 2 == 0 ? Fit::kFirst : Fit::kBest;
  options.noise = turn < 8 ? 0.0 : 0.1 * static_cast<double>(1 + turn % 3);
  options.seed = seed_ + 31 * turn;
  options.nodes_per_buffer = std::uint64_t{8} << std::min<std::uint64_t>(turn / 8, 10);
  options.retries = turn % 2 == 0 ? 7 : 0;
  options.must_answer = false;
  const bool between = turn > 0 && turn % 4 != 3;
  const auto more = static_cast<Size>(core_reach_ * static_cast<double>(best - target));
  const Size aim = between ? std::min(best - 1, target + more) : target;
  std::vector<Offset> offsets = core_first(problem_, stretches_, sections_, aim, options, limits, work);
  const bool better = offsets.size() == problem_.size() && arena_size(problem_, offsets) < best;
  if (between) core_reach_ = better || core_reach_ > 0.9 ? 0.5 : 0.5 * (core_reach_ + 1.0);
  return better ? offsets : std::vector<Offset>{};
}

}  // namespace memoir
