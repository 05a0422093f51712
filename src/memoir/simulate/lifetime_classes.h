// SPDX-License-Identifier: Apache-2.0
//
// How long each object of a workload is said to live, for policies whose requests carry classes of that:
//
//   true       what the trace has: the bound of a perfect predictor. What outlives the trace is never freed
//   sites      of each site the 95th percentile of its objects' lifetimes, as the LLAMA paper labels contexts
//              (2.2): a predictor that has seen this very run
//   shuffled   the true classes, dealt out at random: what a heap does without knowledge
//   x.trace    as sites, of another run: sites that it does not have say nothing
//   x.model    what a model of memoir train predicts from the names of a site's functions; nothing where it
//              abstains
//   none       nothing
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/policy/policies.h"
#include "memoir/simulate/workload.h"

namespace memoir {

/// A class for every object, in the policy's scale; empty for `none`. Throws Error for a source of another
/// name, and as Trace::open() does.
std::vector<std::uint8_t> lifetime_classes(const Workload& workload, const Policy& policy);

}  // namespace memoir
