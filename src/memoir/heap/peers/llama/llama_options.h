// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <tuple>

#include "memoir/base/option.h"

namespace memoir {

struct LlamaOptions {
  double shortest = 0.01;
  double deadline = 2;

  /// Nanoseconds below which the objects of the shortest class live.
  double lifetime_unit() const noexcept { return std::clamp(shortest, 1e-9, 1e9) * 1e9; }

  static constexpr auto fields() {
    using Options = LlamaOptions;
    return std::tuple{
        OptionField{"shortest", &Options::shortest, Unit::kSeconds,
                    "objects of the shortest class live less; each class is ten times the last"},
        OptionField{"deadline", &Options::deadline, Unit::kShare,
                    "of the lifetimes of its class: a page that is older moves up by one class"}};
  }
};

}  // namespace memoir
