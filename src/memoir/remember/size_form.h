// SPDX-License-Identifier: Apache-2.0
//
// The size of one allocation as a function of the numbers of a call, guessed from the sizes that it had
// before:
//
//   numbers   64    128    96           size   4096   8192   ?        32 per row: 6144
//
// Sizes are bytes of tensors, so the guesses are those that shapes make: a constant; a product of numbers,
// each perhaps first divided, as strided operators do, floor((x + shift) / step); that and a constant. A
// guess is one that fits all that is known exactly, the simplest first. A wrong one costs a range that does
// not fit, never more.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

/// What was seen: of each point its variables (all points have as many) and the size.
struct SizePoint {
  std::span<const std::int64_t> variables;
  Size size = 0;
};

class SizeForm {
 public:
  static constexpr size_t kFactors = 3;
  static constexpr std::uint8_t kNoVariable = 255;

  /// The simplest form that is exact for all points; nullopt when none of ours is, or when as many as
  /// `tries` says were tried, which counts down. Needs a point.
  static std::optional<SizeForm> fit(std::span<const SizePoint> points, size_t& tries);

  /// Rounded up; nullopt when it is not a size: negative, or beyond 2^56.
  std::optional<Size> at(std::span<const std::int64_t> variables) const noexcept;

  bool operator==(const SizeForm&) const = default;

 private:
  __extension__ typedef __int128 Wide;

  /// floor((x + shift) / step) of a variable; the step is a power of two.
  struct Factor {
    std::uint8_t variable = kNoVariable;
    std::int64_t step = 1, shift = 0;

    Wide at(std::span<const std::int64_t> variables) const noexcept;
    bool operator==(const Factor&) const = default;
  };
  using Factors = std::array<Factor, kFactors>;

  static Wide product(const Factors& factors, std::span<const std::int64_t> variables) noexcept;
  static std::optional<SizeForm> proportional(std::span<const SizePoint> points,
                                              const Factors& factors) noexcept;
  static std::optional<SizeForm> affine(std::span<const SizePoint> points, const Factors& factors,
                                        bool whole) noexcept;
  bool is_exact(std::span<const SizePoint> points) const noexcept;

  // (product of factors * numerator) / denominator + constant
  Factors factors_;
  std::int64_t numerator_ = 0, denominator_ = 1, constant_ = 0;
};

}  // namespace memoir
