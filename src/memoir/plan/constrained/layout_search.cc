// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/layout_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "memoir/plan/index/sections.h"

namespace memoir {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

}  // namespace

LayoutSearch::LayoutSearch(const Bodies& bodies, std::vector<std::uint32_t> chosen, std::uint32_t arena,
                           const std::vector<Offset>& fixed)
    : bodies_(bodies),
      chosen_(std::move(chosen)),
      arena_(bodies.arenas[arena]),
      banks_(bodies.problem->constraints.banks),
      fixed_(fixed) {
  Size highest = 0;
  for (const Range& range : arena_.forbidden) highest = std::max(highest, range.end());
  for (std::uint32_t i = 0; i < chosen_.size(); ++i) {
    const Body& body = bodies_.bodies[chosen_[i]];
    size_.push_back(static_cast<Units>(body.size));
    if (fixed_[i] == kNoOffset) fixed_[i] = body.fixed;
    if (fixed_[i] != kNoOffset) highest = std::max(highest, fixed_[i] + body.size);
    Size step = body.alignment;
    if (!body.apart.empty()) step = std::lcm(step, banks_.count * banks_.width);
    horizon_ += body.size + step;
  }
  horizon_ += highest;
  pairs_of_.resize(chosen_.size());
  make_pairs();
  make_sections();
}

bool LayoutSearch::alike(std::uint32_t a, std::uint32_t b) const {
  const Body &x = bodies_.bodies[chosen_[a]], &y = bodies_.bodies[chosen_[b]];
  if (x.size != y.size || x.lead != y.lead || x.alignment != y.alignment || fixed_[a] != kNoOffset ||
      fixed_[b] != kNoOffset)
    return false;
  for (const Body* body : {&x, &y}) {
    if (!body->partners.empty() || !body->apart.empty() || !body->edges.empty()) return false;
  }
  const std::uint32_t count = x.last_piece - x.first_piece;
  if (count != y.last_piece - y.first_piece) return false;
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t p = x.first_piece + k, q = y.first_piece + k;
    if (bodies_.pieces[p] != bodies_.pieces[q] || bodies_.window_begin[p] != bodies_.window_begin[q])
      return false;
  }
  return true;
}

void LayoutSearch::make_pairs() {
  const auto n = static_cast<std::uint32_t>(chosen_.size());
  std::vector<std::uint32_t> place(bodies_.bodies.size(), kNoBuffer);
  for (std::uint32_t i = 0; i < n; ++i) place[chosen_[i]] = i;
  std::vector<Interval> found;
  for (std::uint32_t a = 0; a < n; ++a) {
    const Body& mine = bodies_.bodies[chosen_[a]];
    for (const std::uint32_t other : mine.apart) {
      if (place[other] != kNoBuffer && place[other] > a) apart_.emplace_back(a, place[other]);
    }
    for (std::uint32_t b = a + 1; b < n; ++b) {
      const Body& its = bodies_.bodies[chosen_[b]];
      found.clear();
      const auto add = [&](Units x, Units y, bool may_share) {
        if (may_share && x < 0 && y > 0) {
          found.push_back({x, 0});
          found.push_back({0, y});
        } else {
          found.push_back({x, y});
        }
      };
      for (std::uint32_t p = mine.first_piece; p < mine.last_piece; ++p) {
        for (std::uint32_t q = its.first_piece; q < its.last_piece; ++q) {
          if (!bodies_.pieces[p].lifetime.overlaps(bodies_.pieces[q].lifetime)) continue;
          const auto begin = static_cast<Units>(bodies_.window_begin[p]);
          const auto end = begin + static_cast<Units>(bodies_.pieces[p].size);
          const auto low = static_cast<Units>(bodies_.window_begin[q]);
          const auto high = low + static_cast<Units>(bodies_.pieces[q].size);
          add(low - end, high - begin, bodies_.may_share(bodies_.piece_buffer[p], bodies_.piece_buffer[q]));
        }
      }
      for (const Body::Edge& edge : mine.edges) {
        if (edge.body != chosen_[b]) continue;
        const auto [from, to] = bodies_.kept_apart(edge);
        add(from, to, false);
      }
      if (found.empty()) continue;
      std::sort(found.begin(), found.end(), [](const Interval& u, const Interval& v) { return u.x < v.x; });
      const auto first = static_cast<std::uint32_t>(intervals_.size());
      for (const Interval& interval : found) {  // open ones: those that only touch leave a point between
        if (intervals_.size() > first && interval.x < intervals_.back().y) {
          intervals_.back().y = std::max(intervals_.back().y, interval.y);
        } else {
          intervals_.push_back(interval);
        }
      }
      pairs_of_[a].push_back(static_cast<std::uint32_t>(pairs_.size()));
      pairs_of_[b].push_back(static_cast<std::uint32_t>(pairs_.size()));
      pairs_.push_back({a, b, first, static_cast<std::uint32_t>(intervals_.size())});
    }
  }
}

void LayoutSearch::make_sections() {
  // What may be shared in place is left out: a floor must hold however it is.
  const std::vector<std::uint32_t>& chosen = chosen_;
  Problem pieces;
  std::vector<Member> members;
  for (std::uint32_t i = 0; i < chosen.size(); ++i) {
    const Body& body = bodies_.bodies[chosen[i]];
    if (!body.partners.empty()) continue;
    Tick end = 0;
    for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p) {
      if (bodies_.pieces[p].lifetime.begin < end) continue;  // of an alias, next to one that counts already
      end = bodies_.pieces[p].lifetime.end;
      const auto begin = static_cast<Units>(bodies_.window_begin[p]);
      members.push_back({i, begin, begin + static_cast<Units>(bodies_.pieces[p].size)});
      pieces.push_back(bodies_.pieces[p]);
    }
  }
  if (pieces.empty()) return;
  const Sections found = find_sections(pieces);
  for (std::uint32_t s = 0; s < found.count; ++s) {
    Section section{static_cast<std::uint32_t>(members_.size()), 0, 0};
    for (std::uint32_t p = 0; p < pieces.size(); ++p) {
      if (found.first[p] > s || found.last[p] <= s) continue;
      members_.push_back(members[p]);
      section.total += members[p].end - members[p].begin;
    }
    section.last = static_cast<std::uint32_t>(members_.size());
    sections_.push_back(section);
  }
}

LayoutSearch::Units LayoutSearch::next(std::uint32_t i, Units from) const {
  const Body& body = bodies_.bodies[chosen_[i]];
  auto at = static_cast<Offset>(std::max<Units>(from, 0));
  // Alignment and banks repeat together; beyond that and the forbidden ranges, nothing new comes.
  Size patience = 4 + 2 * arena_.forbidden.size();
  if (banks_.count != 0)
    patience += 2 * body.alignment / std::gcd(body.alignment, banks_.count * banks_.width);
  for (;;) {
    if (at > static_cast<Offset>(capacity_)) return kNever;
    if (fixed_[i] != kNoOffset) {
      if (at > fixed_[i]) return kNever;
      at = fixed_[i];
    }
    const Offset meets = next_place(body, arena_, at);
    if (meets == kNoOffset || (fixed_[i] != kNoOffset && meets != fixed_[i])) return kNever;
    at = meets;
    const auto& [first, count] = bank_[i];
    if (count == 0) return static_cast<Units>(at);
    // The first byte in bank `first`, and the last one count - 1 banks further.
    const Units width = static_cast<Units>(banks_.width);
    const Units lowest = std::max<Units>(0, (Units{count} - 1) * width - size_[i] + 1);
    const Units highest = std::min<Units>(width - 1, Units{count} * width - size_[i]);
    if (lowest > highest) return kNever;
    const Offset bank = at / banks_.width;
    const Units within = static_cast<Units>(at % banks_.width);
    if (bank % banks_.count == first && within >= lowest && within <= highest) return static_cast<Units>(at);
    Offset ahead = (first + banks_.count - bank % banks_.count) % banks_.count;
    if (ahead == 0 && within > highest) ahead = banks_.count;
    at = (bank + ahead) * banks_.width + static_cast<Offset>(lowest);
    if (--patience == 0) return kNever;
  }
}

bool LayoutSearch::raise(std::uint32_t i, Units to) {
  if (to <= low_[i]) return true;
  const Units at = next(i, to);
  if (at > high_[i]) return false;
  low_[i] = at;
  if (!is_dirty_[i]) is_dirty_[i] = true, dirty_.push_back(i);
  return true;
}

bool LayoutSearch::lower(std::uint32_t i, Units to) {
  if (to >= high_[i]) return true;
  if (to < low_[i]) return false;
  high_[i] = to / static_cast<Units>(bodies_.bodies[chosen_[i]].alignment) *
             static_cast<Units>(bodies_.bodies[chosen_[i]].alignment);
  if (high_[i] < low_[i]) return false;
  if (!is_dirty_[i]) is_dirty_[i] = true, dirty_.push_back(i);
  return true;
}

bool LayoutSearch::propagate(const Pair& pair) {
  const auto [a, b, first, last] = pair;
  for (std::uint32_t k = first; k < last; ++k) {
    const auto [x, y] = intervals_[k];
    if (side_[k] == kOpen) {
      const bool below = low_[a] - high_[b] <= x, above = high_[a] - low_[b] >= y;
      if (!below && !above) return false;
      if (below && above) continue;
      side_[k] = below ? kBelow : kAbove;
    }
    if (side_[k] == kBelow) {
      if (!raise(b, low_[a] - x) || !lower(a, high_[b] + x)) return false;
    } else {
      if (!raise(a, low_[b] + y) || !lower(b, high_[a] - y)) return false;
    }
  }
  return true;
}

bool LayoutSearch::propagate() {
  bool holds = true;
  while (holds && !dirty_.empty()) {
    const std::uint32_t i = dirty_.back();
    dirty_.pop_back();
    is_dirty_[i] = false;
    for (const std::uint32_t p : pairs_of_[i]) {
      if (!(holds = propagate(pairs_[p]))) break;
    }
  }
  for (const std::uint32_t i : dirty_) is_dirty_[i] = false;
  dirty_.clear();
  return holds && sections_hold();
}

bool LayoutSearch::sections_hold() const {
  for (const auto& [first, last, total] : sections_) {
    Units floor = kNever, roof = 0;
    for (std::uint32_t m = first; m < last; ++m) {
      const auto& [body, begin, end] = members_[m];
      floor = std::min(floor, low_[body] + begin);
      roof = std::max(roof, high_[body] + end);
    }
    if (floor + total > roof) return false;
  }
  return true;
}

bool LayoutSearch::banks_meet(std::uint32_t a, std::uint32_t b) const {
  const auto range = [&](std::uint32_t i) {
    return Range{static_cast<Offset>(low_[i]), static_cast<Size>(size_[i])};
  };
  return share_bank(banks_, range(a), range(b));
}

template <class Choose>
Verdict LayoutSearch::descend(Choose choose) {
  const std::vector<Units> low = low_, high = high_;
  const std::vector<Side> side = side_;
  const std::vector<BankState> bank = bank_;
  Verdict verdict = Verdict::kInfeasible;
  if (choose() && propagate()) {
    verdict = search();
  } else {
    for (const std::uint32_t i : dirty_) is_dirty_[i] = false;
    dirty_.clear();
  }
  if (verdict != Verdict::kFits) low_ = low, high_ = high, side_ = side, bank_ = bank;
  return verdict;
}

Verdict LayoutSearch::branch(std::uint32_t p, std::uint32_t k) {
  const Pair pair = pairs_[p];
  const auto [x, y] = intervals_[k];
  // First the side that lifts less.
  const bool below_first = low_[pair.a] - x - low_[pair.b] <= low_[pair.b] + y - low_[pair.a];
  for (const bool below : {below_first, !below_first}) {
    const Verdict verdict = descend([&] {
      if (below) {
        for (std::uint32_t l = k; l < pair.last; ++l) side_[l] = kBelow;
      } else {
        for (std::uint32_t l = pair.first; l <= k; ++l) side_[l] = kAbove;
      }
      return propagate(pair);
    });
    if (verdict != Verdict::kInfeasible) return verdict;
  }
  return Verdict::kInfeasible;
}

Verdict LayoutSearch::branch_banks(std::uint32_t i) {
  const Size least = (static_cast<Size>(size_[i]) + banks_.width - 1) / banks_.width;
  for (Size first = 0; first < banks_.count; ++first) {
    for (const Size count : {least, least + 1}) {
      const Verdict verdict = descend([&] {
        bank_[i] = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
        const Units at = next(i, low_[i]);
        if (at > high_[i]) return false;
        return at == low_[i] || raise(i, at);
      });
      if (verdict != Verdict::kInfeasible) return verdict;
    }
  }
  return Verdict::kInfeasible;
}

Verdict LayoutSearch::search() {
  ++nodes_;
  if (nodes_ > limits_.nodes) return Verdict::kGaveUp;
  if ((nodes_ & 63) == 0) {
    const auto raised = [](const std::atomic<bool>* flag) {
      return flag && flag->load(std::memory_order_relaxed);
    };
    if (raised(limits_.stop) || raised(limits_.enough) ||
        std::chrono::steady_clock::now() >= limits_.deadline)
      return Verdict::kGaveUp;
  }
  // The broken interval of the largest pair, by their smaller one.
  std::uint32_t pair = kNoBuffer, interval = 0;
  Units largest = 0;
  for (std::uint32_t p = 0; p < pairs_.size(); ++p) {
    const auto& [a, b, first, last] = pairs_[p];
    const Units weight = std::min(size_[a], size_[b]);
    if (weight <= largest) continue;
    const Units d = low_[a] - low_[b];
    for (std::uint32_t k = first; k < last; ++k) {
      if (d <= intervals_[k].x || d >= intervals_[k].y) continue;
      pair = p;
      interval = k;
      largest = weight;
      break;
    }
  }
  if (pair != kNoBuffer) return branch(pair, interval);
  for (const auto& [a, b] : apart_) {
    if (!banks_meet(a, b)) continue;
    if (bank_[a].count == 0) return branch_banks(a);
    if (bank_[b].count == 0) return branch_banks(b);
    return Verdict::kInfeasible;  // in whatever place: the banks of both are chosen
  }
  return Verdict::kFits;
}

Verdict LayoutSearch::run(Size capacity, const SearchLimits& limits, std::vector<Offset>& offsets) {
  const auto n = static_cast<std::uint32_t>(chosen_.size());
  limits_ = limits;
  capacity_ = static_cast<Units>(capacity);
  low_.assign(n, 0);
  high_.assign(n, 0);
  bank_.assign(n, {});
  side_.assign(intervals_.size(), kOpen);
  is_dirty_.assign(n, false);
  dirty_.clear();
  for (std::uint32_t i = 0; i < n; ++i) {
    high_[i] = capacity_ - size_[i];
    low_[i] = next(i, 0);
    if (low_[i] > high_[i]) return Verdict::kInfeasible;
    is_dirty_[i] = true;
    dirty_.push_back(i);
  }
  for (const auto& [a, b, first, last] : pairs_) {  // of two that are alike, the first lies lower
    if (!alike(a, b)) continue;
    for (std::uint32_t k = first; k < last; ++k) {
      if (intervals_[k].y > 0) side_[k] = kBelow;
    }
  }
  if (!propagate()) return Verdict::kInfeasible;
  const Verdict verdict = search();
  if (verdict == Verdict::kFits) {
    offsets.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) offsets[i] = static_cast<Offset>(low_[i]);
  }
  return verdict;
}

}  // namespace memoir
