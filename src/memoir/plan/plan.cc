// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "memoir/base/error.h"

namespace memoir {
namespace {

/// What is wrong with a plan before any two of its buffers are compared.
std::optional<Violation> check_each(const Problem& problem, const Plan& plan) {
  if (plan.offsets.size() != problem.size()) {
    return Violation{0, 0,
                     "the plan has " + std::to_string(plan.offsets.size()) + " offsets for " +
                         std::to_string(problem.size()) + " buffers"};
  }
  for (size_t i = 0; i < problem.size(); ++i) {
    const Offset offset = plan.offsets[i];
    if (offset % problem[i].alignment != 0)
      return Violation{i, i, "offset is not a multiple of the alignment"};
    if (problem[i].size > plan.arena_size || offset > plan.arena_size - problem[i].size) {
      return Violation{i, i, "buffer ends outside the arena"};
    }
  }
  return std::nullopt;
}

struct Peak {
  Size load = 0;
  Tick tick = 0;
};

Peak find_peak(const Problem& problem) {
  std::vector<std::pair<Tick, const Buffer*>> births, deaths;
  births.reserve(problem.size());
  deaths.reserve(problem.size());
  for (const Buffer& buffer : problem) {
    births.emplace_back(buffer.lifetime.begin, &buffer);
    deaths.emplace_back(buffer.lifetime.end, &buffer);
  }
  std::sort(births.begin(), births.end());
  std::sort(deaths.begin(), deaths.end());
  Size live = 0;
  Peak peak;
  auto death = deaths.begin();
  for (const auto& [tick, buffer] : births) {
    while (death != deaths.end() && death->first <= tick) live -= (death++)->second->size;
    if (__builtin_add_overflow(live, buffer->size, &live)) {
      throw Error("the sizes of the buffers live at tick " + std::to_string(tick) +
                  " add up to more than 2^64 bytes");
    }
    if (live > peak.load) peak = {live, tick};
  }
  return peak;
}

constexpr const char* kOverlap = "the two live at the same time and overlap";

}  // namespace

void validate(const Problem& problem, Empty empty) {
  const auto refuse = [](size_t index, const std::string& what) {
    throw Error("buffer " + std::to_string(index) + " " + what);
  };
  Size total = 0;
  for (size_t i = 0; i < problem.size(); ++i) {
    const auto& [lifetime, size, alignment] = problem[i];
    if (lifetime.begin >= lifetime.end) {
      refuse(i, "has the lifetime [" + std::to_string(lifetime.begin) + ", " + std::to_string(lifetime.end) +
                    "): it must end after it begins");
    }
    if (size == 0 && empty == Empty::kRefused) refuse(i, "has the size 0: leave it out, it needs no offset");
    if (alignment == 0) refuse(i, "has the alignment 0: it must be at least 1");
    if (__builtin_add_overflow(total, size, &total) || __builtin_add_overflow(total, alignment - 1, &total) ||
        total >> 63 != 0) {
      refuse(i, "of " + std::to_string(size) + " bytes brings the sum of all sizes to 2^63 bytes or more");
    }
  }
}

bool has_empty(const Problem& problem) {
  return std::any_of(problem.begin(), problem.end(), [](const Buffer& buffer) { return buffer.size == 0; });
}

Problem sized(const Problem& problem) {
  Problem kept;
  std::copy_if(problem.begin(), problem.end(), std::back_inserter(kept),
               [](const Buffer& buffer) { return buffer.size != 0; });
  return kept;
}

Plan with_empty(const Problem& problem, const Plan& plan) {
  Plan whole{std::vector<Offset>(problem.size()), plan.arena_size};
  size_t next = 0;
  for (size_t i = 0; i < problem.size(); ++i) {
    if (problem[i].size == 0) continue;
    if (next == plan.offsets.size()) throw Error("there must be one offset per buffer that has bytes");
    whole.offsets[i] = plan.offsets[next++];
  }
  if (next != plan.offsets.size()) throw Error("there must be one offset per buffer that has bytes");
  return whole;
}

Size load(const Problem& problem) { return find_peak(problem).load; }

Tick busiest_tick(const Problem& problem) { return find_peak(problem).tick; }

Problem aligned_to(const Problem& problem, Size alignment) {
  if (alignment == 0) throw Error("alignment 0: it must be at least 1");
  Problem aligned = problem;
  for (Buffer& buffer : aligned) {
    const Size factor = alignment / std::gcd(alignment, buffer.alignment);
    if (__builtin_mul_overflow(buffer.alignment, factor, &buffer.alignment) || buffer.alignment > Size{1}
                                                                                                      << 56) {
      throw Error("no offset can be a multiple of " + std::to_string(alignment) +
                  " and of the buffers' own: that is beyond 2^56");
    }
  }
  validate(aligned, Empty::kAllowed);
  return aligned;
}

std::optional<Violation> check(const Problem& problem, const Plan& plan) {
  if (auto violation = check_each(problem, plan)) return violation;
  // Every pair that lives together is compared: visit births in order, next to the buffers still live.
  std::vector<size_t> order(problem.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return problem[a].lifetime.begin < problem[b].lifetime.begin; });
  std::vector<size_t> live;
  for (const size_t i : order) {
    std::erase_if(live, [&](size_t j) { return problem[j].lifetime.end <= problem[i].lifetime.begin; });
    if (problem[i].size == 0) continue;
    for (const size_t j : live) {
      if (Range{plan.offsets[i], problem[i].size}.overlaps({plan.offsets[j], problem[j].size})) {
        return Violation{std::min(i, j), std::max(i, j), kOverlap};
      }
    }
    live.push_back(i);
  }
  return std::nullopt;
}

std::optional<Violation> quick_check(const Problem& problem, const Plan& plan) {
  if (auto violation = check_each(problem, plan)) return violation;
  std::vector<size_t> births(problem.size());
  std::iota(births.begin(), births.end(), size_t{0});
  std::vector<size_t> deaths = births;
  std::sort(births.begin(), births.end(),
            [&](size_t a, size_t b) { return problem[a].lifetime.begin < problem[b].lifetime.begin; });
  std::sort(deaths.begin(), deaths.end(),
            [&](size_t a, size_t b) { return problem[a].lifetime.end < problem[b].lifetime.end; });
  // The live buffers never overlap, so a new one that overlaps any overlaps a neighbour of its offset.
  std::map<Offset, size_t> live;
  auto death = deaths.begin();
  for (const size_t i : births) {
    if (problem[i].size == 0) continue;
    for (; death != deaths.end() && problem[*death].lifetime.end <= problem[i].lifetime.begin; ++death) {
      if (problem[*death].size != 0) live.erase(plan.offsets[*death]);
    }
    const auto above = live.lower_bound(plan.offsets[i]);
    if (above != live.end() && above->first < plan.offsets[i] + problem[i].size) {
      return Violation{std::min(i, above->second), std::max(i, above->second), kOverlap};
    }
    if (above != live.begin()) {
      const auto& [offset, j] = *std::prev(above);
      if (offset + problem[j].size > plan.offsets[i])
        return Violation{std::min(i, j), std::max(i, j), kOverlap};
    }
    live.emplace_hint(above, plan.offsets[i], i);
  }
  return std::nullopt;
}

}  // namespace memoir
