// SPDX-License-Identifier: Apache-2.0
//
// What is known of each allocation context: a hash of the return address and the height of the stack picks
// one of 16,384 entries. Two contexts that share an entry share its class; that costs memory, never
// correctness.
//
//   allocation -> key_of(return address, height) -> row_of(key)           one byte, read on every allocation
//   sample     -> observe(key, outlived?) -> an average of the last outcomes -> the class, with hysteresis
//
// The bytes that allocations read are apart from the averages: while splitting is off they are all the home
// row, and the learner goes on unseen. Reading a class, or whether there is splitting, is safe on any thread;
// everything else needs the learner's lock.
#pragma once

#include <array>
#include <atomic>

#include "memoir/predict/lifetime_class.h"

namespace memoir {

using ContextKey = std::uint32_t;  // below ContextTable::kEntries

class alignas(64) ContextTable {
 public:
  static constexpr unsigned kBits = 14;
  static constexpr size_t kEntries = size_t{1} << kBits;

  static ContextKey key_of(std::uintptr_t return_address, std::uintptr_t height) noexcept {
    // Multiplying is as fast as a CRC instruction and needs none; the upper bits depend on all the lower
    // ones.
    const std::uint64_t mixed =
        (static_cast<std::uint64_t>(return_address) ^ (std::uint64_t{height} << 20)) * 0x9e3779b97f4a7c15ull;
    return static_cast<ContextKey>(mixed >> (64 - kBits));
  }

  /// The row that an allocation takes: the home row for short, the other one for long.
  size_t row_of(ContextKey key) const noexcept { return rows_[key].load(std::memory_order_relaxed); }

  /// What the samples say, also while splitting is off.
  LifetimeClass learned(ContextKey key) const noexcept { return entries_[key].learned; }
  /// One sample's outcome. Returns true when the class of its context changed.
  bool observe(ContextKey key, bool outlived) noexcept;
  /// What a model says of a context, before any sample of it: worth `samples` outcomes, of which this share
  /// (0 to 1) outlived. False where samples were there first, which know better.
  bool expect(ContextKey key, LifetimeClass predicted, double share, unsigned samples) noexcept;
  /// Whether allocations see what was learned.
  void set_split(bool split) noexcept;
  bool split() const noexcept { return split_.load(std::memory_order_relaxed); }
  /// Where short-lived objects go, and without splitting all: 0 or 1. A heap whose objects lie in row 1,
  /// since a model called them long-lived that are not, keeps that row for them: their holes are theirs to
  /// fill.
  void set_home(size_t row) noexcept;
  size_t home() const noexcept { return home_; }
  /// False: every allocation takes row 0, and none needs its key.
  bool has_rows() const noexcept { return has_rows_.load(std::memory_order_relaxed); }
  /// The mean over contexts with outcomes: of a context's, the share that came as it was learned before.
  /// Walks over all.
  double right_by_context() const noexcept;
  /// Contexts that are learned to be long-lived.
  size_t long_contexts() const noexcept { return long_contexts_; }

 private:
  // The average moves by 1/(n+1) for the n-th outcome and by 1/16 at least: old outcomes decay.
  struct Entry {
    std::uint16_t outlived = 0;  // share of outcomes, in 1/65535
    std::uint8_t outcomes = 0;   // seen, at most 15
    LifetimeClass learned = LifetimeClass::kShort;
    std::uint16_t observed = 0,
                  right = 0;  // outcomes, and those as learned before; halved where they are many
  };

  void set_learned(ContextKey key, LifetimeClass learned) noexcept;
  std::uint8_t row_for(LifetimeClass learned) const noexcept {
    return static_cast<std::uint8_t>((split() ? static_cast<size_t>(learned) : 0) ^ home_);
  }
  void fill_rows() noexcept;

  std::array<std::atomic<std::uint8_t>, kEntries> rows_{};
  std::array<Entry, kEntries> entries_{};
  // On a line of their own: every allocation looks at has_rows_, and what is written often stays away.
  alignas(64) size_t long_contexts_ = 0;
  size_t home_ = 0;
  std::atomic<bool> split_{false}, has_rows_{false};
};

}  // namespace memoir
