// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/size_form.h"

#include <functional>
#include <random>

#include "doctest/doctest.h"

namespace memoir {
namespace {

using Numbers = std::vector<std::int64_t>;
using Truth = std::function<std::int64_t(const Numbers&)>;

/// The form that is fitted to the truth at these points.
std::optional<SizeForm> fitted(const Truth& truth, const std::vector<Numbers>& points) {
  std::vector<SizePoint> seen;
  for (const Numbers& point : points) seen.push_back({point, static_cast<Size>(truth(point))});
  size_t tries = 1'000'000;
  return SizeForm::fit(seen, tries);
}

}  // namespace

TEST_CASE("what does not vary is constant, and what goes with a number goes with it") {
  const auto constant = fitted([](const Numbers&) { return 4096; }, {{10}, {11}, {500}});
  REQUIRE(constant.has_value());
  CHECK(constant->at(Numbers{7}) == 4096);
  const auto linear = fitted([](const Numbers& n) { return 48 * n[0]; }, {{10}, {11}});
  REQUIRE(linear.has_value());
  CHECK(linear->at(Numbers{1000}) == 48'000);
  const auto more = fitted([](const Numbers& n) { return 16 * (n[0] + 1); }, {{10}, {11}});
  CHECK(more->at(Numbers{99}) == 1600);
  const auto offset = fitted([](const Numbers& n) { return 16 * n[0] + 4000; }, {{10}, {11}, {17}});
  CHECK(offset->at(Numbers{100}) == 5600);
}

TEST_CASE("products of numbers: a batch of images, scores of a sequence with itself") {
  const auto image =
      fitted([](const Numbers& n) { return 4 * 3 * n[0] * n[1] * n[2]; }, {{1, 64, 48}, {2, 96, 50}});
  REQUIRE(image.has_value());
  CHECK(image->at(Numbers{5, 30, 20}) == 12 * 5 * 30 * 20);
  const auto square = fitted([](const Numbers& n) { return 8 * n[0] * n[0]; }, {{10}, {12}});
  CHECK(square->at(Numbers{100}) == 80'000);
}

TEST_CASE("strided operators round: learned from some neighbours") {
  for (const std::int64_t step : {2, 4, 8}) {
    const Truth truth = [step](const Numbers& n) {
      return 64 * ((n[0] + step - 1) / step) * ((n[1] + step - 1) / step);
    };
    std::vector<Numbers> points{{128, 96}, {129, 97}};
    int wrong = 0;
    for (std::int64_t side = 130; side < 200; ++side) {
      const Numbers point{side, side - 32};
      const auto form = fitted(truth, points);
      REQUIRE(form.has_value());
      if (form->at(point) == static_cast<Size>(truth(point))) continue;
      ++wrong;
      points.push_back(point);
    }
    CAPTURE(step);
    CHECK(wrong <= 6);
  }
}

TEST_CASE("no form is exact for noise, and none gives what is not a size") {
  std::mt19937_64 random(1);
  std::vector<Numbers> points;
  for (std::int64_t i = 0; i < 12; ++i) points.push_back({i + 100});
  const auto noise =
      fitted([&](const Numbers&) { return static_cast<std::int64_t>(1 + random() % 100'000); }, points);
  CHECK_FALSE(noise.has_value());
  const auto falls = fitted([](const Numbers& n) { return 10 * (n[0] - 5); }, {{10}, {20}});
  REQUIRE(falls.has_value());
  CHECK_FALSE(falls->at(Numbers{0}).has_value());
  CHECK_FALSE(falls->at(Numbers{std::int64_t{1} << 60}).has_value());
}

}  // namespace memoir
