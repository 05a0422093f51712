// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/hill_climb.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <queue>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/index/gap_index.h"
#include "memoir/plan/random.h"
#include "memoir/plan/simple/aligned_load.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

constexpr int kAttempts = 2000;
constexpr std::uint64_t kEffort = 4'000'000;  // neighbours looked at: about a tenth of a second
constexpr double kUphill = 0.1;               // of the worse ones are kept at the beginning, none at the end

using Clock = std::chrono::steady_clock;

class HillClimb {
 public:
  HillClimb(const Problem& problem, const Sections& sections, Order order)
      : problem_(problem), order_(std::move(order)), turn_(problem.size()), index_(problem, sections) {
    for (std::uint32_t turn = 0; turn < order_.size(); ++turn) turn_[order_[turn]] = turn;
    offsets_ = place_in_order(problem, order_, Fit::kFirst).offsets;
    for (std::uint32_t i = 0; i < problem.size(); ++i) index_.insert(i, offsets_[i]);
    dirty_.resize(problem.size());
  }

  Plan run(Size floor, std::optional<Clock::time_point> deadline) {
    Plan best{offsets_, arena_size(problem_, offsets_)};
    Size current = best.arena_size;
    for (int attempt = 0; attempt < kAttempts && effort_ < kEffort && best.arena_size > floor; ++attempt) {
      stop_point();
      if (deadline && Clock::now() >= *deadline) break;
      const auto exchange = choose(current);
      if (!exchange) break;
      moved_.clear();
      swap(*exchange);
      const Size now = arena_size(problem_, offsets_);
      effort_ += problem_.size() / 8;
      const double heat = kUphill * (1.0 - static_cast<double>(attempt) / kAttempts);
      if (now <= current || random_.uniform() < heat) {
        current = now;
        if (now < best.arena_size) best = {offsets_, now};
      } else {
        take_back(*exchange);
      }
    }
    return best;
  }

 private:
  using Exchange = std::pair<std::uint32_t, std::uint32_t>;

  // Two buffers that may be why one ends at the top.
  std::optional<Exchange> choose(Size arena) {
    std::uint32_t top = 0;
    while (offsets_[top] + problem_[top].size != arena) ++top;
    const auto first = earlier_neighbour(top);
    if (!first) return std::nullopt;  // it rests on nothing: the arena is its own size
    const auto second = random_.below(2) ? earlier_neighbour(*first) : earlier_neighbour(top);
    if (!second || *second == *first) return Exchange{*first, top};
    return Exchange{*first, *second};
  }

  std::optional<std::uint32_t> earlier_neighbour(std::uint32_t i) {
    std::optional<std::uint32_t> chosen;
    std::uint64_t seen = 0;
    index_.each_neighbour(i, [&](std::uint32_t j, Offset, Offset) {
      if (turn_[j] < turn_[i] && random_.below(++seen) == 0) chosen = j;
    });
    effort_ += seen;
    return chosen;
  }

  void exchange_turns(const Exchange& exchange) {
    std::swap(turn_[exchange.first], turn_[exchange.second]);
    for (const std::uint32_t i : {exchange.first, exchange.second}) order_[turn_[i]] = i;
  }

  // Places again, in their turns, the two and whatever has had a neighbour before it move, come or go.
  void swap(const Exchange& exchange) {
    exchange_turns(exchange);
    for (const std::uint32_t i : {exchange.first, exchange.second}) {
      mark(i);
      const std::uint32_t from = std::min(turn_[exchange.first], turn_[exchange.second]);
      index_.each_neighbour(i, [&](std::uint32_t j, Offset, Offset) {
        if (turn_[j] > from) mark(j);
      });
    }
    while (!turns_.empty()) {
      const std::uint32_t i = order_[turns_.top()];
      turns_.pop();
      dirty_[i] = false;
      const Offset offset = first_fit(i);
      if (offset == offsets_[i]) continue;
      moved_.emplace_back(i, offsets_[i]);
      move(i, offset);
      index_.each_neighbour(i, [&](std::uint32_t j, Offset, Offset) {
        if (turn_[j] > turn_[i]) mark(j);
      });
    }
  }

  void take_back(const Exchange& exchange) {
    exchange_turns(exchange);
    for (auto it = moved_.rbegin(); it != moved_.rend(); ++it) move(it->first, it->second);
  }

  void mark(std::uint32_t i) {
    if (dirty_[i]) return;
    dirty_[i] = true;
    turns_.push(turn_[i]);
  }

  void move(std::uint32_t i, Offset offset) {
    index_.erase(i);
    index_.insert(i, offset);
    offsets_[i] = offset;
  }

  Offset first_fit(std::uint32_t i) {
    found_.clear();
    index_.each_neighbour(i, [&](std::uint32_t j, Offset begin, Offset end) {
      if (turn_[j] < turn_[i]) found_.emplace_back(begin, end);
    });
    effort_ += found_.size();
    return lowest_gap(found_, problem_[i].size, problem_[i].alignment);
  }

  const Problem& problem_;
  Order order_;
  std::vector<std::uint32_t> turn_;  // per buffer: its place in the order
  std::vector<Offset> offsets_;
  FitIndex index_;  // all buffers, where they are now
  Random random_{1};
  std::uint64_t effort_ = 0;
  std::vector<std::pair<std::uint32_t, Offset>> moved_;  // by the last exchange, and from where
  std::vector<bool> dirty_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> turns_;
  std::vector<std::pair<Offset, Offset>> found_;  // scratch
};

}  // namespace

namespace {

Plan climb(const Problem& problem, std::optional<Clock::time_point> deadline) {
  validate(problem);
  if (problem.empty()) return {};
  const Sections sections = find_sections(problem);
  return HillClimb(problem, sections, make_order(problem, sections, "ZW"))
      .run(aligned_load(problem), deadline);
}

}  // namespace

Plan hill_climb(const Problem& problem) { return climb(problem, std::nullopt); }

Plan hill_climb_within(const Problem& problem, double seconds) {
  if (!(seconds < 1e9)) return hill_climb(problem);
  const std::chrono::duration<double> left(std::max(0.0, seconds));
  return climb(problem, Clock::now() + std::chrono::duration_cast<Clock::duration>(left));
}

}  // namespace memoir
