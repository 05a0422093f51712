// SPDX-License-Identifier: Apache-2.0
//
// Small random problems that say all sorts of things, and the oracle that looks through every placement.
#pragma once

#include <random>

#include "memoir/plan/constrained/constraints.h"

namespace memoir {

enum Feature : unsigned {
  kGapsOnly = 1,
  kWindows = 2,
  kFixed = 4,
  kHints = 8,
  kAlias = 16,
  kInPlace = 32,
  kBanks = 64,
  kArenas = 128,
  kForbidden = 256,
  kReplan = 512,
  kMoves = 1024,
  kGraph = 2048,
  kEdges = 4096,
  kAlignments = 8192,
  kLowSizes = 16384,
  kLocality = 32768,
  kRows = 65536,
  kEmpty = 131072,
  kEveryFeature = 262143,
};

/// `count` buffers with the features asked for. It may well be one that validate() refuses.
inline ConstrainedProblem random_constrained(std::mt19937_64& random, std::size_t count, unsigned features) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const auto has = [&](Feature feature) { return (features & feature) != 0; };
  ConstrainedProblem problem;
  Problem& buffers = problem.buffers;
  Constraints& said = problem.constraints;
  for (std::size_t i = 0; i < count; ++i) {
    const Tick begin = below(6);
    buffers.push_back({{begin, begin + 1 + below(5)}, 1 + below(4), has(kAlignments) ? 1 + below(3) : 1});
  }
  const auto any = [&] { return static_cast<std::uint32_t>(below(count)); };
  if (has(kGapsOnly) || has(kWindows)) {
    said.gaps.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [lifetime, size, alignment] = buffers[i];
      for (Tick t = lifetime.begin; t < lifetime.end; ++t) {
        if (below(3) != 0) continue;
        Gap gap{{t, t + 1 + below(lifetime.end - t)}, std::nullopt};
        if (has(kWindows) && (!has(kGapsOnly) || below(2) == 0)) {
          const Offset begin = below(size);
          gap.window = Range{begin, 1 + below(size - begin)};
        }
        t = gap.lifetime.end;
        said.gaps[i].push_back(gap);
      }
    }
  }
  if (has(kAlias)) {
    said.alias.assign(count, kNoBuffer);
    for (std::uint32_t i = 1; i < count; ++i) {
      if (below(2) == 0)
        said.alias[i] = static_cast<std::uint32_t>(below(i)), buffers[i].size = buffers[said.alias[i]].size;
    }
    for (std::size_t i = 0; i < said.gaps.size(); ++i) {
      for (Gap& gap : said.gaps[i]) {
        if (gap.window && gap.window->end() > buffers[i].size) gap.window.reset();
      }
    }
  }
  if (has(kInPlace)) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t input = any();
      if (input == i) continue;
      if (below(2) == 0 && said.alias.empty() && said.gaps.empty()) {  // make it die there
        buffers[input].lifetime.end =
            std::max(buffers[input].lifetime.begin + 1, buffers[i].lifetime.begin + 1);
      }
      said.in_place.emplace_back(i, input);
    }
  }
  if (has(kBanks)) {
    said.banks = {2 + below(3), 1 + below(3)};
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t i = any(), j = any();
      if (i != j) said.apart.emplace_back(i, j);
    }
  }
  if (has(kArenas)) {
    said.arenas = {{"sram", 3 + below(5), 1 + below(2), {}},
                   {"dram", below(2) ? kNoLimit : 6 + below(6), below(20), {}}};
    if (below(2) == 0) {
      for (std::size_t i = 0; i < count; ++i) said.allowed.push_back(1 + below(3));
    }
    if (below(2) == 0) {
      for (std::size_t i = 0; i < count; ++i) said.weights.push_back(below(9));
    }
  }
  if (has(kForbidden)) {
    if (said.arenas.empty()) said.arenas = {ArenaChoice{}};
    for (ArenaChoice& arena : said.arenas) {
      for (std::uint64_t k = below(3); k > 0; --k) arena.forbidden.push_back({below(8), 1 + below(2)});
    }
  }
  const auto some = [&](std::vector<Offset>& offsets) {
    for (std::size_t i = 0; i < count; ++i)
      offsets.push_back(below(4) != 0 ? kNoOffset : below(6) / buffers[i].alignment * buffers[i].alignment);
  };
  if (has(kFixed)) some(said.fixed);
  if (has(kHints)) some(said.hints);
  if (has(kReplan)) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto arena = static_cast<std::uint32_t>(below(std::max<std::size_t>(1, said.arenas.size())));
      said.old.push_back({below(4) == 0 ? kNoOffset : below(7), arena});
    }
    if (has(kMoves)) said.moves = below(count);
  }
  if (has(kGraph)) said.timed = false, said.gaps.clear();
  if (has(kGraph) || has(kEdges)) {
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::uint32_t j = 0; j < i; ++j) {
        if (below(has(kGraph) ? 2 : 5) == 0) said.conflicts.emplace_back(i, j);
      }
    }
  }
  if (has(kLowSizes)) {
    for (const Buffer& buffer : buffers) said.low_sizes.push_back(1 + below(buffer.size));
  }
  said.locality = has(kLocality);
  if (has(kRows)) {
    said.after.assign(count, kNoBuffer);
    std::vector<bool> taken(count);
    for (std::uint32_t i = 1; i < count; ++i) {
      const auto other = static_cast<std::uint32_t>(below(i));
      if (taken[other] || below(2) == 0) continue;
      said.after[i] = other;
      taken[other] = true;
    }
  }
  if (has(kEmpty)) {
    const std::uint32_t i = any();
    buffers[i].size = 0;
    if (!said.low_sizes.empty()) said.low_sizes[i] = 0;
  }
  return problem;
}

/// Looks through every placement of every buffer, one after another, below `height` in each arena.
class EveryPlacement {
 public:
  EveryPlacement(const ConstrainedProblem& problem, Size height) : problem_(problem), height_(height) {
    plan_.offsets.resize(problem.buffers.size());
    plan_.arenas.resize(problem.buffers.size());
    plan_.arena_sizes.assign(arenas_of(problem.constraints).size(), kNoLimit);
    placed_.resize(problem.buffers.size());
  }

  /// Is there a plan that keeps to capacities and moves with a smaller objective? kNoLimit: any at all.
  bool exists_below(const Objective& objective) {
    objective_ = objective;
    std::vector<Size> tops(plan_.arena_sizes.size());
    return place(0, 0, 0, tops);
  }

 private:
  bool place(std::uint32_t i, std::uint64_t moves, std::uint64_t cost, std::vector<Size>& tops) {
    const Constraints& said = problem_.constraints;
    Objective now{said.moves ? 0 : moves, cost, 0};
    for (const Size top : tops) now.total += top;
    if (now >= objective_ || (said.moves && moves > *said.moves)) return false;
    if (i == problem_.buffers.size()) return true;
    const std::vector<ArenaChoice> arenas = arenas_of(said);
    for (std::uint32_t k = 0; k < arenas.size(); ++k) {
      const Size limit = std::min(height_, arenas[k].capacity);
      for (Offset at = 0; at + problem_.buffers[i].size <= limit; ++at) {
        plan_.offsets[i] = at;
        plan_.arenas[i] = k;
        placed_[i] = true;
        bool ours = !check_some();
        if (ours) {
          const Size top = tops[k];
          tops[k] = std::max(top, at + problem_.buffers[i].size);
          const bool moved =
              !said.old.empty() && said.old[i].offset != kNoOffset && said.old[i] != OldPlace{at, k};
          ours = place(i + 1, moves + moved, cost + weight_of(problem_, i) * arenas[k].cost, tops);
          tops[k] = top;
        }
        placed_[i] = false;
        if (ours) return true;
      }
    }
    return false;
  }

  /// check() of those placed; an alias of one that is not placed yet is looked at with that one.
  std::optional<Violation> check_some() {
    std::vector<std::uint32_t>& alias = problem_.constraints.alias;
    const std::vector<std::uint32_t> said = alias;
    for (std::uint32_t i = 0; i < alias.size(); ++i) {
      if (alias[i] != kNoBuffer && !placed_[alias[i]]) alias[i] = kNoBuffer;
    }
    const auto violation = check(problem_, plan_, &placed_);
    alias = said;
    return violation;
  }

  ConstrainedProblem problem_;
  const Size height_;
  ConstrainedPlan plan_;
  std::vector<bool> placed_;
  Objective objective_;
};

}  // namespace memoir
