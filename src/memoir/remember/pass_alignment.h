// SPDX-License-Identifier: Apache-2.0
//
// Which allocation of one pass is which of another one, where both come from the same operators in the same
// order, most of the time:
//
//   known    conv:64  work:8  conv:32           relu:32
//   pass     conv:96          conv:48  sum:48   relu:48
//   answer   0                2        none     3
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

struct Asked {
  SiteId site = kNoSite;
  Size size = 0;  // bytes
};

constexpr std::uint32_t kNoPartner = ~std::uint32_t{0};

/// Per allocation of `pass` its partner in `known`, or kNoPartner; partners ascend, and have the same site.
/// As many have one as can; of several ways that in which the sizes are most alike. nullopt when the two are
/// too long, and too different, for an answer within some milliseconds.
std::optional<std::vector<std::uint32_t>> align_passes(std::span<const Asked> known,
                                                       std::span<const Asked> pass);

}  // namespace memoir
