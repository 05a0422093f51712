// SPDX-License-Identifier: Apache-2.0
//
// First fit for problems that say anything: bodies in one order or another, each to the lowest place that all
// the others leave it (fitter.h), then what capacities, costs and moves ask for is mended greedily.
#pragma once

#include <optional>
#include <string_view>

#include "memoir/plan/constrained/constrained_bounds.h"
#include "memoir/plan/constrained/fitter.h"
#include "memoir/plan/random.h"

namespace memoir {

struct FitOptions {
  std::string_view order = "AT";  // of the bodies: keys as in first_fit_orders.h; D: cost per byte and tick
  Fit fit = Fit::kFirst;
  bool sharing = true;     // over an input whenever possible, or only when that is the lowest place
  double noise = 0;        // perturbs the order
  std::uint64_t seed = 0;  // of the noise
};

/// A plan, or nothing when the banks left a body no place. Capacities and the limit of moves are kept where
/// this way of placing can keep them. O(n x neighbours).
std::optional<ConstrainedPlan> fit_bodies(const Bodies& bodies, const Sections& sections,
                                          const FitOptions& options);

}  // namespace memoir
