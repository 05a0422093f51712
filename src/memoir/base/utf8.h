// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace memoir {

/// Bytes of the character that `text` begins with; 0 when it begins with no valid UTF-8 (RFC 3629).
inline constexpr std::size_t utf8_size(std::string_view text) noexcept {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return size;
}

/// The text, with U+FFFD for every byte that is not UTF-8.
inline std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = utf8_size(text);
    if (size == 0) result += "\xef\xbf\xbd";
    else result += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return result;
}

/// The text as a message can show it: with \xNN for every byte that is not UTF-8, and for NUL and its like,
/// which would end or hide the rest.
inline std::string readable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = utf8_size(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (size == 0 || first == 0x7f || (first < 0x20 && first != '\n' && first != '\t')) {
      result.append("\\x").append(1, kDigits[first >> 4]).append(1, kDigits[first & 15]);
      text.remove_prefix(1);
    } else {
      result += text.substr(0, size);
      text.remove_prefix(size);
    }
  }
  return result;
}

}  // namespace memoir
