// SPDX-License-Identifier: Apache-2.0
//
// The planners by name: the one list from which the command line, the bindings and the tests take them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "memoir/plan/plan.h"

namespace memoir {

struct Planner {
  std::string_view name;
  std::string_view what;  // one line for people
  Plan (*run)(const Problem&);
  Plan (*run_within)(const Problem&, double seconds) = nullptr;  // where it can be told how long it may take
};

/// Every planner written in C++, cheapest first. All are deterministic and thread-safe, honour any alignment,
/// and throw Error where validate() does.
std::span<const Planner> planners() noexcept;

/// Throws Error, listing the names there are, when there is none of that name.
const Planner& find_planner(std::string_view name);

/// Those that take a few microseconds a buffer, the quickest first.
std::span<const Planner* const> cheap_planners() noexcept;

/// Tries some cheap planners in turn, stops at the first whose arena is as small as aligned_load() (so that
/// no plan is better) and otherwise returns the smallest; the first of those. `planner`, when given, gets the
/// name of its maker. Meant for the end of a program's first pass: well under a millisecond for a network of
/// 1,000 buffers.
Plan plan_quickly(const Problem& problem, std::string_view* planner = nullptr);

}  // namespace memoir
