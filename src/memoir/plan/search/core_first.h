// SPDX-License-Identifier: Apache-2.0
//
// For problems too large to search as a whole. Few ticks of a real or random problem come near its load, and
// only there is packing hard. The core, all buffers that live in a section above a threshold, falls into
// independent pieces of a few hundred buffers; the exact search packs each into the target. Everything else
// is fitted around them, the longest lived first. Where that overflows, the overflowing buffer is put where
// those in its way are the easiest to fit elsewhere, and they are fitted again. No conflict graph of the
// whole is ever built.
//
// A piece that is too large for the exact search can be packed the same way: its hotter part first, the rest
// of it around that. Each such try fails about as often as it succeeds, but costs no more than a fit of the
// piece, and pieces fail by themselves: where a hundred of them must all be packed, retries of each do it.
#pragma once

#include <string_view>
#include <vector>

#include "memoir/plan/index/first_fit_orders.h"
#include "memoir/plan/index/gap_index.h"
#include "memoir/plan/index/stretches.h"
#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

struct CoreFirstOptions {
  double threshold = 0.9;         // of the target: sections with a larger load are core
  std::string_view order = "TW";  // of the rest, see make_order
  Fit fit = Fit::kFirst;          // of the rest
  double noise = 0;               // perturbs that order
  std::uint64_t seed = 0;
  std::uint64_t nodes_per_buffer = 4;  // the effort spent on one piece of the core, besides a constant
  std::size_t largest_exact = 6000;    // buffers of a piece that the exact search is given
  unsigned retries = 0;                // of a piece that the exact search was not given or did not pack
  std::uint64_t repair_effort = 2000;  // comparisons spent on what overflows, for each buffer of the problem
  bool must_answer = true;             // or nothing when its time is over; never when it is called off
};

/// Answers with valid offsets that fit the target or come near it; empty when it was stopped and need not
/// answer. `work` is increased by the placements tried; limits.nodes is of all of them.
std::vector<Offset> core_first(const Problem& problem, const Sections& sections, Size target,
                               const CoreFirstOptions& options, const SearchLimits& limits,
                               std::uint64_t& work);

/// The same of buffers that are live in these stretches of time alone; `sections` are those of the pieces.
/// Obstacles stay where they are, and do not count to the arena.
std::vector<Offset> core_first(const Problem& problem, const Stretches& stretches, const Sections& sections,
                               Size target, const CoreFirstOptions& options, const SearchLimits& limits,
                               std::uint64_t& work);

}  // namespace memoir
