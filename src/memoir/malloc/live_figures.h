// SPDX-License-Identifier: Apache-2.0
//
// What the malloc of a running program tells whoever may read the program's memory (memoir top): an
// array of numbers behind an exported name, which the background brings up to date in each of its rounds.
//
//   memoir_malloc_figure_names   "live held resident ... size_16 size_32 ..."   a name for each number
//   memoir_malloc_figures        | version | count | changes | number 0 | number 1 | ...
//
// `changes` is odd while the numbers are written, and 0 before they ever were: a heap without a background.
#pragma once

#include <atomic>

#include "memoir/base/units.h"
#include "memoir/heap/lifetime/size_classes.h"

namespace memoir::malloc_ {

struct LiveFigures {
  static constexpr size_t kMost = 160;

  std::uint64_t version = 1;
  std::uint64_t count = 0;
  std::atomic<std::uint64_t> changes{0};
  std::atomic<std::uint64_t> number[kMost] = {};
};

/// Bytes of used blocks of each size class; larger ones come last.
struct LiveBySize {
  Size bytes[size_classes::kCount + 1] = {};
};

}  // namespace memoir::malloc_
