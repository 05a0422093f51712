// SPDX-License-Identifier: Apache-2.0
//
// Orders to place buffers in: the one thing that list placement and the exact search need to be told.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "memoir/plan/index/sections.h"
#include "memoir/plan/plan.h"

namespace memoir {

using Order = std::vector<std::uint32_t>;  // a permutation of the buffers

/// Sorts by the keys named, most important first, each decreasing; ties stay in the problem's order.
///   W  width: length of the lifetime          A  area: width x size          Z  size
///   T  total: the load of the fullest section it lives in
///   L  lower: early birth first               U  upper: late death first
/// (The search of minimalloc, ASPLOS '23, has T, L and U.)
Order make_order(const Problem& problem, const Sections& sections, std::string_view keys);

/// The same with each width and area multiplied by exp(noise * N(0, 1)), drawn from the seed: a restart near
/// a good order.
Order make_order(const Problem& problem, const Sections& sections, std::string_view keys, double noise,
                 std::uint64_t seed);

/// Per buffer, the load of the fullest section that it lives in. O(n log n) memory and time.
std::vector<Size> fullest_section(const Problem& problem, const Sections& sections);

}  // namespace memoir
