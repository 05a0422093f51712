// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/best_fit.h"

#include <algorithm>
#include <map>
#include <set>

#include "memoir/base/check.h"
#include "memoir/plan/align.h"
#include "memoir/plan/waiting_index.h"

namespace memoir {
namespace {

/// The height of what is placed, over time: lines that join without a hole, neighbours of different height.
class Skyline {
 public:
  struct Line {
    Tick begin, end;
    Offset height;
  };

  explicit Skyline(Lifetime span) : begin_(span.begin), end_(span.end) { put({span.begin, span.end, 0}); }

  /// The lowest line; the earliest of those.
  Line lowest() const {
    const auto [height, begin] = *by_height_.begin();
    return {begin, lines_.at(begin).end, height};
  }

  /// The part [middle.begin, middle.end) of `line`, which must be there, gets the height of `middle`.
  void raise(const Line& line, Line middle) {
    take(line.begin);
    if (line.begin < middle.begin) {
      put({line.begin, middle.begin, line.height});
    } else if (auto left = lines_.lower_bound(line.begin);
               left != lines_.begin() && (--left)->second.height == middle.height) {
      middle.begin = left->first;
      take(middle.begin);
    }
    if (middle.end < line.end) {
      put({middle.end, line.end, line.height});
    } else if (const auto right = lines_.find(line.end);
               right != lines_.end() && right->second.height == middle.height) {
      middle.end = right->second.end;
      take(right->first);
    }
    put(middle);
  }

  /// The height of the lower neighbour of `line`.
  Offset next_height(const Line& line) const {
    Offset height = ~Offset{0};
    if (line.begin != begin_) height = std::prev(lines_.find(line.begin))->second.height;
    if (line.end != end_) height = std::min(height, lines_.find(line.end)->second.height);
    MEMOIR_CHECK(height != ~Offset{0}, "every buffer lives within the whole span");
    return height;
  }

 private:
  struct Rest {
    Tick end;
    Offset height;
  };
  void put(const Line& line) {
    lines_[line.begin] = {line.end, line.height};
    by_height_.emplace(line.height, line.begin);
  }
  void take(Tick begin) {
    const auto line = lines_.find(begin);
    by_height_.erase({line->second.height, begin});
    lines_.erase(line);
  }

  const Tick begin_, end_;
  std::map<Tick, Rest> lines_;  // by begin
  std::set<std::pair<Offset, Tick>> by_height_;
};

}  // namespace

Plan best_fit(const Problem& problem) {
  validate(problem);
  Plan plan{std::vector<Offset>(problem.size()), 0};
  if (problem.empty()) return plan;
  WaitingIndex waiting(problem, [](const Buffer& a, const Buffer& b) {
    const Tick length_a = a.lifetime.end - a.lifetime.begin, length_b = b.lifetime.end - b.lifetime.begin;
    return length_a != length_b ? length_a > length_b : a.size > b.size;
  });
  Lifetime span = problem[0].lifetime;
  for (const Buffer& buffer : problem) {
    span = {std::min(span.begin, buffer.lifetime.begin), std::max(span.end, buffer.lifetime.end)};
  }
  Skyline skyline(span);
  while (!waiting.empty()) {
    const Skyline::Line line = skyline.lowest();
    const std::uint32_t i = waiting.find(line.begin, line.end, line.begin, line.end);
    if (i == WaitingIndex::kNone) {
      skyline.raise(line, {line.begin, line.end, skyline.next_height(line)});
      continue;
    }
    waiting.remove(i);
    const Buffer& buffer = problem[i];
    plan.offsets[i] = align_to(line.height, buffer.alignment);
    const Offset top = plan.offsets[i] + buffer.size;
    plan.arena_size = std::max(plan.arena_size, top);
    skyline.raise(line, {buffer.lifetime.begin, buffer.lifetime.end, top});
  }
  return plan;
}

}  // namespace memoir
