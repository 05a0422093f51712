// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/context_table.h"

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
  if (entry.outlived > kBecomesLong) entry.learned = LifetimeClass::kLong;
  if (entry.outlived < kBecomesShort) entry.learned = LifetimeClass::kShort;
  if (entry.learned == before) return false;
  entry.learned == LifetimeClass::kLong ? ++long_contexts_ : --long_contexts_;
  if (split()) rows_[key].store(static_cast<std::uint8_t>(entry.learned), std::memory_order_relaxed);
  return true;
}

void ContextTable::set_split(bool split) noexcept {
  if (split == this->split()) return;
  for (size_t key = 0; key < kEntries; ++key) {
    rows_[key].store(split ? static_cast<std::uint8_t>(entries_[key].learned) : 0, std::memory_order_relaxed);
  }
  split_.store(split, std::memory_order_relaxed);
}

}  // namespace memoir
