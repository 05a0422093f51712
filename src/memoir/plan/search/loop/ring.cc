// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/loop/ring.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "memoir/plan/index/fit_index.h"

namespace memoir {
namespace {

constexpr unsigned kFits = 24;
constexpr std::uint64_t kPatienceOfRing = 60;  // placements of each buffer
constexpr double kNoise = 0.3;                 // of a fit's order, in nats

}  // namespace

Ring::Ring(std::vector<Size> sizes, std::vector<std::uint32_t> lives,
           const std::vector<std::pair<std::uint32_t, std::uint32_t>>& meet, Size unit, std::uint64_t seed)
    : sizes_(std::move(sizes)),
      lives_(std::move(lives)),
      unit_(unit),
      begin_(sizes_.size() + 1),
      other_(2 * meet.size()),
      random_(seed),
      press_(Squeeze(sizes_, meet, unit, seed), unit, *std::max_element(sizes_.begin(), sizes_.end()),
             kPatienceOfRing * sizes_.size()) {
  for (const auto& [a, b] : meet) ++begin_[a + 1], ++begin_[b + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  std::vector<std::uint32_t> fill(begin_.begin(), begin_.end() - 1);
  for (const auto& [a, b] : meet) other_[fill[a]++] = b, other_[fill[b]++] = a;
}

double Ring::met() const {
  return static_cast<double>(other_.size()) / static_cast<double>(std::max<std::size_t>(1, sizes_.size()));
}

// The largest, the longest, those that take the most of both first, then the same with noise.
std::vector<std::uint32_t> Ring::order_of(unsigned turn) {
  std::vector<double> key(sizes_.size());
  for (std::size_t i = 0; i < key.size(); ++i) {
    const double size = static_cast<double>(sizes_[i]), life = lives_[i];
    key[i] = turn % 3 == 0 ? size * life : turn % 3 == 1 ? size : life;
    if (turn >= 3) key[i] *= std::exp(kNoise * random_.normal());
  }
  std::vector<std::uint32_t> order(key.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key[a] > key[b]; });
  return order;
}

void Ring::fit(unsigned turn) {
  std::vector<Offset> offsets(sizes_.size(), kNoOffset);
  std::vector<std::pair<Offset, Offset>> taken;
  for (const std::uint32_t i : order_of(turn)) {
    taken.clear();
    for (std::uint32_t k = begin_[i]; k < begin_[i + 1]; ++k) {
      const std::uint32_t j = other_[k];
      if (offsets[j] != kNoOffset) taken.emplace_back(offsets[j], offsets[j] + sizes_[j]);
    }
    offsets[i] = turn % 2 == 0 ? lowest_gap(taken, sizes_[i], unit_) : tightest_gap(taken, sizes_[i], unit_);
  }
  keep(std::move(offsets));
}

// In the order of their offsets, each onto those below it: never higher.
void Ring::push_down(std::vector<Offset>& offsets) const {
  std::vector<std::uint32_t> order(offsets.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return offsets[a] < offsets[b]; });
  std::vector<bool> placed(offsets.size());
  for (const std::uint32_t i : order) {
    Offset at = 0;
    for (std::uint32_t k = begin_[i]; k < begin_[i + 1]; ++k) {
      if (placed[other_[k]]) at = std::max(at, offsets[other_[k]] + sizes_[other_[k]]);
    }
    offsets[i] = at;
    placed[i] = true;
  }
}

Size Ring::height_of(const std::vector<Offset>& offsets) const {
  Size height = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) height = std::max(height, offsets[i] + sizes_[i]);
  return height;
}

void Ring::keep(std::vector<Offset> offsets) {
  const Size height = height_of(offsets);
  if (height >= height_) return;
  height_ = height;
  offsets_ = std::move(offsets);
  press_.forget();
}

void Ring::cut_open(const std::vector<std::uint32_t>& begins, std::uint32_t around) {
  Problem problem;
  Stretches stretches;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const std::uint32_t begin = begins[i] % around, end = begin + lives_[i];
    Buffer buffer{{begin, std::min(end, around)}, sizes_[i], unit_};
    std::vector<Lifetime> lifetimes{buffer.lifetime};
    if (end > around) {
      lifetimes.insert(lifetimes.begin(), Lifetime{0, std::min(end - around, begin)});
      if (lifetimes.front().end == 0) lifetimes.erase(lifetimes.begin());
      buffer.lifetime = {0, around};
    }
    problem.push_back(buffer);
    stretches.add(buffer, lifetimes);
  }
  opened_ = std::make_unique<ExactTurns>(std::move(problem), std::move(stretches), random_.next());
}

void Ring::improve(Size target, std::uint64_t moves, const SearchLimits& limits, std::uint64_t& work) {
  const std::uint64_t last = work + moves;
  while (fits_ < kFits && height_ > target && (fits_ == 0 || (work < last && !is_over(limits)))) {
    fit(fits_++);
    work += sizes_.size();
  }
  while (opened_ && height_ > target) {
    std::vector<Offset> found = opened_->run(height_, target, work + moves / 2, limits, work);
    if (found.empty()) break;
    keep(std::move(found));
  }
  press_.run(offsets_, height_, std::max(target, bound()), last, limits, work,
             [&](std::vector<Offset>& found) {
               push_down(found);
               return height_of(found);
             });
}

}  // namespace memoir
