// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/predict/profile/byte_sampling.h"
#include "memoir/predict/profile/log_buckets.h"
#include "memoir/record/sample/sampler.h"

namespace memoir {

namespace {

constexpr Size kEvery = 512 * kKiB;
constexpr int kSeeds = 1000;

struct Estimated {
  double objects = 0, bytes = 0;
};

/// What the samples of one run say of the objects, `sizes` again and again, `rounds` times.
Estimated sample(std::uint64_t seed, const std::vector<Size>& sizes, int rounds) {
  byte_sampling::Random random(seed);
  SamplerThread thread;
  thread.remaining = byte_sampling::gap(random, kEvery);
  Estimated result;
  for (int round = 0; round < rounds; ++round) {
    for (const Size size : sizes) {
      if (!Sampler::due(thread, size)) continue;
      thread.remaining = byte_sampling::gap(random, kEvery);
      const std::uint64_t weight = byte_sampling::weight(size, kEvery);
      result.objects += static_cast<double>(weight) / byte_sampling::kOne;
      result.bytes += static_cast<double>(byte_sampling::weighted_bytes(size, weight));
    }
  }
  return result;
}

}  // namespace

TEST_CASE("sampling: counts and bytes are unbiased, from 16 bytes to 16 MB, over 1,000 seeds") {
  for (Size size = 16; size <= 16 * kMiB; size *= 4) {
    CAPTURE(size);
    const int objects = static_cast<int>(std::max<Size>(4 * kMiB / size, 4));
    const double p = -std::expm1(-static_cast<double>(size) / kEvery), n = objects;
    double mean = 0, square = 0;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const Estimated one = sample(static_cast<std::uint64_t>(seed), {size}, objects);
      mean += one.objects / kSeeds;
      square += one.objects * one.objects / kSeeds;
      CHECK(one.bytes == doctest::Approx(one.objects * static_cast<double>(size)).epsilon(1e-5));
    }
    const double variance = n * (1 - p) / p;  // of one run, as byte_sampling.h says
    CHECK(std::abs(mean - n) <= 4 * std::sqrt(variance / kSeeds) + 1e-4 * n);
    if (n * (1 - p) > 0.5) CHECK(square - mean * mean == doctest::Approx(variance).epsilon(0.2));
  }
}

TEST_CASE("sampling: sizes that alternate do not disturb each other") {
  const std::vector<Size> sizes{16, 100'000, 16, 48, 3'000'000, 16, 700};
  constexpr int kRounds = 20;
  double objects = 0, bytes = 0, exact_bytes = 0, variance = 0;
  for (const Size size : sizes) {
    const double p = -std::expm1(-static_cast<double>(size) / kEvery);
    exact_bytes += kRounds * static_cast<double>(size);
    variance += kRounds * (1 - p) / p;
  }
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Estimated one = sample(static_cast<std::uint64_t>(seed) + 7'000, sizes, kRounds);
    objects += one.objects / kSeeds;
    bytes += one.bytes / kSeeds;
  }
  CHECK(std::abs(objects - kRounds * 7) <= 4 * std::sqrt(variance / kSeeds));
  CHECK(bytes == doctest::Approx(exact_bytes).epsilon(0.01));
}

TEST_CASE("sampling: the share and the weight of a sample, to the last digits") {
  for (double x = 1e-9; x < 50; x *= 1.7)
    CHECK(byte_sampling::share_within(x) == doctest::Approx(-std::expm1(-x)).epsilon(1e-14));
  CHECK(byte_sampling::weight(16 * kMiB, 512 * kKiB) == byte_sampling::kOne);
  CHECK(byte_sampling::weight(1, byte_sampling::kMostEvery) / byte_sampling::kOne ==
        byte_sampling::kMostEvery);
  CHECK(byte_sampling::weighted_bytes(~Size{0}, ~std::uint64_t{0}) == ~std::uint64_t{0});
}

TEST_CASE("sampling: gaps are exponential") {
  byte_sampling::Random random(5);
  constexpr int kDraws = 200'000;
  double sum = 0, squares = 0;
  int over_one = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = byte_sampling::exponential(random);
    sum += x;
    squares += x * x;
    over_one += x > 1;
  }
  CHECK(sum / kDraws == doctest::Approx(1).epsilon(0.01));
  CHECK(squares / kDraws == doctest::Approx(2).epsilon(0.02));
  CHECK(static_cast<double>(over_one) / kDraws == doctest::Approx(std::exp(-1)).epsilon(0.01));
}

TEST_CASE("buckets: each value is in the one that begins at or below it; classes of ten begin one") {
  CHECK(log_buckets::of(0) == 0);
  CHECK(log_buckets::of(~std::uint64_t{0}) == log_buckets::kCount - 1);
  for (size_t i = 1; i < log_buckets::kCount; ++i) {
    CHECK(log_buckets::begin(i - 1) < log_buckets::begin(i));
    CHECK(log_buckets::of(log_buckets::begin(i)) == i);
    CHECK(log_buckets::of(log_buckets::begin(i) - 1) == i - 1);
  }
  for (std::uint64_t ten = 10; ten <= 1'000'000'000'000'000'000u / 10; ten *= 10)
    CHECK(log_buckets::begin(log_buckets::of(ten)) == ten);
}

}  // namespace memoir
