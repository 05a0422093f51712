// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "memoir/plan/search/exact/bundles.h"
#include "memoir/plan/search/exact/canonical.h"
#include "memoir/plan/search/part_search.h"

namespace memoir {

/// A part with buffers tied up that can follow each other in one place, and the search of that. Its plans are
/// plans of the part; what it proves is not.
struct PartSearch::Tied {
  Bundles bundles;
  std::vector<std::uint32_t> order;  // of the bundles, as the search has them
  PartSearch search;
  bool is_reading = false;         // by parse()
  double spent = 0;                // as SearchContext counts it, on all ties so far:
  double began = 0, improved = 0;  // before these, and when they last led to a better plan

  Tied(Bundles tied, Canonical canonical)
      : bundles(std::move(tied)), order(canonical.buffers), search(std::move(canonical)) {
    search.is_tied_ = true;
  }

  /// Those of the part. The search has made a step.
  std::vector<Offset> offsets() const {
    std::vector<Offset> offsets(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) offsets[order[k]] = search.offsets()[k];
    return bundles.untie(offsets);
  }
};

}  // namespace memoir
