// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/pass_template.h"

#include <algorithm>
#include <map>

#include "memoir/plan/simple/planners.h"

namespace memoir {

namespace {

constexpr size_t kMostSkeletons = 3;
constexpr double kLoose = 1.05;            // of the load: a plan that is larger is worth another skeleton,
constexpr double kFarther = 1.5;           // if its load is this much off those of the others
constexpr size_t kMostSizes = 256 * 1024;  // of all points together
constexpr size_t kLookAhead = 4;           // requests that may have come in between
constexpr size_t kFewestPoints = 4, kMostPoints = 48;

/// The lifetimes of a recorded pass counted in its own allocations: [i, j) is that of the allocation i, freed
/// before the allocation j. When between two allocations it was freed does not matter to a plan, and what
/// others free meanwhile is nothing to it.
std::vector<Lifetime> in_allocations(const std::vector<PlannedAllocation>& sequence) {
  std::vector<Lifetime> lifetimes(sequence.size());
  for (size_t i = 0; i < sequence.size(); ++i) {
    const auto next = std::partition_point(
        sequence.begin(), sequence.end(),
        [&](const PlannedAllocation& other) { return other.lifetime.begin < sequence[i].lifetime.end; });
    lifetimes[i] = {i, static_cast<Tick>(next - sequence.begin())};
  }
  return lifetimes;
}

}  // namespace

PassTemplate::PassTemplate(const RecordedPass& pass, std::vector<std::int64_t> point)
    : sequence_(pass.sequence), alignments_(pass.sequence.size()) {
  const std::vector<Lifetime> lifetimes = in_allocations(sequence_);
  Point first{std::move(point), std::vector<Size>(sequence_.size())};
  for (size_t i = 0; i < sequence_.size(); ++i) {
    sequence_[i].lifetime = lifetimes[i];
    sequence_[i].offset = kNoOffset;
    alignments_[i] = sequence_[i].alignment;
    first.sizes[i] = sequence_[i].size;
  }
  for (const std::uint32_t position : pass.positions) sequence_[position].offset = 0;
  add_skeleton(first.sizes);
  add_point(std::move(first));
}

bool PassTemplate::add(const RecordedPass& pass, const std::vector<std::int64_t>& point) {
  if (pass.sequence.size() != sequence_.size()) return false;
  for (size_t i = 0; i < sequence_.size(); ++i) {
    const PlannedAllocation &ours = sequence_[i], &theirs = pass.sequence[i];
    if (ours.site != theirs.site || ours.alignment != theirs.alignment) return false;
  }
  std::vector<bool> planned(sequence_.size());
  for (const std::uint32_t position : pass.positions) planned[position] = true;
  for (std::uint32_t i = 0; i < sequence_.size(); ++i) {
    if (pass.sequence[i].size != 0 && !planned[i]) escapes(i);
  }
  Point added{point, std::vector<Size>(sequence_.size())};
  const std::vector<Lifetime> lifetimes = in_allocations(pass.sequence);
  bool longer = false;
  for (size_t i = 0; i < sequence_.size(); ++i) {
    added.sizes[i] = pass.sequence[i].size;
    if (lifetimes[i].end <= sequence_[i].lifetime.end) continue;
    sequence_[i].lifetime.end = lifetimes[i].end;
    longer = true;
  }
  if (longer) {  // what lay on each other may live at one time now
    skeletons_.clear();
    add_skeleton(added.sizes);
  }
  add_point(std::move(added));
  return true;
}

bool PassTemplate::add(const RequestLog& log, const std::vector<std::int64_t>& point,
                       std::span<const PlannedAllocation> followed) {
  const bool all = log.size() == sequence_.size(), exactly = followed.size() != sequence_.size();
  if (exactly && !all) return false;
  Point added{point, std::vector<Size>(sequence_.size())};
  size_t at = 0, found = 0;
  for (size_t i = 0; i < sequence_.size(); ++i) {
    if (!exactly) added.sizes[i] = followed[i].size;
    // An operator may choose another way for these sizes, with an allocation more or less: the next one of
    // ours is looked for near.
    for (size_t ahead = at; ahead < std::min(at + kLookAhead, log.size()); ++ahead) {
      if (log[ahead].site != sequence_[i].site && !(all && log[ahead].site == kNoSite)) continue;
      added.sizes[i] = log[ahead].size;
      at = ahead + 1;
      ++found;
      break;
    }
  }
  if (found < sequence_.size() - (exactly ? 0 : sequence_.size() / 8)) return false;
  add_point(std::move(added));
  return true;
}

void PassTemplate::add_point(Point point) {
  std::erase_if(points_, [&](const Point& other) { return other.numbers == point.numbers; });
  const size_t most =
      std::clamp(kMostSizes / std::max<size_t>(sequence_.size(), 1), kFewestPoints, kMostPoints);
  if (points_.size() >= most) points_.erase(points_.begin());
  points_.push_back(std::move(point));
  fitted_ = false;
}

void PassTemplate::add_skeleton(const std::vector<Size>& sizes) {
  Problem problem;
  std::vector<size_t> positions;
  for (size_t i = 0; i < sequence_.size(); ++i) {
    if (!sequence_[i].planned()) continue;
    problem.push_back({sequence_[i].lifetime, std::max<Size>(sizes[i], 1), sequence_[i].alignment});
    positions.push_back(i);
  }
  std::string_view planner;
  const Plan plan = plan_quickly(problem, &planner);
  std::vector<PlannedAllocation> placed = sequence_;
  for (size_t i = 0; i < positions.size(); ++i) placed[positions[i]].offset = plan.offsets[i];
  if (skeletons_.size() >= kMostSkeletons) {
    skeletons_.erase(std::min_element(skeletons_.begin(), skeletons_.end(),
                                      [](const Placed& a, const Placed& b) { return a.used < b.used; }));
  }
  skeletons_.push_back({find_skeleton(placed), load_of(sizes), ++uses_});
}

/// place(), with a skeleton of its own where all that are known are loose.
std::optional<RecordedPlan> PassTemplate::place_well(const std::vector<Size>& sizes) {
  auto placed = place(sizes);
  const auto load = static_cast<double>(load_of(sizes));
  if (!placed || static_cast<double>(placed->arena_size) <= kLoose * load) return placed;
  for (const Placed& known : skeletons_) {
    const auto there = static_cast<double>(known.load);
    if (load < kFarther * there && there < kFarther * load) return placed;
  }
  add_skeleton(sizes);
  return place(sizes);
}

Size PassTemplate::load_of(const std::vector<Size>& sizes) const {
  std::vector<Size> ends(sequence_.size() + 1);  // bytes freed before each allocation
  Size live = 0, most = 0;
  for (size_t i = 0; i < sequence_.size(); ++i) {
    live -= ends[i];
    if (!sequence_[i].planned()) continue;
    live += sizes[i];
    ends[std::min<size_t>(sequence_[i].lifetime.end, sequence_.size())] += sizes[i];
    most = std::max(most, live);
  }
  return most;
}

std::optional<RecordedPlan> PassTemplate::place(const std::vector<Size>& sizes) {
  RecordedPlan best;
  std::vector<Offset> offsets;
  best.arena_size = ~Size{0};
  Placed* chosen = nullptr;
  for (Placed& known : skeletons_) {
    std::vector<Offset> tried = place_on(known.skeleton, sizes, alignments_);
    Size end = 0;
    for (size_t i = 0; i < tried.size(); ++i) {
      if (sequence_[i].planned()) end = std::max(end, tried[i] + sizes[i]);
    }
    if (end >= best.arena_size) continue;
    best.arena_size = end;
    offsets = std::move(tried);
    chosen = &known;
  }
  if (chosen == nullptr) return std::nullopt;
  chosen->used = ++uses_;
  best.sequence = sequence_;
  for (size_t i = 0; i < sequence_.size(); ++i) {
    best.sequence[i].size = sizes[i];
    best.sequence[i].offset = sequence_[i].planned() && sizes[i] != 0 ? offsets[i] : kNoOffset;
  }
  best.planner = "skeleton";
  return best;
}

std::optional<RecordedPlan> PassTemplate::at(const std::vector<std::int64_t>& point) {
  for (const Point& seen : points_) {
    if (seen.numbers == point) return place_well(seen.sizes);
  }
  if (points_.size() < 2) return std::nullopt;
  const auto variables = variables_of(point);
  if (!variables || (!fitted_ && !fit())) return std::nullopt;
  std::vector<Size> sizes(sequence_.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto size = forms_[i] ? forms_[i]->at(*variables) : std::nullopt;
    // What follows no form: as it was last. A range of the wrong size serves nobody, and does no harm.
    sizes[i] = size ? *size : points_.back().sizes[i];
  }
  return place_well(sizes);
}

bool PassTemplate::fit() {
  std::vector<std::vector<std::int64_t>> variables;
  for (const Point& point : points_) {
    auto of_point = variables_of(point.numbers);
    if (!of_point) return false;
    variables.push_back(std::move(*of_point));
  }
  std::map<std::vector<Size>, std::optional<SizeForm>>
      known;  // many allocations have the same sizes throughout
  forms_.assign(sequence_.size(), std::nullopt);
  std::vector<Size> sizes(points_.size());
  std::vector<SizePoint> seen(points_.size());
  for (size_t i = 0; i < sequence_.size(); ++i) {
    for (size_t p = 0; p < points_.size(); ++p) {
      sizes[p] = points_[p].sizes[i];
      seen[p] = {variables[p], sizes[p]};
    }
    const auto [entry, is_new] = known.try_emplace(sizes);
    // Where no form is exact for all, one for the latest: beyond some number an operator may do otherwise.
    for (size_t skip = 0; is_new && !entry->second && seen.size() - skip >= 2;
         skip += (seen.size() - skip + 1) / 2) {
      entry->second = SizeForm::fit(std::span(seen).subspan(skip));
    }
    forms_[i] = entry->second;
  }
  fitted_ = true;
  return true;
}

std::optional<std::vector<std::int64_t>> PassTemplate::variables_of(
    const std::vector<std::int64_t>& numbers) const {
  const std::vector<std::int64_t>& first = points_.front().numbers;
  if (numbers.size() != first.size()) return std::nullopt;
  std::vector<size_t> chosen;  // which of the numbers are variables of their own
  std::vector<std::int64_t> variables;
  for (size_t n = 0; n < numbers.size(); ++n) {
    const auto constant = [&](size_t other) {  // the difference of the two numbers, over all points
      return std::all_of(points_.begin(), points_.end(), [&](const Point& point) {
        return point.numbers[n] - (other == n ? 0 : point.numbers[other]) ==
               first[n] - (other == n ? 0 : first[other]);
      });
    };
    if (constant(n)) {
      if (numbers[n] != first[n]) return std::nullopt;  // it never varied before
      continue;
    }
    const auto like = std::find_if(chosen.begin(), chosen.end(), constant);
    if (like == chosen.end()) {
      chosen.push_back(n);
      variables.push_back(numbers[n]);
    } else if (numbers[n] - numbers[*like] != first[n] - first[*like]) {
      return std::nullopt;  // they went together before
    }
  }
  return variables;
}

size_t PassTemplate::likeness(const std::vector<std::int64_t>& point) const noexcept {
  size_t best = 0;
  for (const Point& seen : points_) {
    if (seen.numbers.size() != point.size()) continue;
    size_t same = 0;
    for (size_t n = 0; n < point.size(); ++n) same += seen.numbers[n] == point[n];
    best = std::max(best, same);
  }
  return best;
}

void PassTemplate::escapes(std::uint32_t allocation) noexcept {
  if (allocation < sequence_.size()) sequence_[allocation].offset = kNoOffset;
}

}  // namespace memoir
