// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/arena_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace memoir {
namespace {

constexpr std::uint32_t kNotAway = ~std::uint32_t{0};
constexpr double kHot = 0.3, kCold = 0.002;  // temperatures, of what one body usually gains
constexpr double kShaken = 0.2;              // of the moves: from a place to another in the same arena
constexpr double kNoise = 1;                 // of what those in the way lose: so that ways differ
constexpr double kHope = 1;                  // how much of its gain others may lose at first: some find room
constexpr std::size_t kOffered = 16, kFilled = 8;  // of those that live where room became free
constexpr std::size_t kMostLooked = 400;           // bodies

}  // namespace

ArenaSearch::ArenaSearch(const Bodies& bodies, const Sections& sections, const ArenaProgram& program,
                         Room room, std::uint64_t seed, double share)
    : bodies_(bodies),
      program_(program),
      room_(room),
      share_(share),
      arenas_(static_cast<std::uint32_t>(bodies.arenas.size())),
      fitter_(bodies, sections),
      random_(seed),
      by_cost_(arenas_),
      open_(arenas_),
      cost_(bodies.bodies.size() * arenas_),
      loss_(bodies.bodies.size() * arenas_),
      priced_(bodies.bodies.size()),
      home_(bodies.bodies.size()),
      where_(bodies.bodies.size(), arenas_),
      place_in_away_(bodies.bodies.size(), kNotAway),
      stamp_(bodies.bodies.size()) {
  std::iota(by_cost_.begin(), by_cost_.end(), 0u);
  std::stable_sort(by_cost_.begin(), by_cost_.end(),
                   [&](auto a, auto b) { return bodies.arenas[a].cost < bodies.arenas[b].cost; });
  Size all = 0;
  for (const Body& body : bodies.bodies) all += body.size + body.alignment;
  for (std::uint32_t k = 0; k < arenas_; ++k)
    open_[k] = bodies.arenas[k].capacity >= all && bodies.arenas[k].forbidden.empty();
  for (std::uint32_t b = 0; b < bodies.bodies.size(); ++b) {
    for (std::uint32_t k = 0; k < arenas_; ++k)
      nowhere_ += cost_[b * arenas_ + k] =
          static_cast<double>(bodies.bodies[b].weight) * static_cast<double>(bodies.arenas[k].cost);
  }
  std::vector<std::vector<double>> sums;  // of the prices of the sections before
  for (const std::vector<double>& price : program.prices()) {
    sums.push_back({0});
    for (const double one : price) sums.back().push_back(sums.back().back() + one);
  }
  for (std::uint32_t b = 0; b < bodies.bodies.size(); ++b) {
    double next = nowhere_;
    for (auto k = by_cost_.rbegin(); k != by_cost_.rend(); ++k) {
      if ((bodies.bodies[b].allowed >> *k & 1) == 0) continue;
      loss_[b * arenas_ + *k] = next - cost(b, *k);
      next = cost(b, *k);
      home_[b] = *k;
    }
    const std::vector<double>& sum = sums[home_[b]];
    double priced = 0;
    for (std::uint32_t d = program.first_demand(b); d < program.first_demand(b + 1); ++d) {
      const auto& [first, last, bytes] = program.demands()[d];
      priced += bytes * (sum[last] - sum[first]);
    }
    priced_[b] = priced;
  }
}

/// What is saved by bringing it home, for each unit of what its bytes are worth there.
double ArenaSearch::worth(std::uint32_t b) const {
  const double here = where_[b] == arenas_ ? nowhere_ : cost(b, where_[b]);
  return (here - cost(b, home_[b])) / (priced_[b] + 1e-9);
}

void ArenaSearch::mark(std::uint32_t b) {
  const bool away = where_[b] != home_[b];
  std::uint32_t& at = place_in_away_[b];
  if (away && at == kNotAway) {
    at = static_cast<std::uint32_t>(away_.size());
    away_.push_back(b);
  } else if (!away && at != kNotAway) {
    place_in_away_[away_.back()] = at;
    away_[at] = away_.back();
    away_.pop_back();
    at = kNotAway;
  }
}

void ArenaSearch::remember(std::uint32_t b) {
  if (stamp_[b] == round_) return;
  stamp_[b] = round_;
  steps_.push_back({b, where_[b], fitter_.placed(b) ? fitter_.offset_of(b) : kNoOffset});
}

void ArenaSearch::put(std::uint32_t b, std::uint32_t arena, Offset offset) {
  remember(b);
  where_[b] = arena;
  if (arena < arenas_) {
    total_ += cost(b, arena);
    fitter_.insert(b, arena, offset);
    load(b, arena, 1);
  } else {
    total_ += nowhere_;
  }
  mark(b);
}

void ArenaSearch::take(std::uint32_t b) {
  remember(b);
  if (where_[b] < arenas_) {
    total_ -= cost(b, where_[b]);
    fitter_.erase(b);
    load(b, where_[b], -1);
  } else {
    total_ -= nowhere_;
  }
}

void ArenaSearch::load(std::uint32_t b, std::uint32_t k, double sign) {
  if (room_ != Room::kLoads || open_[k]) return;
  for (std::uint32_t d = program_.first_demand(b); d < program_.first_demand(b + 1); ++d) {
    const auto& [first, last, bytes] = program_.demands()[d];
    for (std::uint32_t s = first; s < last; ++s) loads_[k][s] += sign * bytes;
  }
}

bool ArenaSearch::has_room(std::uint32_t b, std::uint32_t k) const {
  for (std::uint32_t d = program_.first_demand(b); d < program_.first_demand(b + 1); ++d) {
    const auto& [first, last, bytes] = program_.demands()[d];
    const double most = room(k) - bytes;
    for (std::uint32_t s = first; s < last; ++s) {
      if (loads_[k][s] > most) return false;
    }
  }
  return program_.allowed(b, k);
}

Offset ArenaSearch::find(std::uint32_t b, std::uint32_t k) {
  if (open_[k]) return 0;
  if (room_ == Room::kLoads) return has_room(b, k) ? 0 : kNoOffset;
  return fitter_.find(b, k, Fit::kBest, bodies_.arenas[k].capacity, true);
}

/// To the cheapest arena that has room.
void ArenaSearch::place(std::uint32_t b) {
  for (const std::uint32_t k : by_cost_) {
    if ((bodies_.bodies[b].allowed >> k & 1) == 0) continue;
    const Offset at = find(b, k);
    if (at == kNoOffset) continue;
    put(b, k, at);
    return;
  }
  put(b, arenas_, kNoOffset);
}

void ArenaSearch::place(std::vector<std::uint32_t>& bodies) {
  std::stable_sort(bodies.begin(), bodies.end(), [&](auto a, auto b) { return worth(a) > worth(b); });
  for (const std::uint32_t b : bodies) {
    take(b);
    place(b);
  }
}

void ArenaSearch::start() {
  const std::vector<Offset> nowhere(where_.size(), kNowhere);
  start(nowhere, home_);
}

void ArenaSearch::start(const std::vector<Offset>& offsets, const std::vector<std::uint32_t>& arenas) {
  ++round_;
  total_ = 0;
  loads_.assign(arenas_, std::vector<double>(room_ == Room::kLoads ? program_.prices()[0].size() : 0));
  std::vector<std::uint32_t> left;
  for (std::uint32_t b = 0; b < where_.size(); ++b) {
    if (fitter_.placed(b)) fitter_.erase(b);
  }
  for (std::uint32_t b = 0; b < where_.size(); ++b) {
    const std::uint32_t k = arenas[b];
    const bool fits =
        (open_[k] && room_ == Room::kOffsets) ||
        (offsets[b] != kNowhere && offsets[b] + bodies_.bodies[b].size <= bodies_.arenas[k].capacity);
    put(b, fits ? k : arenas_, open_[k] ? 0 : offsets[b]);
    if (!fits) left.push_back(b);
  }
  place(left);
  steps_.clear();
}

/// Where those in its way lose the least: chosen_, and evicted_ are who. False: they lose more than `most`.
bool ArenaSearch::choose_place(std::uint32_t b, std::uint32_t k, double most) {
  const Body& body = bodies_.bodies[b];
  const ArenaChoice& arena = bodies_.arenas[k];
  if (body.size > arena.capacity) return false;
  const Offset highest = arena.capacity - body.size;
  obstacles_.clear();
  ends_.clear();
  fitter_.each_obstacle(b, k, [&](std::int64_t from, std::int64_t to, std::uint32_t other) {
    const double lost = loss(other, k) * (1 + kNoise * (random_.uniform() - 0.5));
    obstacles_.push_back({from, to, other, lost});
    ends_.push_back({to, lost});
  });
  std::sort(ends_.begin(), ends_.end());
  places_.clear();
  const auto offer = [&](Offset from) {
    const Offset at = next_place(body, arena, from);
    if (at != kNoOffset && at <= highest) places_.push_back(at);
  };
  offer(0);
  offer(highest / body.alignment * body.alignment);
  for (const Obstacle& one : obstacles_) {
    if (one.to > 0) offer(static_cast<Offset>(one.to));
    if (one.from >= 0) offer(static_cast<Offset>(one.from) / body.alignment * body.alignment);
  }
  std::sort(places_.begin(), places_.end());
  double lost = 0, least = most;
  bool found = false;
  std::size_t begun = 0, ended = 0;
  for (const Offset place : places_) {
    const auto x = static_cast<std::int64_t>(place);
    for (; begun < obstacles_.size() && obstacles_[begun].from < x; ++begun) lost += obstacles_[begun].loss;
    for (; ended < ends_.size() && ends_[ended].first <= x; ++ended) lost -= ends_[ended].second;
    if (lost > least) continue;
    if (fitter_.banks_taken(b, k, place)) continue;
    least = lost;
    chosen_ = place;
    found = true;
  }
  evicted_.clear();
  if (!found) return false;
  const auto x = static_cast<std::int64_t>(chosen_);
  for (const Obstacle& one : obstacles_) {
    if (one.from < x && x < one.to && std::find(evicted_.begin(), evicted_.end(), one.body) == evicted_.end())
      evicted_.push_back(one.body);
  }
  return true;
}

/// In place of whom it could be there: evicted_. Those first that lose least for the room that they leave.
bool ArenaSearch::choose_loads(std::uint32_t b, std::uint32_t k, double most) {
  evicted_.clear();
  if (!program_.allowed(b, k)) return false;
  obstacles_.clear();
  fitter_.each_conflict(b, k, [&](std::uint32_t other) {
    obstacles_.push_back({0, 0, other, loss(other, k) * (1 + kNoise * (random_.uniform() - 0.5))});
  });
  double lost = 0;
  for (std::uint32_t d = program_.first_demand(b); d < program_.first_demand(b + 1); ++d) {
    const auto& [first, last, bytes] = program_.demands()[d];
    over_.resize(last - first);
    for (std::uint32_t s = first; s < last; ++s) over_[s - first] = loads_[k][s] + bytes - room(k);
    for (const std::uint32_t gone : evicted_) relieve(gone, first, last);
    for (std::uint32_t s = first; s < last; ++s) {
      while (over_[s - first] > 0) {
        std::size_t best = obstacles_.size();
        double least = HUGE_VAL;
        for (std::size_t i = 0; i < obstacles_.size(); ++i) {
          const std::uint32_t other = obstacles_[i].body;
          double relief = 0;
          for (std::uint32_t e = program_.first_demand(other); e < program_.first_demand(other + 1); ++e) {
            const auto& its = program_.demands()[e];
            if (its.first > s || its.last <= s) continue;
            const std::uint32_t to = std::min(its.last, last);
            // Room is needed where too much is; a few of these sections tell enough.
            const std::uint32_t stride = 1 + (to - s) / 8;
            for (std::uint32_t t = s; t < to; t += stride)
              relief += stride * std::clamp(over_[t - first], 0.0, its.bytes);
          }
          if (relief > 0 && obstacles_[i].loss < least * relief)
            least = obstacles_[i].loss / relief, best = i;
        }
        if (best == obstacles_.size()) return false;
        lost += obstacles_[best].loss;
        if (lost > most) return false;
        const std::uint32_t gone = obstacles_[best].body;
        relieve(gone, first, last);
        evicted_.push_back(gone);
        std::erase_if(obstacles_, [&](const Obstacle& one) { return one.body == gone; });
      }
    }
  }
  return true;
}

void ArenaSearch::relieve(std::uint32_t gone, std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t d = program_.first_demand(gone); d < program_.first_demand(gone + 1); ++d) {
    const auto& its = program_.demands()[d];
    for (std::uint32_t s = std::max(first, its.first); s < std::min(last, its.last); ++s)
      over_[s - first] -= its.bytes;
  }
}

/// What left room may let others in.
void ArenaSearch::fill(std::uint32_t k) {
  candidates_.clear();
  for (const std::uint32_t gone : evicted_) {
    if (where_[gone] == k) continue;
    for (std::uint32_t dearer = 0; dearer < arenas_; ++dearer) {
      if (dearer == k || bodies_.arenas[dearer].cost <= bodies_.arenas[k].cost) continue;
      fitter_.each_conflict(gone, dearer, [&](std::uint32_t other) {
        if (candidates_.size() < kMostLooked && stamp_[other] != round_ && home_[other] == k)
          candidates_.push_back(other);
      });
    }
  }
  // Of some of them the best few.
  if (candidates_.size() > kOffered) {
    for (std::size_t i = 0; i < kOffered; ++i)
      std::swap(candidates_[i], candidates_[i + random_.below(candidates_.size() - i)]);
    candidates_.resize(kOffered);
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [&](auto a, auto b) { return worth(a) != worth(b) ? worth(a) > worth(b) : a < b; });
  candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
  std::size_t tries = kFilled;
  for (const std::uint32_t other : candidates_) {
    if (tries-- == 0) break;
    const Offset at = find(other, k);
    if (at == kNoOffset) continue;
    take(other);
    put(other, k, at);
  }
}

bool ArenaSearch::move(double allowed) {
  ++round_;
  steps_.clear();
  const double before = total_;
  std::uint32_t b = away_[random_.below(away_.size())];
  bool shake = random_.uniform() < kShaken;
  if (shake) {
    b = static_cast<std::uint32_t>(random_.below(where_.size()));
    shake = where_[b] == home_[b];
  } else {
    const std::uint32_t other = away_[random_.below(away_.size())];
    if (worth(other) > worth(b)) b = other;
  }
  // Home, or now and then to another cheaper one.
  std::uint32_t k = home_[b];
  if (!shake && arenas_ > 2 && random_.below(3) == 0) {
    for (std::uint32_t i = 0; i < arenas_; ++i) {
      const std::uint32_t other = by_cost_[random_.below(arenas_)];
      if ((bodies_.bodies[b].allowed >> other & 1) != 0 && other != where_[b] &&
          (where_[b] == arenas_ || cost(b, other) < cost(b, where_[b]))) {
        k = other;
        break;
      }
    }
  }
  if (open_[k]) {
    if (where_[b] == k) return false;
    take(b), put(b, k, 0);
    return true;
  }
  const std::uint32_t from = where_[b];
  take(b);
  const double saved = before - total_ - cost(b, k);
  const double most = saved + allowed + kHope * std::abs(saved);
  if (room_ == Room::kLoads ? !choose_loads(b, k, most) : !choose_place(b, k, most)) {
    const Offset old = steps_[0].offset;
    put(b, from, old);
    return false;
  }
  for (const std::uint32_t other : evicted_) take(other);
  put(b, k, chosen_);
  std::sort(evicted_.begin(), evicted_.end(), [&](auto x, auto y) { return loss(x, k) > loss(y, k); });
  for (const std::uint32_t other : evicted_) place(other);
  fill(k);
  if (total_ <= before + allowed) return true;
  for (const Step& step : steps_) take(step.body);
  for (const Step& step : steps_) put(step.body, step.arena, step.offset);
  total_ = before;
  return false;
}

/// By going home; half of the bodies gain more.
double ArenaSearch::usual_gain() const {
  std::vector<double> gains;
  for (std::uint32_t b = 0; b < where_.size(); ++b) {
    double most = 0;
    for (std::uint32_t k = 0; k < arenas_; ++k) {
      if (program_.allowed(b, k)) most = std::max(most, cost(b, k) - cost(b, home_[b]));
    }
    if (most > 0) gains.push_back(most);
  }
  if (gains.empty()) return 1;
  const auto middle = gains.begin() + static_cast<std::ptrdiff_t>(gains.size() / 2);
  std::nth_element(gains.begin(), middle, gains.end());
  return *middle;
}

bool ArenaSearch::run(double heat, const SearchLimits& limits, std::uint64_t& work) {
  best_ = HUGE_VAL;
  const auto keep = [&] {
    best_ = total_;
    best_offsets_ = fitter_.offsets();
    best_arenas_ = where_;
  };
  keep();
  const double scale = usual_gain();
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const bool timed = limits.nodes == ~std::uint64_t{0};
  const double hot = std::max(heat * kHot, kCold);
  double temperature = hot * scale, share = 0;
  std::uint64_t moves = 0;
  for (; !away_.empty() && share < 1; ++moves) {
    if (!timed && moves >= limits.nodes) break;
    if (moves % 32 == 0) {
      if (limits.stop && *limits.stop) break;
      const auto now = Clock::now();
      if (now >= limits.deadline) break;
      share = timed ? std::chrono::duration<double>(now - begin) /
                          std::chrono::duration<double>(limits.deadline - begin)
                    : static_cast<double>(moves) / static_cast<double>(limits.nodes);
      temperature = scale * hot * std::pow(kCold / hot, share);
    }
    const double allowed = -temperature * std::log(1 - random_.uniform());
    if (move(allowed) && total_ < best_ * (1 - 1e-12)) keep();
  }
  work += moves;
  return std::none_of(best_arenas_.begin(), best_arenas_.end(), [&](auto k) { return k == arenas_; });
}

}  // namespace memoir
