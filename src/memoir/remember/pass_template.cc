// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/pass_template.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "memoir/plan/simple/planners.h"
#include "memoir/remember/pass_alignment.h"

namespace memoir {

namespace {

constexpr size_t kMostSkeletons = 3;
constexpr double kLoose = 1.05;    // of the load: a plan that is larger is worth another skeleton,
constexpr double kFarther = 1.5;   // if its load is this much off those of the others
constexpr size_t kMostGrowth = 4;  // a structure has at most so many times the allocations of one pass

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

/// [i, j) where the allocations have other numbers: it ends right after the last one that it lived to see.
Lifetime in_numbers(const Lifetime& lifetime, std::span<const std::uint32_t> numbers) {
  return {numbers[lifetime.begin], Tick{numbers[lifetime.end - 1]} + 1};
}

std::vector<std::uint32_t> count_up(size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

bool has_same_sites(std::span<const PlannedAllocation> a, std::span<const PlannedAllocation> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const PlannedAllocation& x, const PlannedAllocation& y) {
                      return x.site == y.site && x.alignment == y.alignment;
                    });
}

}  // namespace

PassTemplate::PassTemplate(const RecordedPass& pass, std::vector<std::int64_t> point)
    : sequence_(pass.sequence), alignments_(pass.sequence.size()), first_(point) {
  const std::vector<Lifetime> lifetimes = in_allocations(sequence_);
  std::vector<Size> sizes(sequence_.size());
  for (size_t i = 0; i < sequence_.size(); ++i) {
    sequence_[i].lifetime = lifetimes[i];
    sequence_[i].offset = kNoOffset;
    alignments_[i] = sequence_[i].alignment;
    sizes[i] = sequence_[i].size;
  }
  for (const std::uint32_t position : pass.positions) sequence_[position].offset = 0;
  add_skeleton(sizes);
  points_.add(std::move(point), std::move(sizes));
}

bool PassTemplate::add(const RecordedPass& pass, const std::vector<std::int64_t>& point) {
  if (point.size() != first_.size()) return false;
  std::vector<std::uint32_t> numbers;  // of the pass's allocations, in this template
  if (has_same_sites(pass.sequence, sequence_)) {
    numbers = count_up(sequence_.size());
  } else {
    const std::vector<Size> likely = points_.all_at(point);
    std::vector<Asked> known, asked;
    for (size_t i = 0; i < sequence_.size(); ++i) known.push_back({sequence_[i].site, likely[i]});
    for (const PlannedAllocation& one : pass.sequence) asked.push_back({one.site, one.size});
    const auto partners = align_passes(known, asked);
    if (!partners) return false;
    const auto alone = static_cast<size_t>(std::count(partners->begin(), partners->end(), kNoPartner));
    if (alone > asked.size() / 4 || sequence_.size() + alone > kMostGrowth * asked.size()) return false;
    numbers = merge(pass, *partners);
  }
  std::vector<bool> planned(pass.sequence.size());
  for (const std::uint32_t position : pass.positions) planned[position] = true;
  std::vector<Size> sizes(sequence_.size());
  const std::vector<Lifetime> lifetimes = in_allocations(pass.sequence);
  const size_t before = alignments_.size();
  bool longer = before != sequence_.size();
  alignments_.clear();
  for (const PlannedAllocation& one : sequence_) alignments_.push_back(one.alignment);
  for (std::uint32_t i = 0; i < pass.sequence.size(); ++i) {
    PlannedAllocation& ours = sequence_[numbers[i]];
    if (pass.sequence[i].size != 0 && !planned[i]) ours.offset = kNoOffset;
    sizes[numbers[i]] = pass.sequence[i].size;
    const Lifetime lifetime = in_numbers(lifetimes[i], numbers);
    if (lifetime.end <= ours.lifetime.end) continue;
    ours.lifetime.end = lifetime.end;
    longer = true;
  }
  points_.add(point, std::move(sizes));
  if (longer) {  // what lay on each other may live at one time now
    skeletons_.clear();
    add_skeleton(points_.all_at(point));
  }
  return true;
}

/// Takes up the pass's allocations that have no partner. Returns the numbers of the pass's allocations.
std::vector<std::uint32_t> PassTemplate::merge(const RecordedPass& pass,
                                               std::span<const std::uint32_t> partners) {
  std::vector<std::uint32_t> theirs(partners.size()), ours;
  std::vector<PlannedAllocation> merged;
  const auto take_ours = [&](size_t end) {
    while (ours.size() < end) {
      merged.push_back(sequence_[ours.size()]);
      ours.push_back(static_cast<std::uint32_t>(merged.size() - 1));
    }
  };
  std::vector<bool> is_new(pass.sequence.size());
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i] != kNoPartner) {
      take_ours(size_t{partners[i]} + 1);
      theirs[i] = ours.back();
      merged[theirs[i]].alignment = std::max(merged[theirs[i]].alignment, pass.sequence[i].alignment);
    } else {
      theirs[i] = static_cast<std::uint32_t>(merged.size());
      merged.push_back(pass.sequence[i]);
      merged.back().offset = 0;  // planned, unless the pass says that it is not
      is_new[i] = true;
    }
  }
  take_ours(sequence_.size());
  const std::vector<Lifetime> lifetimes = in_allocations(pass.sequence);
  for (size_t i = 0; i < sequence_.size(); ++i) {
    merged[ours[i]].lifetime = in_numbers(sequence_[i].lifetime, ours);
  }
  for (size_t i = 0; i < theirs.size(); ++i) {
    if (is_new[i]) merged[theirs[i]].lifetime = in_numbers(lifetimes[i], theirs);
  }
  points_.spread(ours, merged.size());
  sequence_ = std::move(merged);
  return theirs;
}

bool PassTemplate::add(const RequestLog& log, const std::vector<std::int64_t>& point, Followed followed) {
  if (point.size() != first_.size() || log.empty()) return false;
  const std::span<const LoggedRequest> asked_for(log.data(), log.size());
  const bool has_sites = std::none_of(asked_for.begin(), asked_for.end(),
                                      [](const LoggedRequest& one) { return one.site == kNoSite; });
  const bool is_ours = followed.allocations.size() == followed.sequence.size() &&
                       !followed.sequence.empty() && followed.allocations.back() < sequence_.size();
  const std::span<const PlannedAllocation> expected = is_ours ? followed.sequence : sequence_;
  const auto number_of = [&](size_t i) {
    return is_ours ? followed.allocations[i] : static_cast<std::uint32_t>(i);
  };
  std::vector<Size> sizes(sequence_.size());
  const bool same = log.size() == expected.size() &&
                    std::equal(asked_for.begin(), asked_for.end(), expected.begin(),
                               [&](const LoggedRequest& one, const PlannedAllocation& other) {
                                 return !has_sites || one.site == other.site;
                               });
  if (same) {
    for (size_t i = 0; i < asked_for.size(); ++i) sizes[number_of(i)] = asked_for[i].size;
    points_.add(point, std::move(sizes));
    return true;
  }
  if (!has_sites) return false;
  const std::vector<Size> likely = points_.all_at(point);
  std::vector<Asked> known, asked;
  for (size_t i = 0; i < sequence_.size(); ++i) known.push_back({sequence_[i].site, likely[i]});
  for (const LoggedRequest& one : asked_for) asked.push_back({one.site, one.size});
  const auto partners = align_passes(known, asked);
  if (!partners) return false;
  size_t alone = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    if ((*partners)[i] == kNoPartner) ++alone;
    else sizes[(*partners)[i]] = asked[i].size;
  }
  // Of another structure, unless we made its plan: then a few more may be new to us.
  if (alone > (is_ours ? asked.size() / 4 : 0)) return false;
  points_.add(point, std::move(sizes), alone > 0);
  return true;
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

/// The offsets that the best skeleton gives.
std::vector<Offset> PassTemplate::place(const std::vector<Size>& sizes, Size& arena_size) {
  std::vector<Offset> best;
  Placed* chosen = nullptr;
  for (Placed& known : skeletons_) {
    std::vector<Offset> tried = place_on(known.skeleton, sizes, alignments_);
    Size end = 0;
    for (size_t i = 0; i < tried.size(); ++i) {
      if (sequence_[i].planned()) end = std::max(end, tried[i] + sizes[i]);
    }
    if (chosen != nullptr && end >= arena_size) continue;
    arena_size = end;
    best = std::move(tried);
    chosen = &known;
  }
  if (chosen != nullptr) chosen->used = ++uses_;
  return best;
}

std::optional<DerivedPlan> PassTemplate::at(const std::vector<std::int64_t>& point) {
  const auto sizes = points_.at(point);
  // The only skeleton may be gone: it was given up for another, which found no memory.
  if (!sizes || skeletons_.empty()) return std::nullopt;
  DerivedPlan made;
  std::vector<Offset> offsets = place(*sizes, made.plan.arena_size);
  const auto load = static_cast<double>(load_of(*sizes));
  // Where all skeletons are loose, one of its own.
  if (static_cast<double>(made.plan.arena_size) > kLoose * load &&
      std::all_of(skeletons_.begin(), skeletons_.end(), [&](const Placed& known) {
        const auto there = static_cast<double>(known.load);
        return load >= kFarther * there || there >= kFarther * load;
      })) {
    add_skeleton(*sizes);
    offsets = place(*sizes, made.plan.arena_size);
  }
  for (std::uint32_t i = 0; i < sequence_.size(); ++i) {
    if ((*sizes)[i] == 0) continue;
    made.plan.sequence.push_back(sequence_[i]);
    made.plan.sequence.back().size = (*sizes)[i];
    made.plan.sequence.back().offset = sequence_[i].planned() ? offsets[i] : kNoOffset;
    made.allocations.push_back(i);
  }
  made.plan.planner = "skeleton";
  made.is_partial = points_.is_partial_near(point);
  return made;
}

void PassTemplate::escapes(std::uint32_t allocation) noexcept {
  if (allocation < sequence_.size()) sequence_[allocation].offset = kNoOffset;
}

}  // namespace memoir
