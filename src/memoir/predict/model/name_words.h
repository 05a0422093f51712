// SPDX-License-Identifier: Apache-2.0
//
// The words that a plain name consists of: what is left of it when somebody renames functions.
// docs/reference/formats-model.md specifies them.
//
//   leveldb::DBImpl::GetFromMemTable2
//   parts   leveldb  DBImpl  GetFromMemTable2
//   words   leveldb  db impl  get from mem table
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memoir/base/site.h"

namespace memoir {

inline constexpr size_t kMostNameWords = 16;  // of a name; likewise parts

/// The hash of a plain name, a part or a word. `key`: of a private model, else 0.
inline constexpr std::uint64_t model_hash(std::string_view text, std::uint64_t key) noexcept {
  const std::uint64_t hash = hash_name(text);
  return key == 0 ? hash : detail::mix(hash ^ key);
}
inline constexpr std::uint32_t word_hash(std::string_view text, std::uint64_t key) noexcept {
  return static_cast<std::uint32_t>(model_hash(text, key) >> 32);
}

namespace detail {
inline constexpr size_t kMostPart = 64, kMostWord = 32;
inline constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
inline constexpr bool is_capital(char c) noexcept { return c >= 'A' && c <= 'Z'; }
inline constexpr bool is_small(char c) noexcept {
  return (c >= 'a' && c <= 'z') || static_cast<unsigned char>(c) >= 0x80;
}
}  // namespace detail

/// Calls visit(part) for each part of a plain name, kMostNameWords at most.
template <class Visit>
void for_each_part(std::string_view plain, Visit visit) noexcept {
  size_t count = 0;
  for (size_t at = 0; at < plain.size() && count < kMostNameWords;) {
    size_t end = at;
    while (end < plain.size() && (detail::is_digit(plain[end]) || detail::is_capital(plain[end]) ||
                                  detail::is_small(plain[end]) || plain[end] == '_'))
      ++end;
    if (end == at) {
      ++at;
      continue;
    }
    const size_t size = end - at < detail::kMostPart ? end - at : detail::kMostPart;
    visit(std::string_view(plain.data() + at, size));
    ++count;
    at = end;
  }
}

/// Calls visit(word) for each word of a plain name, in small letters, kMostNameWords at most.
template <class Visit>
void for_each_word(std::string_view plain, Visit visit) noexcept {
  using detail::is_capital;
  using detail::is_digit;
  using detail::is_small;
  size_t count = 0;
  for (size_t at = 0; at < plain.size() && count < kMostNameWords;) {
    char word[detail::kMostWord];
    size_t size = 0;
    bool letters = false;
    const size_t begin = at;
    for (; at < plain.size(); ++at) {
      const char c = plain[at];
      const bool any = is_digit(c) || is_capital(c) || is_small(c);
      if (!any) break;
      if (at > begin) {
        const char before = plain[at - 1];
        if (is_digit(c) != is_digit(before)) break;
        if (is_capital(c) && is_small(before)) break;
        if (is_capital(c) && is_capital(before) && at + 1 < plain.size() && is_small(plain[at + 1])) break;
      }
      letters = letters || !is_digit(c);
      if (size < detail::kMostWord) word[size++] = is_capital(c) ? static_cast<char>(c + ('a' - 'A')) : c;
    }
    if (at == begin) {
      ++at;
      continue;
    }
    if (size < 2 || !letters) continue;
    visit(std::string_view(word, size));
    ++count;
  }
}

}  // namespace memoir
