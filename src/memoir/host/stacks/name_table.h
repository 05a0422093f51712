// SPDX-License-Identifier: Apache-2.0
//
// Names of operators as small numbers, from 1 on: equal texts have the same one. Memory is fixed. Finding a
// name that is known takes no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace memoir::stacks {

class NameTable {
 public:
  static constexpr std::uint32_t kMost = 4096;

  /// False without memory. Not thread-safe.
  bool start() noexcept;
  /// 0 where there is no room. A name longer than 255 bytes is cut.
  std::uint32_t find(std::string_view name) noexcept;
  /// Of a number that find() gave.
  std::string_view operator[](std::uint32_t number) const noexcept;
  /// In a child of fork(): a lock that another thread held is free.
  void unlock_after_fork() noexcept { locked_.store(false, std::memory_order_relaxed); }

 private:
  struct Entry {
    std::uint32_t number;
    std::uint8_t length;
    char text[255];
  };
  static constexpr std::size_t kSlots = 2 * kMost;

  Entry* entries_ = nullptr;                     // by number - 1
  std::atomic<std::uint16_t>* slots_ = nullptr;  // numbers, by hash
  std::uint32_t count_ = 0;
  std::atomic<bool> locked_{false};
};

}  // namespace memoir::stacks
