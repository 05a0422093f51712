// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/best_fit.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "memoir/base/check.h"
#include "memoir/plan/align.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

/// The moments at which lifetimes begin or end, numbered in their order: tables over them need no search.
class Moments {
 public:
  explicit Moments(const Problem& problem) {
    ticks_.reserve(2 * problem.size());
    for (const Buffer& buffer : problem) {
      ticks_.push_back(buffer.lifetime.begin);
      ticks_.push_back(buffer.lifetime.end);
    }
    const auto [first, last] = std::minmax_element(ticks_.begin(), ticks_.end());
    first_ = *first;
    const Tick span = *last - first_;
    if (span < 4 * ticks_.size()) {  // as traces are
      numbers_.assign(span + 1, 0);
      for (const Tick tick : ticks_) numbers_[tick - first_] = 1;
      for (std::uint32_t& number : numbers_) count_ += std::exchange(number, count_);
    } else {
      std::sort(ticks_.begin(), ticks_.end());
      ticks_.erase(std::unique(ticks_.begin(), ticks_.end()), ticks_.end());
      count_ = static_cast<std::uint32_t>(ticks_.size());
    }
  }

  std::uint32_t count() const { return count_; }
  std::uint32_t number(Tick tick) const {
    if (!numbers_.empty()) return numbers_[tick - first_];
    return static_cast<std::uint32_t>(std::lower_bound(ticks_.begin(), ticks_.end(), tick) - ticks_.begin());
  }

 private:
  std::vector<Tick> ticks_;
  std::vector<std::uint32_t> numbers_;  // by tick, from first_ on
  Tick first_ = 0;
  std::uint32_t count_ = 0;
};

/// The height of what is placed, over time: lines that join without a hole, neighbours of different height.
class Skyline {
 public:
  struct Line {
    std::uint32_t begin, end;  // moments
    Offset height;
  };

  explicit Skyline(std::uint32_t moments) : last_(moments - 1), lines_(moments) { put({0, last_, 0}, 0); }

  /// The lowest line; the earliest of those.
  Line lowest() {
    for (;; by_height_.pop()) {
      const auto [height, begin] = by_height_.top();
      const Rest& line = lines_[begin];
      if (line.end != 0 && line.height == height) return {begin, line.end, height};
    }
  }

  /// The part [middle.begin, middle.end) of `line`, which must be there, gets the height of `middle`.
  void raise(const Line& line, Line middle) {
    std::uint32_t before = lines_[line.begin].before;  // where the line to the left of `middle` begins
    lines_[line.begin].end = 0;
    if (line.begin < middle.begin) {
      put({line.begin, middle.begin, line.height}, before);
      before = line.begin;
    } else if (line.begin != 0 && lines_[before].height == middle.height) {
      middle.begin = before;
      before = lines_[middle.begin].before;
      lines_[middle.begin].end = 0;
    }
    if (middle.end < line.end) {
      put({middle.end, line.end, line.height}, middle.begin);
    } else if (line.end != last_ && lines_[line.end].height == middle.height) {
      middle.end = lines_[line.end].end;
      lines_[line.end].end = 0;
    }
    put(middle, before);
  }

  /// The height of the lower neighbour of `line`.
  Offset next_height(const Line& line) const {
    Offset height = ~Offset{0};
    if (line.begin != 0) height = lines_[lines_[line.begin].before].height;
    if (line.end != last_) height = std::min(height, lines_[line.end].height);
    MEMOIR_CHECK(height != ~Offset{0}, "every buffer lives within the whole span");
    return height;
  }

 private:
  struct Rest {
    std::uint32_t end = 0;     // 0: no line begins here
    std::uint32_t before = 0;  // where the line to the left begins
    Offset height = 0;
  };
  void put(const Line& line, std::uint32_t before) {
    lines_[line.begin] = {line.end, before, line.height};
    if (line.end != last_) lines_[line.end].before = line.begin;
    by_height_.emplace(line.height, line.begin);
  }

  using ByHeight = std::pair<Offset, std::uint32_t>;
  std::uint32_t last_;
  std::vector<Rest> lines_;  // by the moment of their begin
  // What is no longer so stays until it comes up.
  std::priority_queue<ByHeight, std::vector<ByHeight>, std::greater<>> by_height_;
};

/// The buffers not yet placed, to be asked for the best one that lives within given moments. Rows of buffers
/// in order of birth, below a segment tree that is searched by branch and bound.
class Waiting {
 public:
  Waiting(const Problem& problem, const Moments& moments)
      : births_(moments.count() + 1), by_rank_(problem.size()) {
    std::vector<std::uint32_t> leaf_of(problem.size());
    for (size_t i = 0; i < problem.size(); ++i) {
      leaf_of[i] = moments.number(problem[i].lifetime.begin);
      ++births_[leaf_of[i] + 1];
    }
    for (size_t i = 1; i < births_.size(); ++i) births_[i] += births_[i - 1];
    rows_ = std::bit_ceil((static_cast<std::uint32_t>(problem.size()) + kRow - 1) / kRow);
    leaves_.resize(size_t{rows_} * kRow);
    lives_.resize(problem.size());
    nodes_.resize(2 * size_t{rows_});

    std::vector<std::uint32_t> next(births_.begin(), births_.end());
    for (size_t i = 0; i < problem.size(); ++i) {
      const std::uint32_t begin = leaf_of[i], end = moments.number(problem[i].lifetime.end);
      leaf_of[i] = next[begin]++;
      leaves_[leaf_of[i]].end = end;
      lives_[leaf_of[i]] = {static_cast<std::uint32_t>(i), begin, end};
    }
    rank(problem);
    for (std::uint32_t place = 0; place < by_rank_.size(); ++place)
      leaves_[by_rank_[place] = leaf_of[by_rank_[place]]].rank = place;
    for (std::uint32_t row = 0; row < rows_; ++row) nodes_[rows_ + row] = summary(row);
    for (std::uint32_t node = rows_ - 1; node > 0; --node) nodes_[node] = join(node);
  }

  struct Life {
    std::uint32_t buffer, begin, end;  // moments
  };
  bool empty() const { return nodes_[1].rank == kNone; }

  /// Takes out the best one that lives within [begin, end); nullptr when there is none.
  const Life* take(std::uint32_t begin, std::uint32_t end) {
    Query query{births_[begin], births_[end], end, kNone};
    if (query.end - query.begin <= kFew) {
      scan(query.begin, query.end, query);
    } else {
      search(1, 0, rows_, query);
    }
    if (query.rank == kNone) return nullptr;
    const std::uint32_t leaf = by_rank_[query.rank], row = leaf / kRow;
    leaves_[leaf] = {};
    std::uint32_t node = rows_ + row;
    nodes_[node] = summary(row);
    for (node /= 2; node > 0; node /= 2) nodes_[node] = join(node);
    return &lives_[leaf];
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint32_t kRow = 16;  // leaves
  static constexpr std::uint32_t kFew = 64;  // leaves that are looked at one by one rather than from the root
  struct Entry {
    std::uint32_t rank = kNone;  // of a row or subtree: the best below
    std::uint32_t end = kNone;   // the least below
  };
  struct Query {
    std::uint32_t begin, end;  // leaves
    std::uint32_t until;
    std::uint32_t rank;  // the best found so far
  };

  /// The longest first; of those the largest; of those the first of the problem.
  void rank(const Problem& problem) {
    std::vector<std::tuple<Tick, Size, std::uint32_t>> keys;
    keys.reserve(problem.size());
    for (const Buffer& buffer : problem) {
      const Tick length = buffer.lifetime.end - buffer.lifetime.begin;
      keys.emplace_back(~length, ~buffer.size, static_cast<std::uint32_t>(keys.size()));
    }
    std::sort(keys.begin(), keys.end());
    for (size_t place = 0; place < keys.size(); ++place) by_rank_[place] = std::get<2>(keys[place]);
  }

  Entry summary(std::uint32_t row) const {
    Entry best;
    for (std::uint32_t leaf = row * kRow; leaf < (row + 1) * kRow; ++leaf) {
      best.rank = std::min(best.rank, leaves_[leaf].rank);
      best.end = std::min(best.end, leaves_[leaf].end);
    }
    return best;
  }
  Entry join(std::uint32_t node) const {
    const Entry &a = nodes_[2 * node], &b = nodes_[2 * node + 1];
    return {std::min(a.rank, b.rank), std::min(a.end, b.end)};
  }

  void scan(std::uint32_t leaf, std::uint32_t end, Query& query) const {
    std::uint32_t best = query.rank;
    for (; leaf < end; ++leaf) {
      best = std::min(best, leaves_[leaf].end <= query.until ? leaves_[leaf].rank : kNone);
    }
    query.rank = best;
  }

  void search(std::uint32_t node, std::uint32_t first, std::uint32_t width, Query& query) const {
    const Entry& here = nodes_[node];
    if (here.rank >= query.rank || here.end > query.until) return;
    if (first * kRow >= query.end || (first + width) * kRow <= query.begin) return;
    if (width == 1) {
      scan(std::max(query.begin, first * kRow), std::min(query.end, (first + 1) * kRow), query);
      return;
    }
    const std::uint32_t half = width / 2, right = nodes_[2 * node + 1].rank < nodes_[2 * node].rank;
    search(2 * node + right, first + right * half, half, query);
    search(2 * node + 1 - right, first + (1 - right) * half, half, query);
  }

  std::vector<std::uint32_t> births_;   // by moment: buffers born before it
  std::vector<std::uint32_t> by_rank_;  // leaves, best first
  std::vector<Entry> leaves_;           // in order of birth
  std::vector<Life> lives_;             // of the leaves
  std::uint32_t rows_ = 1;
  // node 1 is the root, 2i and 2i+1 the children of i; the last rows_ are the rows
  std::vector<Entry> nodes_;
};

}  // namespace

Plan best_fit(const Problem& problem) {
  validate(problem);
  Plan plan{std::vector<Offset>(problem.size()), 0};
  if (problem.empty()) return plan;
  const Moments moments(problem);
  Waiting waiting(problem, moments);
  Skyline skyline(moments.count());
  while (!waiting.empty()) {
    stop_point();
    const Skyline::Line line = skyline.lowest();
    const Waiting::Life* const life = waiting.take(line.begin, line.end);
    if (life == nullptr) {
      skyline.raise(line, {line.begin, line.end, skyline.next_height(line)});
      continue;
    }
    const Buffer& buffer = problem[life->buffer];
    const Offset offset = align_to(line.height, buffer.alignment);
    plan.offsets[life->buffer] = offset;
    plan.arena_size = std::max(plan.arena_size, offset + buffer.size);
    skyline.raise(line, {life->begin, life->end, offset + buffer.size});
  }
  return plan;
}

}  // namespace memoir
