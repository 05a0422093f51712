// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/malloc_options.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

extern char** environ;

namespace memoir::malloc_ {

namespace {

constexpr std::string_view kVariable = "MEMOIR_MALLOC";

// string_view::substr can throw, and with it libstdc++ would come in.
std::string_view head(std::string_view text, size_t length) noexcept {
  return {text.data(), length < text.size() ? length : text.size()};
}
std::string_view tail(std::string_view text, size_t from) noexcept {
  return from < text.size() ? std::string_view{text.data() + from, text.size() - from} : std::string_view{};
}

/// Digits, a point, digits. False for anything else, and for what does not fit.
bool read_number(std::string_view text, double& value) noexcept {
  double result = 0, place = 1;
  bool digits = false, point = false;
  for (const char c : text) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') return false;
    digits = true;
    if (point) result += (c - '0') * (place /= 10);
    else result = result * 10 + (c - '0');
  }
  value = result;
  return digits && result < 0x1p52;
}

bool read(std::string_view text, bool& value) noexcept {
  if (text == "1" || text == "true" || text == "yes" || text == "on") return value = true, true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return value = false, true;
  return false;
}
bool read(std::string_view text, double& value) noexcept {
  double result = 0;
  if (!read_number(text, result) || result <= 0 || result > 1e6) return false;
  value = result;
  return true;
}
bool read(std::string_view text, Size& value) noexcept {
  if (text == "unlimited") return value = ~Size{0}, true;
  size_t end = 0;
  while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || text[end] == '.')) ++end;
  std::string_view unit = tail(text, end);
  if (unit.ends_with("iB") || unit.ends_with("ib")) unit.remove_suffix(2);
  Size factor = 1;
  if (!unit.empty()) {
    static constexpr std::string_view kUnits = "kKmMgGtT";
    const size_t at = kUnits.find(unit[0]);
    if (unit.size() != 1 || at == kUnits.npos) return false;
    factor = Size{1} << (10 * (at / 2 + 1));
  }
  double result = 0;
  if (!read_number(head(text, end), result) || result * static_cast<double>(factor) >= 0x1p60) return false;
  value = static_cast<Size>(result * static_cast<double>(factor));
  return true;
}

bool read(std::string_view text, PathText& value) noexcept {
  if (text == "none") text = {};
  if (text.size() >= sizeof value.text) return false;
  for (size_t i = 0; i < text.size(); ++i) value.text[i] = text[i];
  value.text[text.size()] = '\0';
  return true;
}

const char* must_be(bool) noexcept { return "must be 1 or 0"; }
const char* must_be(double) noexcept { return "must be a number above 0, at most 1000000"; }
const char* must_be(Size) noexcept { return "must be bytes, such as 64KiB, or unlimited"; }
const char* must_be(const PathText&) noexcept { return "must be a path of fewer than 1,024 letters"; }

template <class Visit>
void for_each_setting(Visit visit) noexcept {
  std::apply([&](const auto&... field) { (visit(field), ...); }, MallocOptions::fields());
}

void complain(std::string_view part, const char* what) noexcept {
  char line[256];
  const int length = std::snprintf(
      line, sizeof line, "memoir: MEMOIR_MALLOC: '%.*s' %s; MEMOIR_MALLOC=help lists the settings\n",
      static_cast<int>(part.size() < 100 ? part.size() : 100), part.data(), what);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, static_cast<size_t>(length));
}

void set(MallocOptions& options, std::string_view part) noexcept {
  const size_t equals = part.find('=');
  const std::string_view key = head(part, equals);
  const std::string_view value = equals == part.npos ? "true" : tail(part, equals + 1);
  bool known = false;
  for_each_setting([&](const auto& field) {
    if (field.name != key) return;
    known = true;
    if (!read(value, options.*field.member)) complain(part, must_be(options.*field.member));
  });
  if (!known) complain(part, "is not a setting");
}

void print_value(char* out, size_t room, bool value) noexcept {
  std::snprintf(out, room, value ? "true" : "false");
}
void print_value(char* out, size_t room, const PathText& value) noexcept {
  std::snprintf(out, room, "%.*s", static_cast<int>(room) - 1, value.text[0] == '\0' ? "none" : value.text);
}
void print_value(char* out, size_t room, double value) noexcept { std::snprintf(out, room, "%g", value); }
void print_value(char* out, size_t room, Size value) noexcept {
  if (value == ~Size{0}) {
    std::snprintf(out, room, "unlimited");
    return;
  }
  const char* const unit = value % kMiB == 0 ? "MiB" : value % kKiB == 0 ? "KiB" : "";
  const Size factor = value % kMiB == 0 ? kMiB : value % kKiB == 0 ? kKiB : 1;
  std::snprintf(out, room, "%llu%s", static_cast<unsigned long long>(value / factor), unit);
}

}  // namespace

MallocOptions read_malloc_options() noexcept {
  MallocOptions options;
  std::string_view text;
  // Not getenv: programs replace it, and some of them call malloc there.
  char** const all = environ != nullptr ? environ : environment_before_libc;
  for (char** variable = ::getauxval(AT_SECURE) != 0 ? nullptr : all;
       variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view entry = *variable;
    if (entry.starts_with(kVariable) && entry.size() > kVariable.size() && entry[kVariable.size()] == '=')
      text = tail(entry, kVariable.size() + 1);
  }
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (const std::string_view part = head(text, comma); !part.empty()) set(options, part);
    text = comma == text.npos ? std::string_view{} : tail(text, comma + 1);
  }
  if (options.help) {
    char list[4096];
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, list, describe_malloc_options(list, sizeof list));
  }
  return options;
}

size_t describe_malloc_options(char* out, size_t room) noexcept {
  static const MallocOptions initial;
  size_t length = 0;
  for_each_setting([&](const auto& field) {
    char value[32];
    print_value(value, sizeof value, initial.*field.member);
    const std::string_view unit = unit_name(field.unit);
    const int written =
        std::snprintf(out + length, room - length, "%.*s\t%.*s\t%s\t%.*s\n",
                      static_cast<int>(field.name.size()), field.name.data(), static_cast<int>(unit.size()),
                      unit.data(), value, static_cast<int>(field.help.size()), field.help.data());
    if (written > 0 && length + static_cast<size_t>(written) < room) length += static_cast<size_t>(written);
  });
  return length;
}

}  // namespace memoir::malloc_
