// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/exact_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace memoir {
namespace {

constexpr std::int64_t kPlaced = std::numeric_limits<std::int64_t>::max() / 4;
constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr std::size_t kRefutedSlots = std::size_t{1} << 16;

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

ExactSearch::ExactSearch(const Problem& problem)
    : problem_(problem), sections_(find_sections(problem)), grid_(find_grid(problem)) {}

void ExactSearch::prepare(const std::vector<std::uint32_t>& order) {
  if (order == order_) return;
  order_ = order;
  const auto n = static_cast<std::uint32_t>(order.size());
  const std::uint32_t m = sections_.count;
  for (auto* v : {&first_, &last_, &twin_, &position_}) v->assign(n, kNone);
  for (auto* v : {&size_, &alignment_, &latest_, &contact_, &lowest_, &at_}) v->assign(n, 0);
  member_begin_.assign(m + 1, 0);
  for (std::uint32_t i = 0; i < n; ++i) {
    const Buffer& buffer = problem_[order[i]];
    first_[i] = sections_.first[order[i]];
    last_[i] = sections_.last[order[i]];
    size_[i] = static_cast<Units>(grid_.padded(buffer.size) / grid_.unit);
    alignment_[i] =
        grid_.unit % buffer.alignment == 0 ? 1 : static_cast<Units>(buffer.alignment / grid_.unit);
    for (std::uint32_t s = first_[i]; s < last_[i]; ++s) ++member_begin_[s + 1];
  }
  for (std::uint32_t s = 0; s < m; ++s) member_begin_[s + 1] += member_begin_[s];
  section_members_.resize(member_begin_[m]);
  std::vector<std::uint32_t> fill(member_begin_.begin(), member_begin_.end() - 1);
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t s = first_[i]; s < last_[i]; ++s) section_members_[fill[s]++] = i;
  }

  // In order of first section, i meets exactly the followers that start before it ends.
  std::vector<std::uint32_t> by_first(n);
  std::iota(by_first.begin(), by_first.end(), 0u);
  std::stable_sort(by_first.begin(), by_first.end(), [&](auto a, auto b) { return first_[a] < first_[b]; });
  const auto each_pair = [&](auto visit) {
    for (std::uint32_t k = 0; k < n; ++k) {
      const std::uint32_t i = by_first[k];
      for (std::uint32_t l = k + 1; l < n && first_[by_first[l]] < last_[i]; ++l) visit(i, by_first[l]);
    }
  };
  neighbour_begin_.assign(n + 1, 0);
  each_pair([&](auto i, auto j) { ++neighbour_begin_[i + 1], ++neighbour_begin_[j + 1]; });
  for (std::uint32_t i = 0; i < n; ++i) neighbour_begin_[i + 1] += neighbour_begin_[i];
  neighbours_.resize(neighbour_begin_[n]);
  fill.assign(neighbour_begin_.begin(), neighbour_begin_.end() - 1);
  each_pair([&](auto i, auto j) { neighbours_[fill[i]++] = j, neighbours_[fill[j]++] = i; });

  // Buffers that are alike are placed in their order: the first of them lower.
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t k = neighbour_begin_[i]; k < neighbour_begin_[i + 1]; ++k) {
      const std::uint32_t j = neighbours_[k];
      if (j < i && (twin_[i] == kNone || j > twin_[i]) && first_[j] == first_[i] && last_[j] == last_[i] &&
          problem_[order[j]].size == problem_[order[i]].size && alignment_[j] == alignment_[i]) {
        twin_[i] = j;
      }
    }
  }
  trail_.reserve(neighbours_.size() / 2 + 4 * n + 64);
  candidates_.reserve(std::size_t{64} * n + 1024);
}

bool ExactSearch::reset(Size capacity) {
  const auto n = static_cast<std::uint32_t>(order_.size());
  capacity_ = static_cast<Units>(grid_.padded(capacity) / grid_.unit);
  remaining_.assign(sections_.count, 0);
  crossing_.assign(sections_.count + 1, 0);
  witness_.assign(sections_.count, 0);
  trail_.clear();
  candidates_.clear();
  members_.resize(n);
  refuted_.resize(kRefutedSlots);
  salt_ = mix(salt_ + 0x9e3779b97f4a7c15ull);
  state_ = 0;
  nodes_ = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const Size size = problem_[order_[i]].size;
    if (size > capacity) return false;
    latest_[i] = static_cast<Units>((capacity - size) / grid_.unit);
    contact_[i] = lowest_[i] = 0;
    members_[i] = position_[i] = i;
    state_ ^= key(i);
    for (std::uint32_t s = first_[i]; s < last_[i]; ++s) {
      remaining_[s] += size_[i];
      witness_[s] = i;
      if (s > first_[i]) ++crossing_[s];
    }
  }
  for (std::uint32_t s = 0; s < sections_.count; ++s) {
    if (remaining_[s] > capacity_) return false;
  }
  return true;
}

Verdict ExactSearch::run(Size capacity, const std::vector<std::uint32_t>& order, const SearchLimits& limits,
                         std::vector<Offset>& offsets) {
  if (problem_.empty()) return offsets.clear(), Verdict::kFits;
  limits_ = limits;
  prepare(order);
  if (!reset(capacity)) return Verdict::kInfeasible;
  const auto n = static_cast<std::uint32_t>(order.size());
  const Verdict verdict = split_and_solve({0, n, 0, sections_.count}, 0);
  if (verdict == Verdict::kFits) {
    offsets.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) offsets[order_[i]] = static_cast<Offset>(at_[i]) * grid_.unit;
  }
  return verdict;
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

Verdict ExactSearch::solve(Piece piece, Units floor) {
  Units most = 0;
  for (std::uint32_t s = piece.first; s < piece.last; ++s) most = std::max(most, remaining_[s]);
  const Units limit = capacity_ - most;  // from here up, the fullest section cannot hold what it must
  if (floor > limit) return Verdict::kInfeasible;
  const std::uint64_t state = state_ ^ salt_;
  std::uint64_t& slot = refuted_[state & (kRefutedSlots - 1)];
  if (slot == state) return Verdict::kInfeasible;

  // A candidate must not leave room for another buffer entirely below it: that plan could be pushed down.
  Units roof = limit + 1;
  for (std::uint32_t k = piece.begin; k < piece.end; ++k) {
    const std::uint32_t i = members_[k];
    roof = std::min(roof, contact_[i] + size_[i]);
  }
  const std::size_t begin = candidates_.size();
  for (std::uint32_t k = piece.begin; k < piece.end; ++k) {
    const std::uint32_t i = members_[k];
    if (contact_[i] >= roof || lowest_[i] > contact_[i]) continue;
    if (twin_[i] != kNone && contact_[twin_[i]] != kPlaced) continue;
    candidates_.push_back(i);
  }
  const std::size_t end = candidates_.size();
  std::sort(candidates_.begin() + begin, candidates_.end(),
            [&](auto a, auto b) { return contact_[a] != contact_[b] ? contact_[a] < contact_[b] : a < b; });

  const std::size_t mark = trail_.size();
  const std::uint64_t saved_state = state_;
  Verdict verdict = Verdict::kInfeasible;
  for (std::size_t c = begin; c < end; ++c) {
    const std::uint32_t i = candidates_[c];
    const Units at = contact_[i];
    if (lowest_[i] > at) continue;  // a section it shares with one passed over has raised it
    ++nodes_;
    if (out_of_time()) {
      verdict = Verdict::kGaveUp;
      break;
    }
    verdict = descend(piece, i, at);
    if (verdict != Verdict::kInfeasible) break;
    if (!pass_over(i, at)) break;
  }
  undo(mark);
  state_ = saved_state;
  candidates_.resize(begin);
  if (verdict == Verdict::kInfeasible) slot = state;
  return verdict;
}

Verdict ExactSearch::descend(const Piece& piece, std::uint32_t i, Units at) {
  const std::size_t mark = trail_.size();
  const std::uint64_t state = state_;
  const std::uint32_t back = members_[piece.end - 1];
  members_[position_[i]] = back;
  members_[piece.end - 1] = i;
  position_[back] = position_[i];
  position_[i] = piece.end - 1;
  bool cut = false;
  remaining_[first_[i]] -= size_[i];
  for (std::uint32_t s = first_[i] + 1; s < last_[i]; ++s) {
    remaining_[s] -= size_[i];
    cut |= --crossing_[s] == 0;
  }
  Verdict verdict = Verdict::kInfeasible;
  if (place(i, at)) {
    const Piece rest{piece.begin, piece.end - 1, piece.first, piece.last};
    at_[i] = at;
    if (rest.begin == rest.end) {
      verdict = Verdict::kFits;
    } else {
      verdict = cut ? split_and_solve(rest, at) : solve(rest, at);
    }
  }
  undo(mark);
  state_ = state;
  remaining_[first_[i]] += size_[i];
  for (std::uint32_t s = first_[i] + 1; s < last_[i]; ++s) {
    remaining_[s] += size_[i];
    ++crossing_[s];
  }
  return verdict;
}

Verdict ExactSearch::split_and_solve(Piece piece, Units floor) {
  while (piece.begin < piece.end) {
    // Peel off the first piece in time: up to the first boundary that no unplaced buffer crosses.
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
    const Verdict verdict = solve({piece.begin, end, from, s}, floor);
    if (verdict != Verdict::kFits) return verdict;
    piece.begin = end;
    piece.first = s;
  }
  return Verdict::kFits;
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
    if (lowest_[witness_[s]] + remaining_[s] > capacity_ && remaining_[s] != 0 && !find_witness(s))
      return false;
  }
  return true;
}

bool ExactSearch::find_witness(std::uint32_t s) {
  std::uint32_t best = section_members_[member_begin_[s]];
  for (std::uint32_t k = member_begin_[s] + 1; k < member_begin_[s + 1]; ++k) {
    if (lowest_[section_members_[k]] < lowest_[best]) best = section_members_[k];
  }
  witness_[s] = best;
  return lowest_[best] + remaining_[s] <= capacity_;
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
