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
  char text[18] = "0x";
  return std::string(text, std::to_chars(text + 2, text + sizeof text, value, 16).ptr);
}

}  // namespace memoir
