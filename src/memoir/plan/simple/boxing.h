// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/plan/plan.h"

namespace memoir {

/// Boxing: Buchsbaum, Karloff, Kenyon, Reingold, Thorup, "OPT versus LOAD in dynamic storage allocation"
/// (STOC 2003, SIAM J. Comput. 33, 2004), in the practical form that idealloc gave it.
///
///   1. Sizes are taken in storeys: what is at most an eighth of a box's height is boxed, the boxes join the
///      buffers that are larger, and the height grows sixteenfold, until all boxes are of one height
///      (Theorem 16).
///   2. For one height, sizes are rounded up to powers of 1 + 1/4, and each class is boxed by itself as if
///      its buffers were of unit size (Corollary 15).
///   3. Unit sizes (Theorem 2): those that live at a critical time, the middle of what there is, are cut into
///      strips by birth and by death, and these into boxes, so that a box is as full at its ends as in its
///      middle (Lemma 1); few outermost ones are left over. Those before and after it are treated likewise.
///      What was left over is coloured as an interval graph.
///   4. Boxes of one height are coloured as an interval graph: their colours are loose offsets. First fit in
///      the order of these squeezes the air out; the final quality comes from there.
///
/// The bound of (2 + o(1)) x load holds for astronomically large ratios of sizes; the constants here are
/// chosen for real ones. O(n log n) for each factor of sixteen between the sizes. Deterministic. Throws Error
/// where validate() does.
Plan boxing(const Problem& problem);

}  // namespace memoir
