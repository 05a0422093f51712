// SPDX-License-Identifier: Apache-2.0
//
// What a heap's options may be, said by the setting's name. A heap that is made with other options refuses
// everything without a word, so policies ask here first.
//
//   "split,small=100KiB"  ->  Error: policy 'split', small=100KiB: must be a multiple of 128KiB, above 0
#pragma once

#include <string_view>

#include "memoir/base/units.h"
#include "memoir/heap/peers/binned_heap.h"
#include "memoir/heap/peers/rmm_arena_heap.h"
#include "memoir/heap/peers/rmm_heap.h"
#include "memoir/heap/peers/split_heap.h"

namespace memoir {

/// Throws Error, which names the policy, the setting and what it may be, for options that its heap refuses.
void check_options(const BinnedOptions& options, std::string_view policy);
void check_options(const SplitOptions& options, std::string_view policy);
void check_options(const RmmOptions& options, std::string_view policy);
void check_options(const RmmArenaOptions& options, std::string_view policy);

/// Throws Error for a pool's `alignment` (bytes) that is not a power of two up to its arena's granule.
void check_pool_alignment(Size alignment, Size granule);

}  // namespace memoir
