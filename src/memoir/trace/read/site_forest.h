// SPDX-License-Identifier: Apache-2.0
//
// The stacks of many sites as one forest, with a row for each function, inlined ones too: what reports of
// whole traces walk, whose cost is that of the different stacks and not of what was allocated there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memoir/trace/read/site_table.h"
#include "memoir/trace/read/stack_table.h"
#include "memoir/trace/stack_frame.h"

namespace memoir {

struct SiteForest {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// Texts of `sites` and `stacks` are not copied. A site that `sites` does not have has no row.
  SiteForest(const SiteTable& sites, const StackTable& stacks, std::span<const SiteId> wanted);

  std::vector<std::uint32_t> parent;  // by row: the row that called it, a smaller number; kNone at the bottom
  std::vector<std::uint32_t> frame;   // by row, of `frames`
  std::vector<StackFrame> frames;     // each once
  std::vector<std::uint32_t> row;     // of each wanted site, its innermost function's; kNone: unknown
};

}  // namespace memoir
