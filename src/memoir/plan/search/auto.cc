// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/auto.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "memoir/plan/index/first_fit_orders.h"
#include "memoir/plan/index/gap_index.h"
#include "memoir/plan/search/exact/canonical.h"
#include "memoir/plan/search/exact/decompose.h"
#include "memoir/plan/search/part_search.h"
#include "memoir/plan/simple/greedy.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kOneStep = 500, kManyBuffers = 20'000;  // buffers
constexpr double kFair = 0.7;                                 // of one processor
constexpr std::size_t kFewForFlows = 100;                     // buffers: mincost_flow takes a millisecond
constexpr double kClimb = 0.25, kShareOfClimb = 0.25;         // seconds, and of the deadline, for hill_climb

// What first_fit of plan/constrained places by, each into the lowest gap and into the tightest.
constexpr std::string_view kFirstFitOrders[] = {"AT", "TA", "WT", "ZW", "LZ"};

// Of all threads of this process.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Equal parts, as the micro-batches of a training step often are, share one search.
struct Shape {
  const Problem* problem;

  bool operator==(const Shape& other) const { return *problem == *other.problem; }
};

struct ShapeHash {
  std::size_t operator()(const Shape& shape) const {
    std::uint64_t h = shape.problem->size();
    const auto add = [&](std::uint64_t value) { h = (h ^ value) * 0x9e3779b97f4a7c15ull, h ^= h >> 29; };
    for (const Buffer& buffer : *shape.problem) {
      add(buffer.lifetime.begin);
      add(buffer.lifetime.end);
      add(buffer.size);
      add(buffer.alignment);
    }
    return h;
  }
};

class Search {
 public:
  Search(const Problem& problem, const SearchOptions& options, bool exact_only)
      : problem_(problem), options_(options), start_(Clock::now()) {
    context_.threads = options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency());
    context_.seed = options.seed;
    context_.repeatable = options.work_limit != 0;
    context_.exact_only = exact_only;
    context_.limits.stop = options.stop;
    if (options.work_limit != 0) {
      context_.work_limit = options.work_limit;
    } else if (options.deadline_s < 1e9) {
      context_.limits.deadline =
          start_ + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(std::max(0.0, options.deadline_s)));
    }
  }

  SearchResult run() {
    validate(problem_);
    try {
      // Few are placed once before anybody can have waited.
      const StopScope scope(problem_.size() > kManyBuffers ? options_.stop : nullptr);
      search();
    } catch (const Stopped&) {
    }
    return result();
  }

 private:
  void search() {
    if (problem_.size() > kManyBuffers && options_.stop != nullptr) {  // whoever stops it soon has a plan
      whole_ = recycle(problem_);
      stop_point();
    }
    parts_ = decompose(problem_);
    stop_point();
    build();
    first_plans();
    const StopScope scope(options_.stop);
    if (!context_.exact_only) {
      // One step ends most small problems; on very many buffers it is worth more than all cheap planners.
      if (problem_.size() <= kOneStep || problem_.size() > kManyBuffers) improve(1);
      run_cheap_planners();
      improve_until_climb();
      climb();
    }
    improve(~0u);
  }

  struct Group {
    PartSearch search;
    Offset base = 0;                     // of the member with the largest
    std::vector<std::size_t> members{};  // parts
    bool exhausted = false;
  };

  void build() {
    const Decomposition& parts = parts_;
    group_of_.resize(parts.parts.size());
    buffers_of_.resize(parts.parts.size());
    std::unordered_map<Shape, std::size_t, ShapeHash> known;
    groups_.reserve(parts.parts.size());
    // Of equal parts the one that lies highest gives the group its ticks: its bound is the whole's.
    std::vector<std::size_t> by_base(parts.parts.size());
    std::iota(by_base.begin(), by_base.end(), std::size_t{0});
    std::stable_sort(by_base.begin(), by_base.end(),
                     [&](auto a, auto b) { return parts.parts[a].base > parts.parts[b].base; });
    for (const std::size_t p : by_base) {
      stop_point();
      Canonical part = canonical(problem_, parts.parts[p].buffers);
      buffers_of_[p] = std::move(part.buffers);
      const auto it = known.find(Shape{&part.problem});
      if (it == known.end()) {
        std::vector<std::uint32_t> loops;
        if (options_.loops.size() == problem_.size()) {
          for (const std::uint32_t i : buffers_of_[p]) loops.push_back(options_.loops[i]);
        }
        groups_.push_back(std::make_unique<Group>(Group{PartSearch(std::move(part), std::move(loops))}));
        known.emplace(Shape{&groups_.back()->search.problem()}, groups_.size() - 1);
        group_of_[p] = groups_.size() - 1;
      } else {
        group_of_[p] = it->second;
      }
      Group& group = *groups_[group_of_[p]];
      group.base = std::max(group.base, parts.parts[p].base);
      group.members.push_back(p);
    }
    for (const auto& [buffer, offset] : parts.placed) {
      if (offset + problem_[buffer].size > bars_) bars_ = offset + problem_[buffer].size, bar_ = buffer;
    }
    built_ = true;
  }

  // What the whole must come down to: no smaller than the largest bound of a part, no larger than asked.
  Size goal() const { return options_.capacity.value_or(options_.tolerance.above(floor())); }
  Size floor() const {
    Size bytes = bars_;
    for (const auto& group : groups_) bytes = std::max(bytes, group->base + group->search.bound().bytes);
    return bytes;
  }
  Size arena_of_parts() const {
    Size bytes = bars_;
    for (const auto& group : groups_) {
      if (group->search.arena() == ~Size{0}) return ~Size{0};  // not placed yet
      bytes = std::max(bytes, group->base + group->search.arena());
    }
    return bytes;
  }
  Size arena() const { return std::min(built_ ? arena_of_parts() : ~Size{0}, whole_.arena_size); }
  // Seen from inside a group: at least its own bound, so that its search has a target that may exist.
  Size target(const Group& group) const {
    const Size goal = this->goal();
    return std::max(group.search.bound().bytes, goal > group.base ? goal - group.base : 0);
  }

  void first_plans() {
    for (const auto& group : groups_) {
      while (group->search.arena() == ~Size{0}) {
        stop_point();
        group->search.step(target(*group), context_);
      }
    }
    report();
  }

  // All that place once, whatever the deadline; on very many buffers the first of them, and the others while
  // there is time. They see the problem as it is, not its parts.
  void run_cheap_planners() {
    const bool all = problem_.size() <= kManyBuffers;
    for (const Planner* planner : cheap_planners()) {
      if (arena() <= goal() || (!all && planner != cheap_planners().front() && context_.stopped())) return;
      consider(planner->run(problem_));
    }
    if (problem_.size() <= kFewForFlows && arena() > goal())
      consider(find_planner("mincost_flow").run(problem_));
    if (!all || arena() <= goal()) return;
    const Sections sections = find_sections(problem_);
    for (const std::string_view keys : kFirstFitOrders) {
      const Order order = make_order(problem_, sections, keys);
      for (const Fit fit : {Fit::kFirst, Fit::kBest}) {
        if (arena() <= goal()) return;
        consider(place_in_order(problem_, order, fit));
      }
    }
  }

  // A plan of the whole.
  void consider(Plan plan) {
    context_.work += problem_.size();
    if (plan.arena_size >= whole_.arena_size) return;
    whole_ = std::move(plan);
    for (std::size_t p = 0; p < parts_.parts.size(); ++p) {
      if (parts_.parts[p].base != 0 || context_.repeatable) continue;
      std::vector<Offset> offsets;
      for (const std::uint32_t i : buffers_of_[p]) offsets.push_back(whole_.offsets[i]);
      groups_[group_of_[p]]->search.keep(std::move(offsets));
    }
    report();
  }

  // hill_climb takes as long as it would alone, the last part of the time that there is.
  void improve_until_climb() {
    const Clock::time_point end = context_.limits.deadline;
    if (end != Clock::time_point::max()) {
      context_.limits.deadline =
          end - std::chrono::duration_cast<Clock::duration>(
                    std::chrono::duration<double>(std::min(kClimb, kShareOfClimb * options_.deadline_s)));
    }
    improve(~0u);
    context_.limits.deadline = end;
  }
  void climb() {
    if (problem_.size() > kManyBuffers || arena() <= goal()) return;
    const double seconds = context_.repeatable ? 1e9 : options_.deadline_s;
    consider(find_planner("hill_climb").run_within(problem_, seconds));
  }

  void improve(unsigned steps) {
    for (; steps > 0 && !context_.stopped(); --steps) {
      stop_point();
      if (options_.capacity && floor() > *options_.capacity) return;
      const Size goal = this->goal();
      if (arena() <= goal) return;
      Group* worst = nullptr;
      for (const auto& group : groups_) {
        if (group->exhausted || group->base + group->search.arena() <= goal) continue;
        if (!worst || group->base + group->search.arena() > worst->base + worst->search.arena())
          worst = group.get();
      }
      if (!worst) return;
      worst->exhausted = !worst->search.step(target(*worst), context_) ||
                         worst->search.arena() <= worst->search.bound().bytes;
      report();
    }
  }

  void report() {
    const Size now = arena();
    if (now >= reported_) return;
    reported_ = now;
    if (options_.improved) options_.improved(now, seconds());
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void take_plan(SearchResult& result) {
    result.plan.arena_size = built_ ? arena_of_parts() : ~Size{0};
    if (result.plan.arena_size == ~Size{0} && whole_.offsets.empty())
      whole_ = bump(problem_);  // stopped before
    if (whole_.arena_size < result.plan.arena_size) {
      result.plan = std::move(whole_);
      return;
    }
    result.plan.offsets.resize(problem_.size());
    for (const auto& [buffer, offset] : parts_.placed) result.plan.offsets[buffer] = offset;
    for (std::size_t p = 0; p < parts_.parts.size(); ++p) {
      const std::vector<Offset>& offsets = groups_[group_of_[p]]->search.offsets();
      for (std::size_t k = 0; k < offsets.size(); ++k)
        result.plan.offsets[buffers_of_[p][k]] = parts_.parts[p].base + offsets[k];
    }
  }

  SearchResult result() {
    SearchResult result;
    take_plan(result);
    result.lower_bound = bars_;
    result.bound_reason = problem_.empty()
                              ? "there are no buffers"
                              : "the load at tick " + std::to_string(problem_[bar_].lifetime.begin);
    if (!built_) {
      for (const Buffer& buffer : problem_) result.lower_bound = std::max(result.lower_bound, buffer.size);
      result.bound_reason = "the largest buffer";
    }
    for (const auto& group : groups_) {
      if (!built_) break;
      const Bound& bound = group->search.bound();
      if (group->base + bound.bytes < result.lower_bound) continue;
      if (group->base + bound.bytes == result.lower_bound && bars_ == result.lower_bound) continue;
      result.lower_bound = group->base + bound.bytes;
      result.bound_reason = bound.reason;
      if (group->base > 0) {
        result.bound_reason +=
            ", above " + std::to_string(group->base) + " bytes of buffers that live throughout";
      }
    }
    result.optimal = result.plan.arena_size == result.lower_bound;
    result.proven_infeasible = options_.capacity && result.lower_bound > *options_.capacity;
    result.work = context_.work;
    result.seconds = seconds();
    result.cpu_seconds = processor_seconds() - cpu_start_;
    // Who gave it no time at all starved it of none.
    result.starved = !result.optimal && !result.proven_infeasible && options_.deadline_s > 0 &&
                     std::chrono::steady_clock::now() >= context_.limits.deadline &&
                     result.cpu_seconds < kFair * result.seconds;
    return result;
  }

  const Problem& problem_;
  const SearchOptions& options_;
  const Clock::time_point start_;
  const double cpu_start_ = processor_seconds();
  SearchContext context_;
  Decomposition parts_;
  bool built_ = false;  // else it was stopped before
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::size_t> group_of_;                   // per part
  std::vector<std::vector<std::uint32_t>> buffers_of_;  // per part, as its group has them
  Plan whole_{{}, ~Size{0}};                            // of a planner that knows no parts
  Size bars_ = 0;  // the top of the highest buffer that lives throughout its part
  std::uint32_t bar_ = 0;
  Size reported_ = ~Size{0};
};

}  // namespace

SearchResult plan_auto(const Problem& problem, const SearchOptions& options) {
  if (options.work_limit == 0) return Search(problem, options, false).run();
  SearchResult exact = Search(problem, options, true).run();
  if (exact.good_enough(options)) return exact;
  SearchOptions rest = options;
  if (options.improved) {
    rest.improved = [&](Size arena, double seconds) {
      if (arena < exact.plan.arena_size) options.improved(arena, exact.seconds + seconds);
    };
  }
  SearchResult found = Search(problem, rest, false).run();
  if (exact.plan.arena_size < found.plan.arena_size) found.plan = std::move(exact.plan);
  if (exact.lower_bound > found.lower_bound) {
    found.lower_bound = exact.lower_bound;
    found.bound_reason = std::move(exact.bound_reason);
  }
  found.optimal = found.plan.arena_size == found.lower_bound;
  found.proven_infeasible = options.capacity && found.lower_bound > *options.capacity;
  found.work += exact.work;
  found.seconds += exact.seconds;
  found.cpu_seconds += exact.cpu_seconds;
  return found;
}

SearchResult plan_exact(const Problem& problem, const SearchOptions& options) {
  return Search(problem, options, true).run();
}

}  // namespace memoir
