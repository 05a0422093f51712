// SPDX-License-Identifier: Apache-2.0
//
// The search itself. What it knows of a problem before is in exact_tables.cc.
#include "memoir/plan/search/exact/exact_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "memoir/plan/random.h"

namespace memoir {
namespace {

constexpr std::int64_t kPlaced = std::numeric_limits<std::int64_t>::max() / 4;
constexpr std::size_t kRefutedSlots = std::size_t{1} << 16;

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

// What remains of its sections is more by it, or less.
void ExactSearch::remain(std::uint32_t i, bool more) {
  const Units sign = more ? 1 : -1;
  each_section(i, [&](std::uint32_t s) { remaining_[s] += sign * size_[i]; });
  each_layer(i, [&](const Layer&, std::uint32_t base, Units size) {
    each_section(i, [&](std::uint32_t s) { remaining_[base + s] += sign * size; });
  });
}

ExactSearch::Units ExactSearch::above_obstacles(Units value, std::uint32_t i) const {
  const auto end = blocked_.begin() + blocked_begin_[i + 1];
  const auto next = std::partition_point(blocked_.begin() + blocked_begin_[i], end,
                                         [&](const Interval& interval) { return interval.end <= value; });
  return next != end && next->begin <= value ? next->end : value;
}

// Bytes of the section from there up to the capacity that no obstacle takes.
ExactSearch::Units ExactSearch::room(std::uint32_t s, Units from) const {
  Units room = capacity_ - from;
  for (std::uint32_t k = taken_begin_[s]; k < taken_begin_[s + 1]; ++k)
    room -= std::max<Units>(0, std::min(taken_[k].end, capacity_) - std::max(taken_[k].begin, from));
  return room;
}

// The highest place from which up the section has room for what remains.
ExactSearch::Units ExactSearch::highest_floor(std::uint32_t s) const {
  Units top = capacity_, needed = remaining_[s];
  for (std::uint32_t k = taken_begin_[s + 1]; k > taken_begin_[s]; --k) {
    const Units free = std::max<Units>(0, top - taken_[k - 1].end);
    if (needed <= free) break;
    needed -= free;
    top = std::min(top, taken_[k - 1].begin);
  }
  return top - needed;
}

bool ExactSearch::reset(Size capacity) {
  const auto n = static_cast<std::uint32_t>(problem_.size());
  capacity_ = static_cast<Units>(grid_.padded(capacity) / grid_.unit);
  const std::size_t all = sections_.count * (1 + layers_.size());
  remaining_.assign(all, 0);
  crossing_.assign(sections_.count + 1, 0);
  witness_.assign(all, 0);
  free_.assign(all, 0);
  trail_.clear();
  old_ranks_.clear();
  candidates_.clear();
  members_.resize(n);
  refuted_.resize(kRefutedSlots);
  salt_ = mix(salt_ + 0x9e3779b97f4a7c15ull);
  state_ = 0;
  nodes_ = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const Size size = problem_[i].size;
    if (size > capacity) return false;
    latest_[i] = static_cast<Units>((capacity - size) / grid_.unit);
    contact_[i] = lowest_[i] = align(0, i);
    if (contact_[i] > latest_[i]) return false;
    members_[i] = position_[i] = i;
    state_ ^= key(i);
    remain(i, true);
    each_section(i, [&](std::uint32_t s) { witness_[s] = i; });
    // In a layer the topmost begins at one of its places, and may be any.
    each_layer(i, [&](const Layer& layer, std::uint32_t base, Units size) {
      const Units end = latest_[i] / layer.in_grid * layer.in_grid + size;
      each_section(i, [&](std::uint32_t s) {
        witness_[base + s] = i;
        free_[base + s] = std::max(free_[base + s], end);
      });
    });
    for (std::uint32_t s = first_[i] + 1; s < last_[i]; ++s) ++crossing_[s];
  }
  for (std::uint32_t s = 0; s < sections_.count; ++s) free_[s] = room(s, 0);
  for (std::size_t s = 0; s < all; ++s) {
    if (remaining_[s] > free_[s]) return false;
  }
  return true;
}

Verdict ExactSearch::run(Size capacity, const std::vector<std::uint32_t>& order, const SearchLimits& limits,
                         std::vector<Offset>& offsets) {
  prepare();
  keys_ = {};
  for (std::uint32_t k = 0; k < order.size(); ++k) rank_[order[k]] = k;
  return run(capacity, limits, offsets);
}

Verdict ExactSearch::run(Size capacity, const Ranking& ranking, const SearchLimits& limits,
                         std::vector<Offset>& offsets) {
  prepare();
  keys_ = ranking.keys;
  std::vector<double> before(sections_.count + 1);  // the widths of all sections before
  Random random(ranking.seed);
  for (std::uint32_t s = 0; s < sections_.count; ++s)
    before[s + 1] = before[s] + (ranking.warp > 0 ? std::exp(ranking.warp * random.normal()) : 1.0);
  for (std::uint32_t i = 0; i < problem_.size(); ++i) {
    width_[i] = 0;
    for (std::uint32_t p = stretch_begin_[i]; p < stretch_begin_[i + 1]; ++p)
      width_[i] += before[sections_.last[p]] - before[sections_.first[p]];
  }
  return run(capacity, limits, offsets);
}

Verdict ExactSearch::run(Size capacity, const SearchLimits& limits, std::vector<Offset>& offsets) {
  if (problem_.empty()) return offsets.clear(), Verdict::kFits;
  limits_ = limits;
  if (!reset(capacity)) return Verdict::kInfeasible;
  const auto n = static_cast<std::uint32_t>(problem_.size());
  if (!keys_.empty()) rank({0, n, 0, sections_.count});
  old_ranks_.clear();
  const Verdict verdict = search();
  if (verdict == Verdict::kFits) {
    offsets.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) offsets[i] = static_cast<Offset>(at_[i]) * grid_.unit;
  }
  return verdict;
}

bool ExactSearch::before(std::uint32_t a, std::uint32_t b) const {
  for (const char key : keys_) {
    double x = 0, y = 0;
    switch (key) {
      case 'T':
        x = static_cast<double>(most_[a]), y = static_cast<double>(most_[b]);
        break;
      case 'W':
        x = width_[a], y = width_[b];
        break;
      case 'L':
        x = first_[b], y = first_[a];
        break;
      case 'U':
        x = last_[a], y = last_[b];
        break;
      default:
        x = width_[a] * static_cast<double>(size_[a]), y = width_[b] * static_cast<double>(size_[b]);
    }
    if (x != y) return x > y;
  }
  return a < b;
}

// Ranks the buffers of a piece by what is left of it.
void ExactSearch::rank(const Piece& piece) {
  ranked_.assign(members_.begin() + piece.begin, members_.begin() + piece.end);
  for (const std::uint32_t i : ranked_) {
    old_ranks_.emplace_back(i, rank_[i]);
    most_[i] = -capacity_;
    each_section(i, [&](std::uint32_t s) { most_[i] = std::max(most_[i], remaining_[s] - free_[s]); });
  }
  std::sort(ranked_.begin(), ranked_.end(), [&](auto a, auto b) { return before(a, b); });
  for (std::uint32_t k = 0; k < ranked_.size(); ++k) rank_[ranked_[k]] = k;
}

std::uint64_t ExactSearch::key(std::uint32_t i) const {
  const auto value = (static_cast<std::uint64_t>(contact_[i]) << 1) | (lowest_[i] > contact_[i] ? 1u : 0u);
  return mix(value * 0x9e3779b97f4a7c15ull + (i + 1) * 0xd1342543de82ef95ull);
}

bool ExactSearch::out_of_time() {
  if (nodes_ > limits_.nodes) return true;
  if ((nodes_ & 255) != 0) return false;
  const auto raised = [](const std::atomic<bool>* flag) {
    return flag && flag->load(std::memory_order_relaxed);
  };
  return raised(limits_.stop) || raised(limits_.enough) ||
         std::chrono::steady_clock::now() >= limits_.deadline;
}

// Depth-first, with the open nodes on a stack of our own: a dive over thousands of buffers must not need more
// of the thread's than a shallow one.
Verdict ExactSearch::search() {
  Verdict verdict = Verdict::kInfeasible;
  const auto n = static_cast<std::uint32_t>(problem_.size());
  frames_.clear();
  enter({0, n, 0, sections_.count}, 0, true);
  for (bool returned = false; !frames_.empty();) {
    Frame& frame = frames_.back();
    const std::size_t depth = frames_.size();
    verdict = frame.split ? next_piece(frame, returned, verdict) : next_candidate(frame, returned, verdict);
    returned = frames_.size() == depth;  // else it waits for what it entered
    if (returned) frames_.pop_back();
  }
  return verdict;
}

void ExactSearch::enter(const Piece& piece, Units floor, bool split) {
  frames_.push_back({piece, floor, split});
}

// A node: its candidates one after another. `verdict` is that of the one before, when `returned`. Enters what
// is left when one is placed; otherwise the node's own verdict.
Verdict ExactSearch::next_candidate(Frame& node, bool returned, Verdict verdict) {
  const Piece piece = node.piece;
  if (!returned) {
    if (!find_candidates(node)) return Verdict::kInfeasible;
    verdict = Verdict::kInfeasible;
  } else {
    take_back(node);
    if (verdict == Verdict::kInfeasible && !pass_over(node.buffer, node.at)) node.next = candidates_.size();
  }
  while (verdict == Verdict::kInfeasible && node.next < candidates_.size()) {
    const std::uint32_t i = candidates_[node.next++];
    const Units at = contact_[i];
    if (lowest_[i] > at) continue;  // a section it shares with one passed over has raised it
    ++nodes_;
    if (out_of_time()) {
      verdict = Verdict::kGaveUp;
      break;
    }
    bool cut = false;
    if (take(node, i, at, cut)) {
      if (piece.begin + 1 != piece.end) {
        enter({piece.begin, piece.end - 1, piece.first, piece.last}, at, cut);
        return verdict;
      }
      verdict = Verdict::kFits;
    }
    take_back(node);
    if (verdict == Verdict::kInfeasible && !pass_over(i, at)) break;
  }
  undo(node.mark);
  state_ = node.state;
  candidates_.resize(node.begin);
  if (verdict == Verdict::kInfeasible) {
    const std::uint64_t state = state_ ^ salt_;
    refuted_[state & (kRefutedSlots - 1)] = state;
  }
  return verdict;
}

bool ExactSearch::find_candidates(Frame& node) {
  const Piece piece = node.piece;
  Units most = 0;
  for (std::uint32_t s = piece.first; s < piece.last; ++s) most = std::max(most, remaining_[s]);
  Units limit = capacity_ - most;  // from here up, the fullest section cannot hold what it must
  for (std::uint32_t s = piece.first; s < piece.last && !obstacles_.empty(); ++s) {
    if (remaining_[s] != 0 && free_[s] - remaining_[s] < limit) limit = std::min(limit, highest_floor(s));
  }
  if (node.floor > limit) return false;
  const std::uint64_t state = state_ ^ salt_;
  if (refuted_[state & (kRefutedSlots - 1)] == state) return false;

  // A candidate must not leave room for another buffer entirely below it: that plan could be pushed down.
  Units roof = limit + 1;
  for (std::uint32_t k = piece.begin; k < piece.end; ++k) {
    const std::uint32_t i = members_[k];
    roof = std::min(roof, contact_[i] + size_[i]);
  }
  node.begin = node.next = candidates_.size();
  for (std::uint32_t k = piece.begin; k < piece.end; ++k) {
    const std::uint32_t i = members_[k];
    if (contact_[i] >= roof || lowest_[i] > contact_[i]) continue;
    if (twin_[i] != kNone && contact_[twin_[i]] != kPlaced) continue;
    candidates_.push_back(i);
  }
  std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(node.begin), candidates_.end(),
            [&](auto a, auto b) {
              return contact_[a] != contact_[b] ? contact_[a] < contact_[b] : rank_[a] < rank_[b];
            });
  node.mark = trail_.size();
  node.state = state_;
  return true;
}

// Places buffer i of the node. False: a section cannot hold the rest. `cut`: the rest may split in time.
bool ExactSearch::take(Frame& node, std::uint32_t i, Units at, bool& cut) {
  node.buffer = i;
  node.at = at;
  node.inner_mark = trail_.size();
  node.inner_state = state_;
  const std::uint32_t end = node.piece.end - 1, back = members_[end];
  members_[position_[i]] = back;
  members_[end] = i;
  position_[back] = position_[i];
  position_[i] = end;
  remain(i, false);
  for (std::uint32_t s = first_[i] + 1; s < last_[i]; ++s) cut |= --crossing_[s] == 0;
  at_[i] = at;
  return place(i, at);
}

void ExactSearch::take_back(const Frame& node) {
  const std::uint32_t i = node.buffer;
  undo(node.inner_mark);
  state_ = node.inner_state;
  remain(i, true);
  for (std::uint32_t s = first_[i] + 1; s < last_[i]; ++s) ++crossing_[s];
}

// Pieces that do not see each other, one after another; a failure of one refutes all.
Verdict ExactSearch::next_piece(Frame& pieces, bool returned, Verdict verdict) {
  Piece& piece = pieces.piece;
  if (!returned) pieces.mark = old_ranks_.size();
  if (returned) {
    while (old_ranks_.size() > pieces.mark) {
      rank_[old_ranks_.back().first] = old_ranks_.back().second;
      old_ranks_.pop_back();
    }
    if (verdict != Verdict::kFits) return verdict;
  }
  if (piece.begin == piece.end) return Verdict::kFits;
  // Peel off the first in time: up to the first boundary that no unplaced buffer crosses.
  std::uint32_t s = piece.first;
  while (s < piece.last && remaining_[s] == 0) ++s;
  const std::uint32_t from = s++;
  while (s < piece.last && crossing_[s] != 0) ++s;
  std::uint32_t end = piece.begin;
  std::uint64_t state = 0;
  for (std::uint32_t k = piece.begin; k < piece.end; ++k) {
    const std::uint32_t i = members_[k];
    if (first_[i] >= s) continue;
    state ^= key(i);
    members_[k] = members_[end];
    position_[members_[k]] = k;
    members_[end] = i;
    position_[i] = end++;
  }
  state_ = state;
  const Piece first{piece.begin, end, from, s};
  piece.begin = end;
  piece.first = s;
  pieces.several |= end != piece.end;
  if (pieces.several && !keys_.empty()) rank(first);
  enter(first, pieces.floor, false);
  return verdict;
}

bool ExactSearch::place(std::uint32_t i, Units at) {
  const Units top = at + size_[i];
  trail_.push_back({i, contact_[i], lowest_[i]});
  state_ ^= key(i);
  contact_[i] = lowest_[i] = kPlaced;
  std::uint32_t first = first_[i], last = last_[i];
  for (std::uint32_t k = neighbour_begin_[i]; k < neighbour_begin_[i + 1]; ++k) {
    const std::uint32_t j = neighbours_[k];
    if (contact_[j] >= top) continue;
    const Units to = align(top, j);
    if (to > latest_[j]) return false;
    trail_.push_back({j, contact_[j], lowest_[j]});
    state_ ^= key(j);
    contact_[j] = to;
    lowest_[j] = std::max(lowest_[j], to);
    state_ ^= key(j);
    first = std::min(first, first_[j]);
    last = std::max(last, last_[j]);
  }
  return sections_hold(first, last);
}

bool ExactSearch::sections_hold(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t s = first; s < last; ++s) {
    if (lowest_[witness_[s]] + remaining_[s] > free_[s] && remaining_[s] != 0 && !holds(s)) return false;
  }
  for (std::size_t l = 1; l <= layers_.size(); ++l) {
    const auto base = static_cast<std::uint32_t>(l * sections_.count);
    for (std::uint32_t s = base + first; s < base + last; ++s) {
      if (lowest_[witness_[s]] + remaining_[s] > free_[s] && remaining_[s] != 0 && !find_witness(s))
        return false;
    }
  }
  return true;
}

// Above an obstacle the witness may see more room than the sums say.
bool ExactSearch::holds(std::uint32_t s) {
  return (!obstacles_.empty() && room(s, lowest_[witness_[s]]) >= remaining_[s]) || find_witness(s);
}

bool ExactSearch::find_witness(std::uint32_t s) {
  std::uint32_t best = section_members_[member_begin_[s]];
  for (std::uint32_t k = member_begin_[s] + 1; k < member_begin_[s + 1]; ++k) {
    if (lowest_[section_members_[k]] < lowest_[best]) best = section_members_[k];
  }
  witness_[s] = best;
  return (s < sections_.count ? room(s, lowest_[best]) : free_[s] - lowest_[best]) >= remaining_[s];
}

// Every plan with buffer i at its contact has been refuted. In what is left, i rests on one that is placed
// from now on.
bool ExactSearch::pass_over(std::uint32_t i, Units floor) {
  Units to = kPlaced;
  for (std::uint32_t k = neighbour_begin_[i]; k < neighbour_begin_[i + 1]; ++k) {
    const std::uint32_t j = neighbours_[k];
    if (contact_[j] != kPlaced) to = std::min(to, std::max(lowest_[j], floor) + size_[j]);
  }
  if (to >= kPlaced) return false;
  to = align(to, i);
  if (to > latest_[i]) return false;
  if (lowest_[i] < to) {
    trail_.push_back({i, contact_[i], lowest_[i]});
    state_ ^= key(i);
    lowest_[i] = to;
    state_ ^= key(i);
  }
  return sections_hold(first_[i], last_[i]);
}

void ExactSearch::undo(std::size_t mark) {
  while (trail_.size() > mark) {
    const Saved& saved = trail_.back();
    contact_[saved.buffer] = saved.contact;
    lowest_[saved.buffer] = saved.lowest;
    trail_.pop_back();
  }
}

}  // namespace memoir
