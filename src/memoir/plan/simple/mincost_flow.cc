// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/mincost_flow.h"

#include <algorithm>
#include <numeric>

#include "memoir/base/error.h"
#include "memoir/plan/align.h"

namespace memoir {
namespace {

constexpr std::uint32_t kNone = kNoDonor;
using Cost = std::int64_t;

/// The flow as an assignment: every buffer takes over the object of a donor, each donor's at most once, or a
/// new one. One shortest augmenting path per buffer (Dijkstra on reduced costs). Taking a new object ends any
/// path, because that possibility is each buffer's own; so no path is longer than the size of where it began.
class Sharing {
 public:
  explicit Sharing(const Problem& problem)
      : problem_(problem),
        donors_(problem.size()),
        eligible_(problem.size()),
        donor_of_(problem.size(), kNone),
        taker_of_(problem.size(), kNone),
        taker_price_(problem.size()),
        donor_price_(problem.size()),
        distance_(problem.size()),
        previous_(problem.size()),
        settled_(problem.size()) {
    std::iota(donors_.begin(), donors_.end(), 0u);
    std::stable_sort(donors_.begin(), donors_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return problem[a].lifetime.end < problem[b].lifetime.end;
    });
    std::vector<Tick> ends;
    for (const std::uint32_t donor : donors_) {
      ends.push_back(problem[donor].lifetime.end);
      donor_size_.push_back(static_cast<Cost>(problem[donor].size));
    }
    for (size_t i = 0; i < problem.size(); ++i) {
      eligible_[i] = static_cast<std::uint32_t>(
          std::upper_bound(ends.begin(), ends.end(), problem[i].lifetime.begin) - ends.begin());
    }
    for (std::uint32_t i = 0; i < problem.size(); ++i) augment(i);
  }

  /// The buffer whose object `i` takes over; kNone for a new one.
  std::uint32_t donor_of(std::uint32_t i) const {
    return donor_of_[i] == kNone ? kNone : donors_[donor_of_[i]];
  }

 private:
  // Donors are named by their place in `donors_`, so that those dead at a buffer's birth are the first few.
  void augment(std::uint32_t root) {
    constexpr Cost kFar = ~(Cost{1} << 63);
    std::fill(distance_.begin(), distance_.end(), kFar);
    std::fill(settled_.begin(), settled_.end(), std::uint8_t{0});
    std::vector<std::pair<std::uint32_t, Cost>> takers;  // scanned, with their distance
    Cost best = kFar;                                    // of the paths to a new object or a free donor
    std::uint32_t last_taker = kNone, last_donor = kNone, taker = root, widest = 0;
    for (Cost at = 0;;) {
      takers.emplace_back(taker, at);
      const auto need = static_cast<Cost>(problem_[taker].size);
      const Cost paid = at - taker_price_[taker];
      if (paid + need < best) best = paid + need, last_taker = taker, last_donor = kNone;
      const std::uint32_t eligible = eligible_[taker];
      widest = std::max(widest, eligible);
      for (std::uint32_t donor = 0; donor < eligible; ++donor) {
        const Cost through = paid + std::max<Cost>(0, need - donor_size_[donor]) - donor_price_[donor];
        if (through >= distance_[donor] || settled_[donor]) continue;
        distance_[donor] = through;
        previous_[donor] = taker;
        if (taker_of_[donor] == kNone && through < best)
          best = through, last_taker = taker, last_donor = donor;
      }
      std::uint32_t nearest = kNone;
      Cost least = best;
      for (std::uint32_t donor = 0; donor < widest; ++donor) {
        if (distance_[donor] < least && !settled_[donor]) least = distance_[donor], nearest = donor;
      }
      if (nearest == kNone) break;
      settled_[nearest] = 1;
      at = least;
      taker = taker_of_[nearest];
    }
    // New prices keep every reduced cost at or above zero, and zero where a taker has its donor.
    for (const auto& [scanned, distance] : takers) taker_price_[scanned] += best - distance;
    for (std::uint32_t donor = 0; donor < widest; ++donor) {
      if (settled_[donor]) donor_price_[donor] -= best - distance_[donor];
    }
    for (std::uint32_t donor = last_donor, to = last_taker;;) {
      const std::uint32_t given_up = donor_of_[to];
      donor_of_[to] = donor;
      if (donor != kNone) taker_of_[donor] = to;
      if (to == root) break;
      donor = given_up;
      to = previous_[donor];
    }
  }

  const Problem& problem_;
  std::vector<std::uint32_t> donors_;  // buffers by end
  std::vector<Cost> donor_size_;
  std::vector<std::uint32_t> eligible_;  // per buffer, how many of the donors are dead at its birth
  std::vector<std::uint32_t> donor_of_, taker_of_;
  std::vector<Cost> taker_price_, donor_price_;
  std::vector<Cost> distance_;  // of each donor, in the search under way
  std::vector<std::uint32_t> previous_;
  std::vector<std::uint8_t> settled_;
};

}  // namespace

std::vector<std::uint32_t> share_by_flow(const Problem& problem) {
  validate(problem);
  if (problem.size() > kMincostFlowLimit) {
    throw Error("mincost_flow takes at most " + std::to_string(kMincostFlowLimit) + " buffers, not " +
                std::to_string(problem.size()) +
                ": its flow network has an edge for every pair; use another planner");
  }
  const Sharing sharing(problem);
  std::vector<std::uint32_t> donors(problem.size());
  for (std::uint32_t i = 0; i < problem.size(); ++i) donors[i] = sharing.donor_of(i);
  return donors;
}

Plan mincost_flow(const Problem& problem) {
  struct Object {
    Size size = 0, alignment = 1;
    Offset offset = 0;
  };
  const std::vector<std::uint32_t> donors = share_by_flow(problem);
  std::vector<std::uint32_t> by_birth(problem.size());
  std::iota(by_birth.begin(), by_birth.end(), 0u);
  std::stable_sort(by_birth.begin(), by_birth.end(), [&](std::uint32_t a, std::uint32_t b) {
    return problem[a].lifetime.begin < problem[b].lifetime.begin;
  });
  std::vector<Object> objects;
  std::vector<std::uint32_t> object_of(problem.size());
  for (const std::uint32_t i :
       by_birth) {  // a donor dies before its taker is born, so it has its object already
    const std::uint32_t donor = donors[i];
    object_of[i] = donor == kNone ? static_cast<std::uint32_t>(objects.size()) : object_of[donor];
    if (donor == kNone) objects.emplace_back();
    Object& object = objects[object_of[i]];
    object.size = std::max(object.size, problem[i].size);
    // An object at a common multiple of its tenants' alignments suits them all.
    if (__builtin_mul_overflow(object.alignment / std::gcd(object.alignment, problem[i].alignment),
                               problem[i].alignment, &object.alignment) ||
        object.alignment >> 62 != 0) {
      throw Error("buffer " + std::to_string(i) +
                  ": the alignments of those that share with it have no common multiple below 2^62");
    }
  }
  Plan plan{std::vector<Offset>(problem.size()), 0};
  for (Object& object : objects) {
    object.offset = align_to(plan.arena_size, object.alignment);
    plan.arena_size = object.offset + object.size;
    if (plan.arena_size >> 63 != 0) throw Error("the objects with their alignments take 2^63 bytes or more");
  }
  plan.arena_size = 0;
  for (size_t i = 0; i < problem.size(); ++i) {
    plan.offsets[i] = objects[object_of[i]].offset;
    plan.arena_size = std::max(plan.arena_size, plan.offsets[i] + problem[i].size);
  }
  return plan;
}

}  // namespace memoir
