// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/context_table.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr std::uint16_t kOne = 65535;
// A context becomes long-lived above, short-lived below; in between it stays what it is.
constexpr std::uint16_t kBecomesLong = kOne / 100 * 60;
constexpr std::uint16_t kBecomesShort = kOne / 100 * 40;
constexpr unsigned kMostOutcomes = 15;
}  // namespace

bool ContextTable::observe(ContextKey key, bool outlived) noexcept {
  Entry& entry = entries_[key];
  const int weight = entry.outcomes + 1;
  const int target = outlived ? kOne : 0;
  entry.outlived = static_cast<std::uint16_t>(entry.outlived + (target - entry.outlived) / weight);
  if (entry.outcomes < kMostOutcomes) ++entry.outcomes;
  const LifetimeClass before = entry.learned;
  if (entry.observed == kOne) {
    entry.observed /= 2;
    entry.right /= 2;
  }
  ++entry.observed;
  entry.right = static_cast<std::uint16_t>(entry.right + (outlived == (before == LifetimeClass::kLong)));
  if (entry.outlived > kBecomesLong) set_learned(key, LifetimeClass::kLong);
  if (entry.outlived < kBecomesShort) set_learned(key, LifetimeClass::kShort);
  return entry.learned != before;
}

bool ContextTable::expect(ContextKey key, LifetimeClass predicted, double share, unsigned samples) noexcept {
  Entry& entry = entries_[key];
  if (entry.outcomes != 0) return false;
  entry.outlived = static_cast<std::uint16_t>(std::clamp(share, 0.0, 1.0) * kOne);
  entry.outcomes = static_cast<std::uint8_t>(std::min(samples, kMostOutcomes));
  set_learned(key, predicted);
  return true;
}

double ContextTable::right_by_context() const noexcept {
  double sum = 0;
  size_t contexts = 0;
  for (const Entry& entry : entries_) {
    if (entry.observed == 0) continue;
    sum += static_cast<double>(entry.right) / entry.observed;
    ++contexts;
  }
  return contexts == 0 ? 0 : sum / static_cast<double>(contexts);
}

void ContextTable::set_learned(ContextKey key, LifetimeClass learned) noexcept {
  Entry& entry = entries_[key];
  if (entry.learned == learned) return;
  entry.learned = learned;
  learned == LifetimeClass::kLong ? ++long_contexts_ : --long_contexts_;
  if (split()) rows_[key].store(row_for(learned), std::memory_order_relaxed);
}

void ContextTable::set_split(bool split) noexcept {
  if (split == this->split()) return;
  split_.store(split, std::memory_order_relaxed);
  fill_rows();
}

void ContextTable::set_home(size_t row) noexcept {
  if (row == home_) return;
  home_ = row;
  fill_rows();
}

void ContextTable::fill_rows() noexcept {
  for (size_t key = 0; key < kEntries; ++key)
    rows_[key].store(row_for(entries_[key].learned), std::memory_order_relaxed);
  has_rows_.store(split() || home_ != 0, std::memory_order_relaxed);
}

}  // namespace memoir
