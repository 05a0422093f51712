// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/auto.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <unordered_map>

#include "memoir/plan/search/decompose.h"
#include "memoir/plan/search/part_search.h"

namespace memoir {
namespace {

using Clock = std::chrono::steady_clock;

// Equal parts, as the micro-batches of a training step often are, share one search.
struct Shape {
  const Problem* problem;

  bool operator==(const Shape& other) const {
    if (problem->size() != other.problem->size()) return false;
    const Tick a = problem->front().lifetime.begin, b = other.problem->front().lifetime.begin;
    return std::equal(
        problem->begin(), problem->end(), other.problem->begin(), [&](const Buffer& x, const Buffer& y) {
          return x.lifetime.begin - a == y.lifetime.begin - b && x.lifetime.end - a == y.lifetime.end - b &&
                 x.size == y.size && x.alignment == y.alignment;
        });
  }
};

struct ShapeHash {
  std::size_t operator()(const Shape& shape) const {
    std::uint64_t h = shape.problem->size();
    const Tick origin = shape.problem->front().lifetime.begin;
    const auto add = [&](std::uint64_t value) { h = (h ^ value) * 0x9e3779b97f4a7c15ull, h ^= h >> 29; };
    for (const Buffer& buffer : *shape.problem) {
      add(buffer.lifetime.begin - origin);
      add(buffer.lifetime.end - origin);
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
    const Parts parts = decompose(problem_);
    build(parts);
    first_plans();
    improve();
    return result(parts);
  }

 private:
  struct Group {
    PartSearch search;
    Offset base = 0;                     // of the member with the largest
    std::vector<std::size_t> members{};  // parts
    bool exhausted = false;
  };

  void build(const Parts& parts) {
    group_of_.resize(parts.parts.size());
    std::unordered_map<Shape, std::size_t, ShapeHash> known;
    groups_.reserve(parts.parts.size());
    // Of equal parts the one that lies highest gives the group its ticks: its bound is the whole's.
    std::vector<std::size_t> by_base(parts.parts.size());
    std::iota(by_base.begin(), by_base.end(), std::size_t{0});
    std::stable_sort(by_base.begin(), by_base.end(),
                     [&](auto a, auto b) { return parts.parts[a].base > parts.parts[b].base; });
    for (const std::size_t p : by_base) {
      Problem part = extract(problem_, parts.parts[p].buffers);
      const auto it = known.find(Shape{&part});
      if (it == known.end()) {
        const Tick origin = problem_[parts.parts[p].buffers.front()].lifetime.begin;
        groups_.push_back(std::make_unique<Group>(Group{PartSearch(std::move(part), origin)}));
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
  }

  // What the whole must come down to: no smaller than the largest bound of a part, no larger than asked.
  Size goal() const { return options_.capacity ? *options_.capacity : floor(); }
  Size floor() const {
    Size bytes = bars_;
    for (const auto& group : groups_) bytes = std::max(bytes, group->base + group->search.bound().bytes);
    return bytes;
  }
  Size arena() const {
    Size bytes = bars_;
    for (const auto& group : groups_) bytes = std::max(bytes, group->base + group->search.arena());
    return bytes;
  }
  // Seen from inside a group: at least its own bound, so that its search has a target that may exist.
  Size target(const Group& group) const {
    const Size goal = this->goal();
    return std::max(group.search.bound().bytes, goal > group.base ? goal - group.base : 0);
  }

  void first_plans() {
    for (const auto& group : groups_) {
      while (group->search.arena() == ~Size{0}) group->search.step(target(*group), context_);
    }
    report();
  }

  void improve() {
    while (!context_.stopped()) {
      if (options_.capacity && floor() > *options_.capacity) return;
      const Size goal = this->goal();
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

  SearchResult result(const Parts& parts) {
    SearchResult result;
    result.plan.offsets.resize(problem_.size());
    for (const auto& [buffer, offset] : parts.placed) result.plan.offsets[buffer] = offset;
    for (std::size_t p = 0; p < parts.parts.size(); ++p) {
      const Part& part = parts.parts[p];
      const std::vector<Offset>& offsets = groups_[group_of_[p]]->search.offsets();
      for (std::size_t k = 0; k < part.buffers.size(); ++k)
        result.plan.offsets[part.buffers[k]] = part.base + offsets[k];
    }
    result.plan.arena_size = arena();
    result.lower_bound = bars_;
    result.bound_reason = problem_.empty()
                              ? "there are no buffers"
                              : "the load at tick " + std::to_string(problem_[bar_].lifetime.begin);
    for (const auto& group : groups_) {
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
    return result;
  }

  const Problem& problem_;
  const SearchOptions& options_;
  const Clock::time_point start_;
  SearchContext context_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::size_t> group_of_;  // per part
  Size bars_ = 0;                      // the top of the highest buffer that lives throughout its part
  std::uint32_t bar_ = 0;
  Size reported_ = ~Size{0};
};

}  // namespace

SearchResult plan_auto(const Problem& problem, const SearchOptions& options) {
  return Search(problem, options, false).run();
}

SearchResult plan_exact(const Problem& problem, const SearchOptions& options) {
  return Search(problem, options, true).run();
}

}  // namespace memoir
