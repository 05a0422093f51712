// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/exact/portfolio.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "memoir/plan/random.h"

namespace memoir {
namespace {

constexpr std::uint64_t kPlacementsPerBuffer = 4;
constexpr std::uint64_t kLeastNodes = 1000;
constexpr double kWorthTying = 0.1;  // of the buffers are tied to others
constexpr double kMuchTied = 0.3;    // then the first attempt is a tied one

// Which of two candidates comes first may depend on the fullness of its sections, its length, its area, and
// for programs that run in one direction, its end; minimalloc (ASPLOS '23) has all of these.
constexpr std::array<std::string_view, 5> kKeys{"TWA", "WAT", "TAW", "LW", "UW"};
constexpr std::array<unsigned, 8> kDrawn{0, 0, 0, 0, 1, 1, 2, 3};
constexpr std::array<unsigned, 8> kDrawnTied{1, 1, 1, 1, 1, 1, 0, 0};
constexpr double kLeastWarp = 0.1, kMostWarp = 0.5;
constexpr std::uint64_t kMostlyPlain = 96;  // attempts
constexpr std::uint64_t kAlike = 6;  // plain attempts with one limit: they bear fruit early or not at all

std::uint64_t unit_of(std::size_t buffers) {
  return std::max<std::uint64_t>(kLeastNodes, kPlacementsPerBuffer * buffers);
}

}  // namespace

std::uint64_t luby(std::uint64_t k) {
  while (!std::has_single_bit(k + 1)) k -= std::bit_floor(k + 1) - 1;
  return (k + 1) / 2;
}

Portfolio::Portfolio(std::size_t buffers, std::size_t bundles, std::uint64_t seed)
    : unit_(unit_of(buffers)),
      tied_unit_(unit_of(bundles)),
      tied_(1.0 - static_cast<double>(bundles) / static_cast<double>(buffers)),
      seed_(seed) {}

bool Portfolio::worth_tying() const { return tied_ >= kWorthTying; }

std::vector<Attempt> Portfolio::opening() const {
  std::vector<Attempt> attempts;
  const Attempt tied{tied_unit_, {kKeys[0]}, 1.0, seed_};
  if (tied_ >= kMuchTied) attempts.push_back(tied);
  attempts.push_back({unit_, {kKeys[0]}});
  if (worth_tying() && tied_ < kMuchTied) attempts.push_back(tied);
  for (std::size_t k = 1; k < kKeys.size(); ++k) attempts.push_back({unit_, {kKeys[k]}});
  return attempts;
}

std::vector<Attempt> Portfolio::next(std::size_t count) {
  std::vector<Attempt> attempts;
  for (std::size_t k = 0; k < count; ++k) {
    const std::uint64_t turn = restarts_++;
    // At first they take turns with two plain ones; what resists for long is often tied up somewhere.
    const bool tied = worth_tying() && (turn < kMostlyPlain ? turn % 3 == 2 : turn % 4 != 0);
    const std::uint64_t factor =
        tied ? (turn < kMostlyPlain ? 1 : 4) * luby(turn / 3 + 1) : luby(turn / kAlike + 1);
    const std::uint64_t seed = seed_ * 0x9e3779b97f4a7c15ull + turn + 1;
    Random random(seed);
    unsigned drawn = (tied ? kDrawnTied : kDrawn)[random.below(kDrawn.size())];
    if (drawn == 3 && random.below(2) == 0) drawn = 4;
    const double warp = kLeastWarp + (kMostWarp - kLeastWarp) * random.uniform();
    Attempt attempt{(tied ? tied_unit_ : unit_) * factor, {kKeys[drawn], warp, seed}};
    if (tied) {
      attempt.keep = random.below(3) == 0 ? 0.7 : 0.95;
      attempt.seed = seed;
    }
    attempts.push_back(attempt);
  }
  return attempts;
}

}  // namespace memoir
