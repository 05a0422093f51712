// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "memoir/base/error.h"
#include "memoir/base/near_spelling.h"

namespace memoir {

namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::string near_spelling(std::string_view word, std::span<const std::string> known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string_view near = nearest_spelling(word, views);
  return near.empty() ? "" : "; did you mean '" + std::string(near) + "'?";
}

std::vector<Setting> split_settings(std::string_view text) {
  std::vector<Setting> settings;
  const auto add = [&](std::string_view part) {
    part = trimmed(part);
    if (part.empty()) return;
    const size_t at = part.find('=');
    const std::string key(trimmed(part.substr(0, at)));
    if (key.empty()) throw Error("setting '" + std::string(part) + "' has no name; write key=value");
    settings.push_back({key, at == part.npos ? "true" : std::string(trimmed(part.substr(at + 1)))});
  };
  size_t begin = 0, depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && depth > 0) --depth;
    if (text[i] != ',' || depth > 0) continue;
    add(text.substr(begin, i - begin));
    begin = i + 1;
  }
  add(text.substr(begin));
  return settings;
}

Size parse_bytes(std::string_view text, const std::string& where) {
  struct Unit {
    std::string_view name;
    Size bytes;
  };
  static constexpr std::array<Unit, 10> kUnits{{{"", 1},
                                                {"b", 1},
                                                {"k", kKiB},
                                                {"kib", kKiB},
                                                {"m", kMiB},
                                                {"mib", kMiB},
                                                {"g", kGiB},
                                                {"gib", kGiB},
                                                {"t", kGiB * 1024},
                                                {"tib", kGiB * 1024}}};
  const std::string_view digits =
      text.substr(0, std::min(text.find_first_not_of("0123456789."), text.size()));
  const std::string unit = lower(trimmed(text.substr(digits.size())));
  const auto* known =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == unit; });
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size() || known == kUnits.end())
    throw Error(where + ": '" + std::string(text) +
                "' is not a size: give bytes, or a number with KiB, MiB or GiB");
  Size whole = 0;
  const auto [after, overflow] = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
  if (after == digits.data() + digits.size()) {
    if (overflow != std::errc{} || whole > (Size{1} << 62) / known->bytes)
      throw Error(where + ": that is above 2^62 bytes");
    return whole * known->bytes;
  }
  const double bytes = value * static_cast<double>(known->bytes);
  if (bytes > 0x1p52 || bytes != std::floor(bytes))
    throw Error(where + ": '" + std::string(text) + "' is not a whole number of bytes");
  return static_cast<Size>(bytes);
}

Size parse_count(std::string_view text, const std::string& where) {
  Size value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size())
    throw Error(where + ": '" + std::string(text) + "' is not a whole number");
  return value;
}

double parse_fraction(std::string_view text, const std::string& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0)
    throw Error(where + ": '" + std::string(text) + "' is not a number of 0 or more");
  return value;
}

bool parse_switch(std::string_view text, const std::string& where) {
  const std::string word = lower(text);
  for (const char* const yes : {"true", "1", "yes", "on"}) {
    if (word == yes) return true;
  }
  for (const char* const no : {"false", "0", "no", "off"}) {
    if (word == no) return false;
  }
  static const std::array<std::string, 4> kWords{"true", "false", "yes", "no"};
  throw Error(where + ": '" + std::string(text) + "' is neither true nor false" +
              near_spelling(text, kWords));
}

std::string_view without_brackets(std::string_view text) {
  return text.starts_with('[') && text.ends_with(']') ? text.substr(1, text.size() - 2) : text;
}

std::string bytes_setting(Size value) {
  if (value != 0 && value % kGiB == 0) return std::to_string(value / kGiB) + "GiB";
  if (value != 0 && value % kMiB == 0) return std::to_string(value / kMiB) + "MiB";
  if (value != 0 && value % kKiB == 0) return std::to_string(value / kKiB) + "KiB";
  return std::to_string(value);
}

std::string detail::number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

}  // namespace memoir
