// SPDX-License-Identifier: Apache-2.0
//
// The policies that a device's tests go through: all that devices have, and some settings of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "memoir/policy/policies.h"

namespace memoir::run {

inline constexpr Size kGranule = 2 * kMiB;  // of the fake device

struct Tried {
  std::string name;
  /// Bytes that an empty pool may keep: what different streams freed within one granule does not join; RMM's
  /// pools keep everything.
  Size kept = 0;
  bool exact = true;  // a request for what the cap leaves is served
};

inline std::vector<Tried> tried_policies() {
  std::vector<Tried> tried{{"memoir", kGranule},
                           {"memoir_plain,plain_step=2MiB", kGranule},
                           {"pytorch:max_split_size_mb:64,garbage_collection_threshold:0.8"},
                           {"expandable", 0, false},  // maps 20 MiB at once
                           {"pytorch,conf=[expandable_segments:True]", 0, false},
                           {"rmm", 64 * kMiB, false},
                           {"rmm_arena", 64 * kMiB, false}};
  for (const PolicyInfo& info : policies(Substrate::kDevice)) {
    if (info.name == "guided" || info.name == "static_tensors")
      continue;  // want a plan's file, a pool's size
    const auto has_name = [&](const Tried& one) { return one.name == info.name; };
    if (info.name != "memoir_plain" && std::none_of(tried.begin(), tried.end(), has_name))
      tried.push_back({info.name});
  }
  return tried;
}

}  // namespace memoir::run
