// SPDX-License-Identifier: Apache-2.0
//
// The planners that search, stop at once when the arena is as small as the bound, and otherwise when they are
// told to.
#pragma once

#include "memoir/plan/search.h"

namespace memoir {

/// The default planner, an anytime portfolio: cuts the problem into independent parts (equal ones are solved
/// once), takes each to the goal by the cheapest method that reaches it, and then works on the worst part
/// until the deadline. Never worse than another planner of planners(), nor than the orders of first_fit:
/// those run unless the bound is reached before, whatever the deadline (above 20,000 buffers best_fit does,
/// the others while there is time). Never worse than plan_exact() with the same work limit. The same for a
/// problem whose time is stretched or reversed, whose sizes and alignments are scaled, or whose buffers are
/// permuted, unless a cheap planner has the last word. Starts no threads in the first 20 ms. Deterministic
/// for a seed under a work limit. Thread-safe. Throws Error where validate() does.
SearchResult plan_auto(const Problem& problem, const SearchOptions& options = {});

/// Only the complete search, on each part: the same answers, proofs and limits, without the heuristics for
/// large problems. Parts of more than 6,000 buffers or 20 million pairs that live together get a first fit
/// and no search.
SearchResult plan_exact(const Problem& problem, const SearchOptions& options = {});

}  // namespace memoir
