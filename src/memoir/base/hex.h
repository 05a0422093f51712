// SPDX-License-Identifier: Apache-2.0
//
// Addresses and handles as people read them.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>

namespace memoir {

/// "0x" and the digits, without leading zeros.
inline std::string hex(std::uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  return "0x" + std::string(digits, end);
}

}  // namespace memoir
