// SPDX-License-Identifier: Apache-2.0
//
// A plan that is squeezed into less and less room (squeeze.h): a share of the excess at once, a larger one
// after each success, a smaller one from the best again after each failure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "memoir/plan/search/full/squeeze.h"

namespace memoir {

/// Not thread-safe.
class Press {
 public:
  /// `least`: bytes, the height of the largest buffer and of what is pinned.
  /// `patience`: placements until it begins again from the best.
  Press(Squeeze squeeze, Size unit, Size least, std::uint64_t patience)
      : squeeze_(std::move(squeeze)), unit_(unit), least_(least), patience_(patience) {}

  /// Makes `offsets`, a plan of `height` bytes, lower until `target`, until `work`, which counts placements,
  /// reaches `last`, or the limits stop it. `lower` may push down what is found, and says how high it is.
  void run(std::vector<Offset>& offsets, Size& height, Size target, std::uint64_t last,
           const SearchLimits& limits, std::uint64_t& work,
           const std::function<Size(std::vector<Offset>&)>& lower);

  /// The plan is another one than the last run left.
  void forget() { pressed_ = false; }

 private:
  Squeeze squeeze_;
  Size unit_, least_;
  std::uint64_t patience_;
  bool pressed_ = false;
  double share_ = 0.2;
  std::uint64_t since_ = 0;  // placements since it was pressed
};

/// The limits say so.
bool is_over(const SearchLimits& limits);

}  // namespace memoir
