// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/size_form.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

namespace memoir {

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 56;  // bytes of an allocation
constexpr std::int64_t kSteps[] = {1, 2, 4, 8, 16, 32, 64};
constexpr std::int64_t kNearShifts = 8;  // what the kernels of a few operators take off an edge, or add

/// All products of up to three variables, the shortest first: {0}, {1}, {0, 0}, {0, 1}, ...
std::vector<std::vector<std::uint8_t>> products_of(size_t variables) {
  std::vector<std::vector<std::uint8_t>> all, last{{}};
  for (size_t length = 1; length <= SizeForm::kFactors; ++length) {
    std::vector<std::vector<std::uint8_t>> longer;
    for (const auto& begin : last) {
      for (size_t v = begin.empty() ? 0 : begin.back(); v < variables; ++v) {
        longer.push_back(begin);
        longer.back().push_back(static_cast<std::uint8_t>(v));
      }
    }
    all.insert(all.end(), longer.begin(), longer.end());
    last = std::move(longer);
  }
  return all;
}

}  // namespace

SizeForm::Wide SizeForm::Factor::at(std::span<const std::int64_t> variables) const noexcept {
  const int log2_step = std::countr_zero(static_cast<std::uint64_t>(step));
  std::int64_t x = 0;
  if (__builtin_add_overflow(variables[variable], shift, &x)) [[unlikely]]
    return (Wide{variables[variable]} + shift) >> log2_step;
  return x >> log2_step;  // rounds down
}

SizeForm::Wide SizeForm::product(const Factors& factors, std::span<const std::int64_t> variables) noexcept {
  Wide result = 1;
  for (const Factor& factor : factors) {
    if (factor.variable == kNoVariable) continue;
    result *= factor.at(variables);
    if (result > Wide{1} << 80 || result < -(Wide{1} << 80)) return 0;
  }
  return result;
}

std::optional<Size> SizeForm::at(std::span<const std::int64_t> variables) const noexcept {
  const Wide scaled = product(factors_, variables) * numerator_;
  const Wide rounded = scaled >= 0 ? (scaled + denominator_ - 1) / denominator_ : scaled / denominator_;
  const Wide size = rounded + constant_;
  if (size < 0 || size > kMost) return std::nullopt;
  return static_cast<Size>(size);
}

bool SizeForm::is_exact(std::span<const SizePoint> points) const noexcept {
  return std::all_of(points.begin(), points.end(),
                     [this](const SizePoint& point) { return at(point.variables) == point.size; });
}

std::optional<SizeForm> SizeForm::proportional(std::span<const SizePoint> points,
                                               const Factors& factors) noexcept {
  const Wide first = product(factors, points[0].variables);
  if (first <= 0 || first > kMost) return std::nullopt;
  for (const SizePoint& point : points.subspan(1)) {  // the same size per product
    if (Wide{static_cast<std::int64_t>(point.size)} * first !=
        Wide{static_cast<std::int64_t>(points[0].size)} * product(factors, point.variables)) {
      return std::nullopt;
    }
  }
  SizeForm form;
  form.factors_ = factors;
  const auto size = static_cast<std::int64_t>(points[0].size), per = static_cast<std::int64_t>(first);
  const std::int64_t common = std::gcd(size, per);
  form.numerator_ = size / common;
  form.denominator_ = per / common;
  return form;
}

std::optional<SizeForm> SizeForm::affine(std::span<const SizePoint> points, const Factors& factors,
                                         bool whole) noexcept {
  const Wide first = product(factors, points[0].variables);
  for (const SizePoint& point : points.subspan(1)) {
    const Wide run = product(factors, point.variables) - first;
    if (run == 0) continue;
    const Wide rise = static_cast<Wide>(point.size) - static_cast<Wide>(points[0].size);
    if (rise > kMost || rise < -kMost || run > kMost || run < -kMost || (rise < 0) != (run < 0))
      return std::nullopt;
    auto numerator = static_cast<std::int64_t>(rise < 0 ? -rise : rise);
    auto denominator = static_cast<std::int64_t>(run < 0 ? -run : run);
    const std::int64_t common = std::gcd(numerator, denominator);
    numerator /= common;
    denominator /= common;
    if (whole && denominator != 1) return std::nullopt;
    SizeForm form;
    form.factors_ = factors;
    form.numerator_ = numerator;
    form.denominator_ = denominator;
    const Wide constant = static_cast<Wide>(points[0].size) - first * numerator / denominator;
    if (constant > kMost || constant < -kMost) return std::nullopt;
    form.constant_ = static_cast<std::int64_t>(constant);
    if (form.is_exact(points)) return form;
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<SizeForm> SizeForm::fit(std::span<const SizePoint> points, size_t& tries) {
  SizeForm constant;
  constant.constant_ = static_cast<std::int64_t>(points[0].size);
  if (points[0].size > static_cast<Size>(kMost)) return std::nullopt;
  if (constant.is_exact(points)) return constant;
  const size_t variables = points[0].variables.size();
  const auto products = products_of(std::min<size_t>(variables, 4));
  const auto factors_of = [](const std::vector<std::uint8_t>& product, std::int64_t step, std::int64_t shift,
                             size_t plain) {
    Factors factors;
    for (size_t i = 0; i < product.size(); ++i) {
      factors[i] = i == plain ? Factor{product[i]} : Factor{product[i], step, shift};
    }
    return factors;
  };
  // As many factors have the same step as there are; but one may be plain: a batch, next to height and width.
  const auto divided = [&](std::int64_t step, std::int64_t shift) -> std::optional<SizeForm> {
    for (const auto& product : products) {
      for (size_t plain = 0; plain <= product.size(); ++plain) {
        if (product.size() == 1 && plain == 0) continue;
        if (tries == 0) return std::nullopt;
        --tries;
        if (const auto form = proportional(points, factors_of(product, step, shift, plain))) return form;
      }
    }
    return std::nullopt;
  };
  if (const auto form = divided(1, 0)) return form;
  for (std::int64_t shift = 1; shift <= kNearShifts; ++shift) {
    if (const auto form = divided(1, shift)) return form;
    if (const auto form = divided(1, -shift)) return form;
  }
  for (const std::int64_t step : kSteps) {
    if (const auto form = divided(step, step - 1)) return form;  // rounded up
    if (const auto form = divided(step, 0)) return form;         // down
  }
  for (const std::int64_t step : kSteps) {
    for (std::int64_t shift = 1; shift <= 3 * step + kNearShifts; ++shift) {
      if (const auto form = divided(step, shift)) return form;
      if (const auto form = divided(step, -shift)) return form;
    }
  }
  for (const bool whole : {true, false}) {
    for (const auto& product : products) {
      if (tries == 0) return std::nullopt;
      --tries;
      if (const auto form = affine(points, factors_of(product, 1, 0, product.size()), whole)) return form;
    }
  }
  return std::nullopt;
}

}  // namespace memoir
