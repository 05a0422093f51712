// SPDX-License-Identifier: Apache-2.0
//
// The settings that memoir's malloc and its simulation share: MEMOIR_MALLOC="key=value,..." for the one,
// --policy lifetime,key=value for the other.
#pragma once

#include <tuple>

#include "memoir/base/option.h"

namespace memoir {

struct LifetimeOptions {
  bool split = true;
  double tau = 2;
  Size sample = 128 * kKiB;
  Size split_from = 16 * kMiB;
  Size background_from = 16 * kMiB;
  bool release = true;
  double slack = 0.02;
  bool huge = true;
  Size cache = 64 * kMiB;

  double lifetime_unit() const noexcept { return tau; }

  static constexpr auto fields() {
    using Options = LifetimeOptions;
    return std::tuple{
        OptionField{"split", &Options::split, Unit::kFlag,
                    "keep short-lived and long-lived objects in regions of their own"},
        OptionField{"tau", &Options::tau, Unit::kShare,
                    "objects are long-lived if they outlive allocations of this many times the heap's size"},
        OptionField{"sample", &Options::sample, Unit::kBytes,
                    "least bytes to allocate between two samples of lifetimes"},
        OptionField{"split_from", &Options::split_from, Unit::kBytes, "smaller heaps are in one class"},
        OptionField{"background_from", &Options::background_from, Unit::kBytes,
                    "smaller heaps give nothing back by themselves and ask for no huge pages"},
        OptionField{"release", &Options::release, Unit::kFlag,
                    "give pages without objects back to the system"},
        OptionField{"slack", &Options::slack, Unit::kShare,
                    "part of the heap to keep ready for the next demand"},
        OptionField{"huge", &Options::huge, Unit::kFlag, "ask for huge pages where the heap is dense"},
        OptionField{"cache", &Options::cache, Unit::kBytes,
                    "most bytes of freed blocks above 512KiB to keep for reuse"},
    };
  }
};

}  // namespace memoir
