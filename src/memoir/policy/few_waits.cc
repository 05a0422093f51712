// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/few_waits.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/simple/planners.h"

namespace memoir {

namespace {

constexpr size_t kQuickly = 20'000;       // buffers: beyond, only one planner is quick enough, and none leans
constexpr double kGoodEnough = 0.005;     // of the load: what a quick plan may exceed it by
constexpr std::uint64_t kWork = 200'000;  // placements that a search may try else: 0.1 s or so

Plan plan_one(const Problem& problem) {
  Plan plan = problem.size() <= kQuickly ? plan_quickly(problem) : find_planner("best_fit").run(problem);
  if (static_cast<double>(plan.arena_size) <= static_cast<double>(load(problem)) * (1 + kGoodEnough))
    return plan;
  SearchOptions options;
  options.work_limit = kWork;
  options.threads = 1;
  Plan searched = plan_auto(problem, options).plan;
  return searched.arena_size < plan.arena_size ? searched : plan;
}

/// The buffers of one stream.
struct Part {
  std::vector<std::uint32_t> buffers;
  std::vector<Offset> offsets;  // from the begin of the part
  Size size = 0;                // a multiple of the strictest alignment in it
};

std::vector<Part> plan_parts(const Problem& problem, std::span<const StreamId> streams, Size alignment) {
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
    Plan plan = plan_one(own);
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
std::optional<Plan> lean(const Problem& problem, const std::vector<Part>& parts, Size alignment, Size limit) {
  const Sections sections = find_sections(problem);
  for (const char* keys : {"TWA", "WA", "A"}) {
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

Plan plan_with_few_waits(Problem& problem, std::span<const StreamId> streams, Size alignment) {
  Size strictest = alignment;
  for (Buffer& buffer : problem) {
    buffer.alignment = std::max(buffer.alignment, alignment);
    strictest = std::max(strictest, buffer.alignment);
  }
  Plan together = plan_one(problem);
  together.arena_size = align_up(together.arena_size, alignment);
  if (std::all_of(streams.begin(), streams.end(), [&](StreamId stream) { return stream == streams[0]; }))
    return together;
  const auto parts = plan_parts(problem, streams, alignment);
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
  for (const double share : {0.0, kShareForWaits / 2, kShareForWaits}) {
    if (auto plan = lean(problem, parts, strictest, with_share(share))) return *plan;
  }
  return together;
}

}  // namespace memoir
