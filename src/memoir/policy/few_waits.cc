// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/few_waits.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/simple/planners.h"

namespace memoir {

namespace {

constexpr size_t kQuickly = 20'000;       // buffers: beyond, only one planner is quick enough, and none leans
constexpr double kGoodEnough = 0.005;     // of the load: what a quick plan may exceed it by
constexpr std::uint64_t kWork = 200'000;  // placements that a search may try else: 0.1 s or so

// Steps of an attempt, for each buffer; of a search, for each placement and to set it up.
constexpr std::uint64_t kStepsOfBuffer = 200, kStepsOfPlacement = 300, kSetUps = 8;

/// Steps that are left.
class Budget {
 public:
  explicit Budget(std::uint64_t steps) : left_(steps) {}
  bool is_limited() const { return left_ != kNoLimitOfSteps; }
  std::uint64_t left() const { return left_; }
  /// False when so many are not left: then none are taken.
  bool take(std::uint64_t steps) {
    if (!is_limited()) return true;
    if (steps > left_) return false;
    left_ -= steps;
    return true;
  }

 private:
  std::uint64_t left_;
};

/// Of one attempt that places every buffer: pairs that live together are looked at.
std::uint64_t steps_of(const Problem& problem) {
  std::vector<Tick> begins, ends;
  for (const Buffer& buffer : problem) {
    begins.push_back(buffer.lifetime.begin);
    ends.push_back(buffer.lifetime.end);
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  std::uint64_t pairs = 0;
  size_t ended = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    while (ends[ended] <= begins[i]) ++ended;
    pairs += i - ended;
  }
  return 2 * pairs + kStepsOfBuffer * problem.size();
}

/// The quick planners in turn, as plan_quickly() has them, as far as the budget goes.
Plan plan_in_budget(const Problem& problem, Size enough, std::uint64_t steps, Budget& budget) {
  Plan best = find_planner("best_fit").run(problem);
  budget.take(std::min(kStepsOfBuffer * problem.size(), budget.left()));
  for (const char* const name : {"greedy_by_size", "greedy_by_breadth"}) {
    if (best.arena_size <= enough || !budget.take(steps)) break;
    Plan plan = find_planner(name).run(problem);
    if (plan.arena_size < best.arena_size) best = std::move(plan);
  }
  return best;
}

Plan plan_one(const Problem& problem, Budget& budget) {
  const Size enough = static_cast<Size>(static_cast<double>(load(problem)) * (1 + kGoodEnough));
  const std::uint64_t steps = budget.is_limited() ? steps_of(problem) : 0;
  Plan plan = budget.is_limited()          ? plan_in_budget(problem, enough, steps, budget)
              : problem.size() <= kQuickly ? plan_quickly(problem)
                                           : find_planner("best_fit").run(problem);
  if (plan.arena_size <= enough) return plan;
  SearchOptions options;
  options.work_limit = kWork;
  options.threads = 1;
  if (budget.is_limited()) {
    if (!budget.take(kSetUps * steps)) return plan;
    options.work_limit = std::min(kWork, budget.left() / 2 / kStepsOfPlacement);
    if (options.work_limit == 0) return plan;
    budget.take(options.work_limit * kStepsOfPlacement);
  }
  Plan searched = plan_auto(problem, options).plan;
  return searched.arena_size < plan.arena_size ? searched : plan;
}

/// The buffers of one stream.
struct Part {
  std::vector<std::uint32_t> buffers;
  std::vector<Offset> offsets;  // from the start of the part
  Size size = 0;                // a multiple of the strictest alignment in it
};

std::vector<Part> plan_parts(const Problem& problem, std::span<const StreamId> streams, Size alignment,
                             Budget& budget) {
  std::map<StreamId, Part> by_stream;
  for (std::uint32_t i = 0; i < problem.size(); ++i) by_stream[streams[i]].buffers.push_back(i);
  std::vector<Part> parts;
  for (auto& [stream, part] : by_stream) {
    Problem own;
    Size strictest = alignment;
    for (const std::uint32_t i : part.buffers) {
      own.push_back(problem[i]);
      strictest = std::max(strictest, problem[i].alignment);
    }
    Plan plan = plan_one(own, budget);
    part.offsets = std::move(plan.offsets);
    part.size = align_up(plan.arena_size, strictest);
    parts.push_back(std::move(part));
  }
  // The largest is the one that is stacked up.
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.size > b.size; });
  return parts;
}

void lay(const Part& part, Offset begin, Plan& plan) {
  for (size_t i = 0; i < part.buffers.size(); ++i) plan.offsets[part.buffers[i]] = begin + part.offsets[i];
}

/// The first part's buffers as low as they find room below `limit`, in whatever order succeeds; the others'
/// in parts of their own below the limit.
std::optional<Plan> lean(const Problem& problem, const std::vector<Part>& parts, Size alignment, Size limit,
                         std::uint64_t steps, Budget& budget) {
  const Sections sections = find_sections(problem);
  for (const char* keys : {"TWA", "WA", "A"}) {
    if (!budget.take(steps)) return std::nullopt;
    FitIndex index(problem, sections);
    Plan plan{std::vector<Offset>(problem.size()), limit};
    Offset begin = limit;
    for (size_t i = 1; i < parts.size(); ++i) {
      if (begin < parts[i].size) return std::nullopt;
      begin = align_down(begin - parts[i].size, alignment);
      lay(parts[i], begin, plan);
      for (const std::uint32_t buffer : parts[i].buffers) index.insert(buffer, plan.offsets[buffer]);
    }
    bool fits = true;
    for (const std::uint32_t buffer : make_order(problem, sections, keys)) {
      if (index.contains(buffer)) continue;
      plan.offsets[buffer] = index.first_fit(buffer);
      index.insert(buffer, plan.offsets[buffer]);
      fits = plan.offsets[buffer] + problem[buffer].size <= limit;
      if (!fits) break;
    }
    if (fits) return plan;
  }
  return std::nullopt;
}

}  // namespace

Plan plan_with_few_waits(Problem& problem, std::span<const StreamId> streams, Size alignment,
                         std::uint64_t steps) {
  Size strictest = alignment;
  for (Buffer& buffer : problem) {
    buffer.alignment = std::max(buffer.alignment, alignment);
    strictest = std::max(strictest, buffer.alignment);
  }
  const bool is_alone =
      std::all_of(streams.begin(), streams.end(), [&](StreamId stream) { return stream == streams[0]; });
  const bool is_limited = steps != kNoLimitOfSteps;
  // A third for each thing that is tried.
  Budget budget(is_limited ? steps / 3 : steps);
  Plan together = plan_one(problem, budget);
  together.arena_size = align_up(together.arena_size, alignment);
  if (is_alone) return together;
  if (is_limited) budget = Budget(steps / 3);
  const auto parts = plan_parts(problem, streams, alignment, budget);
  Plan separate{std::vector<Offset>(problem.size()), 0};
  for (const Part& part : parts) {
    const Offset begin = align_up(separate.arena_size, strictest);
    lay(part, begin, separate);
    separate.arena_size = begin + part.size;
  }
  const auto with_share = [&](double share) {
    return align_up(static_cast<Size>(static_cast<double>(together.arena_size) * (1 + share)), alignment);
  };
  if (separate.arena_size <= with_share(kShareForWaits)) return separate;
  if (problem.size() > kQuickly) return together;
  if (is_limited) budget = Budget(steps / 3);
  const std::uint64_t of_one = is_limited ? steps_of(problem) : 0;
  for (const double share : {0.0, kShareForWaits / 2, kShareForWaits}) {
    if (auto plan = lean(problem, parts, strictest, with_share(share), of_one, budget)) return *plan;
  }
  return together;
}

}  // namespace memoir
