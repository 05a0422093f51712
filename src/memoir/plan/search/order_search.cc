// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/order_search.h"

#include <algorithm>
#include <cmath>

#include "memoir/plan/align.h"

namespace memoir {
namespace {

constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
constexpr std::size_t kMoves = 100;  // of one attempt; beyond, the change is no longer local ...
constexpr std::size_t kManyMoves = 2000;
constexpr std::uint64_t kBold = 16;   // ... but each 16th attempt may go that far
constexpr std::uint64_t kDetour = 8;  // each 8th gives the earlier turn to what may be in the way of what is
constexpr double kHeat = 0.1;         // worse by this share of the cost is accepted with probability 1 / e

}  // namespace

OrderSearch::OrderSearch(const Problem& problem, const Sections& sections, const Order& order,
                         std::uint64_t seed)
    : problem_(problem),
      index_(problem, sections),
      turn_(problem.size()),
      offsets_(problem.size()),
      over_at_(problem.size(), kNowhere),
      random_(seed),
      dirty_(problem.size()) {
  for (std::size_t k = 0; k < order.size(); ++k) turn_[order[k]] = static_cast<Turn>(k);
  for (const std::uint32_t i : order) {
    offsets_[i] = index_.first_fit(i);
    index_.insert(i, offsets_[i]);
  }
  best_ = offsets_;
  best_arena_ = arena_size(problem, offsets_);
}

bool OrderSearch::run(Size target, std::uint64_t fits, const SearchLimits& limits, std::uint64_t& work) {
  if (target != target_) aim(target);
  const auto stopped = [&] {
    return (limits.stop && limits.stop->load(std::memory_order_relaxed)) ||
           (limits.enough && limits.enough->load(std::memory_order_relaxed)) ||
           std::chrono::steady_clock::now() >= limits.deadline;
  };
  const std::uint64_t before = fits_;
  while (!over_.empty() && fits_ - before < fits && !stopped()) {
    if (!attempt()) break;
  }
  work += fits_ - before;
  return over_.empty();
}

void OrderSearch::aim(Size target) {
  target_ = target;
  for (const std::uint32_t i : over_) over_at_[i] = kNowhere;
  over_.clear();
  cost_ = 0;
  for (std::uint32_t i = 0; i < problem_.size(); ++i) count_over(i, true);
}

// False: there is nothing to try.
bool OrderSearch::attempt() {
  std::uint32_t i = over_[random_.below(over_.size())];
  earlier_neighbours(i);
  if (earlier_.empty()) return false;  // larger than the target by itself
  if (random_.below(kDetour) == 0) {
    const std::uint32_t other = earlier_[random_.below(earlier_.size())];
    earlier_neighbours(other);
    if (!earlier_.empty()) i = other;
    if (earlier_.empty()) earlier_neighbours(i);
  }
  std::sort(earlier_.begin(), earlier_.end(), [&](auto a, auto b) { return turn_[a] < turn_[b]; });
  // After at most so many of its earlier neighbours it would end below the target.
  std::size_t low = 0, high = earlier_.size() - 1;
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (fits_among_first(i, middle)) low = middle;
    else high = middle - 1;
  }
  const std::uint32_t before = earlier_[random_.below(low + 1)];
  const Turn turn = turn_[i], next = turn_[before];
  turn_[i] = next - 1e-3 * (1.0 + random_.uniform());
  moved_.clear();
  mark(i);
  index_.each_neighbour(i, [&](std::uint32_t j, Offset, Offset) {
    if (turn_[j] > turn_[i]) mark(j);
  });
  const double limit = cost_ * (1.0 - kHeat * std::log(1.0 - random_.uniform()));
  if (settle(limit, random_.below(kBold) == 0 ? kManyMoves : kMoves)) {
    keep_if_better();
    return true;
  }
  turn_[i] = turn;
  for (auto it = moved_.rbegin(); it != moved_.rend(); ++it) move(it->first, it->second);
  return true;
}

void OrderSearch::earlier_neighbours(std::uint32_t buffer) {
  earlier_.clear();
  index_.each_neighbour(buffer, [&](std::uint32_t j, Offset, Offset) {
    if (turn_[j] < turn_[buffer]) earlier_.push_back(j);
  });
}

bool OrderSearch::fits_among_first(std::uint32_t buffer, std::size_t count) {
  found_.clear();
  for (std::size_t k = 0; k < count; ++k) {
    found_.emplace_back(offsets_[earlier_[k]], offsets_[earlier_[k]] + problem_[earlier_[k]].size);
  }
  return lowest_gap(found_, problem_[buffer].size, problem_[buffer].alignment) + problem_[buffer].size <=
         target_;
}

// Places again what is marked, in turn, and what that moves. False: too much, or worse than the limit.
bool OrderSearch::settle(double limit, std::size_t most_moves) {
  while (!queue_.empty()) {
    const std::uint32_t i = queue_.top().second;
    queue_.pop();
    dirty_[i] = false;
    const Offset from = offsets_[i], to = first_fit(i);
    if (to == from) continue;
    moved_.emplace_back(i, from);
    move(i, to);
    if (cost_ > limit || moved_.size() > most_moves) {
      for (; !queue_.empty(); queue_.pop()) dirty_[queue_.top().second] = false;
      return false;
    }
    // Later ones that lie where it is now must give way; those above where it was may come down.
    const Offset end = to + problem_[i].size;
    index_.each_neighbour(i, [&](std::uint32_t j, Offset other, Offset other_end) {
      if (turn_[j] > turn_[i] && ((other < end && to < other_end) || other > from)) mark(j);
    });
  }
  return true;
}

Offset OrderSearch::first_fit(std::uint32_t buffer) {
  found_.clear();
  const Turn turn = turn_[buffer];
  index_.each_neighbour(buffer, [&](std::uint32_t j, Offset begin, Offset end) {
    if (turn_[j] < turn) found_.emplace_back(begin, end);
  });
  ++fits_;
  return lowest_gap(found_, problem_[buffer].size, problem_[buffer].alignment);
}

void OrderSearch::mark(std::uint32_t buffer) {
  if (dirty_[buffer]) return;
  dirty_[buffer] = true;
  queue_.emplace(turn_[buffer], buffer);
}

void OrderSearch::move(std::uint32_t buffer, Offset offset) {
  count_over(buffer, false);
  index_.erase(buffer);
  index_.insert(buffer, offset);
  offsets_[buffer] = offset;
  count_over(buffer, true);
}

Size OrderSearch::excess(std::uint32_t buffer) const {
  const Offset top = offsets_[buffer] + problem_[buffer].size;
  return top > target_ ? top - target_ : 0;
}

void OrderSearch::count_over(std::uint32_t buffer, bool add) {
  const Size bytes = excess(buffer);
  if (bytes == 0) return;
  if (add) {
    cost_ += static_cast<double>(bytes);
    over_at_[buffer] = static_cast<std::uint32_t>(over_.size());
    over_.push_back(buffer);
  } else {
    cost_ -= static_cast<double>(bytes);
    over_[over_at_[buffer]] = over_.back();
    over_at_[over_.back()] = over_at_[buffer];
    over_.pop_back();
    over_at_[buffer] = kNowhere;
  }
}

void OrderSearch::keep_if_better() {
  Size arena = target_;
  for (const std::uint32_t i : over_) arena = std::max(arena, target_ + excess(i));
  if (arena >= best_arena_) return;
  if (over_.empty()) arena = arena_size(problem_, offsets_);
  best_arena_ = arena;
  best_ = offsets_;
}

}  // namespace memoir
