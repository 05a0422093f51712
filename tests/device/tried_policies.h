// SPDX-License-Identifier: Apache-2.0
//
// The policies that a device's tests go through, and what each may do that the others may not.
#pragma once

#include "memoir/base/units.h"

namespace memoir::run {

inline constexpr Size kGranule = 2 * kMiB;  // of the fake device

struct Tried {
  const char* name;
  /// Bytes that an empty pool may keep: what different streams freed within one granule does not join; RMM's
  /// pool keeps everything.
  Size kept = 0;
  bool exact = true;  // a request for what the cap leaves is served
};
inline constexpr Tried kTried[] = {{"memoir", kGranule},
                                   {"memoir_plain,plain_step=2MiB", kGranule},
                                   {"pytorch"},
                                   {"pytorch:max_split_size_mb:64,garbage_collection_threshold:0.8"},
                                   {"expandable", 0, false},  // maps 20 MiB at once
                                   {"pytorch,conf=[expandable_segments:True]", 0, false},
                                   {"split"},
                                   {"binned"},
                                   {"rmm", 64 * kMiB, false},
                                   {"span"},
                                   {"direct"}};

}  // namespace memoir::run
