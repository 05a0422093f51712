// SPDX-License-Identifier: Apache-2.0
//
// Names of operators and paths of modules as small numbers, from 1 on: equal texts have the same one. Memory
// is bounded. Finding a name that is known takes no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace memoir::stacks {

class NameTable {
 public:
  static constexpr std::uint32_t kMost = 16'384;
  static constexpr std::uint32_t kAverage = 64;  // bytes of a name that there is room for

  /// False without memory. Not thread-safe.
  bool start() noexcept;
  /// 0 where there is no room for it, and for `spare` more names after it. A name longer than 255 bytes is
  /// cut.
  std::uint32_t find(std::string_view name, std::uint32_t spare = 0) noexcept;
  /// Of a number that find() gave.
  std::string_view operator[](std::uint32_t number) const noexcept;
  /// In a child of fork(): a lock that another thread held is free.
  void unlock_after_fork() noexcept { locked_.store(false, std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kLongest = 255;
  struct Entry {
    std::uint32_t begin;  // in texts_
    std::uint32_t length;
  };
  static constexpr std::size_t kSlots = 2 * kMost;

  Entry* entries_ = nullptr;  // by number - 1
  char* texts_ = nullptr;
  std::atomic<std::uint16_t>* slots_ = nullptr;  // numbers, by hash
  std::uint32_t count_ = 0, used_ = 0;           // entries, bytes of texts_
  std::atomic<bool> locked_{false};
};

}  // namespace memoir::stacks
