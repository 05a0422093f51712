// SPDX-License-Identifier: Apache-2.0
//
// Rules by code address, for all threads, without locks: two places for an address, the older one gives way.
// An entry torn by two writers is not taken for one: its first word is the address, mixed with the rule in
// the second.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>

#include "memoir/base/metadata.h"
#include "memoir/process/stacks/unwind_rule.h"

namespace memoir::stacks {

class RuleCache {
 public:
  static constexpr unsigned kLog2 = 16;  // entries of 16 bytes: 1 MiB

  bool start() noexcept {
    if (entries_ == nullptr) entries_ = static_cast<Entry*>(map_metadata(sizeof(Entry) << kLog2));
    return entries_ != nullptr;
  }
  bool find(Address pc, UnwindRule& rule) const noexcept {
    const Entry* const entry = home(pc);
    for (unsigned i = 0; i < 2; ++i) {
      const std::uint64_t bits = entry[i].rule.load(std::memory_order_relaxed);
      if ((entry[i].mixed.load(std::memory_order_relaxed) ^ mix(bits)) == pc) [[likely]] {
        rule = std::bit_cast<UnwindRule>(bits);
        return true;
      }
    }
    return false;
  }
  void put(Address pc, UnwindRule rule) noexcept {
    Entry* const entry = home(pc);
    entry[1].mixed.store(entry[0].mixed.load(std::memory_order_relaxed), std::memory_order_relaxed);
    entry[1].rule.store(entry[0].rule.load(std::memory_order_relaxed), std::memory_order_relaxed);
    const auto bits = std::bit_cast<std::uint64_t>(rule);
    entry[0].mixed.store(pc ^ mix(bits), std::memory_order_relaxed);
    entry[0].rule.store(bits, std::memory_order_relaxed);
  }
  void forget() noexcept {
    for (std::size_t i = 0; i < std::size_t{1} << kLog2; ++i)
      entries_[i].mixed.store(0, std::memory_order_relaxed),
          entries_[i].rule.store(0, std::memory_order_relaxed);
  }

 private:
  struct Entry {
    std::atomic<std::uint64_t> mixed, rule;
  };
  static std::uint64_t mix(std::uint64_t bits) noexcept { return bits * 0x9e3779b97f4a7c15ull; }
  Entry* home(Address pc) const noexcept {
    return entries_ + ((pc * 0x9e3779b97f4a7c15ull) >> (64 - kLog2) & ~std::size_t{1});
  }

  Entry* entries_ = nullptr;
};

}  // namespace memoir::stacks
