// SPDX-License-Identifier: Apache-2.0
//
// Settings of a policy as people write them, `key=value`, put into its options struct by the struct's own
// table of fields (base/option.h): no option is named a second time here.
//
//   "largest=20MiB,strict"  ->  {largest, 20MiB} {strict, true}  ->  PoolOptions{20 * kMiB, true}
//
// Everything here throws Error for what a person got wrong, with near spellings: call it when a policy is
// chosen, never inside malloc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "memoir/base/option.h"

namespace memoir {

struct Setting {
  std::string key;
  std::string value;
};

/// "key=value,key=value"; a key alone means true, nothing means no settings. Commas in brackets belong to the
/// value.
std::vector<Setting> split_settings(std::string_view text);

/// What one field takes, for help and for the docs.
struct SettingInfo {
  std::string name;
  std::string unit;     // base/option.h: "bytes", "count", "flag", ...
  std::string initial;  // as it would be written
  std::string help;
};

/// The value of a setting. Bytes are whole numbers, or numbers with KiB, MiB or GiB that come to whole bytes;
/// the messages begin with `where`.
Size parse_bytes(std::string_view text, const std::string& where);
Size parse_count(std::string_view text, const std::string& where);
double parse_fraction(std::string_view text, const std::string& where);
bool parse_switch(std::string_view text, const std::string& where);
/// What stands in brackets, in which commas belong to the value; the whole text where there are none.
std::string_view without_brackets(std::string_view text);
/// "64KiB", when it is a whole number of the unit.
std::string bytes_setting(Size value);

/// "; did you mean 'span'?", or "" when nothing is near (base/near_spelling.h).
std::string near_spelling(std::string_view word, std::span<const std::string> known);

namespace detail {

template <class Options, class Visit>
void for_each_field(Visit visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, Options::fields());
}

inline constexpr std::string_view kUnlimited = "unlimited";

std::string number_text(double value);

/// `Base` is Options or what it is derived from.
template <class Options, class Base, class Value>
void set_field(Options& options, const OptionField<Base, Value>& field, std::string_view text,
               const std::string& where) {
  if constexpr (std::is_same_v<Value, bool>) {
    options.*field.member = parse_switch(text, where);
  } else if constexpr (std::is_floating_point_v<Value>) {
    options.*field.member = parse_fraction(text, where);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    options.*field.member = without_brackets(text);
  } else {
    static_assert(std::is_same_v<Value, Size>, "base/option.h: Size, double, bool or std::string");
    options.*field.member = text == kUnlimited           ? ~Size{0}
                            : field.unit == Unit::kBytes ? parse_bytes(text, where)
                                                         : parse_count(text, where);
  }
}

template <class Options, class Base, class Value>
SettingInfo info_of(const OptionField<Base, Value>& field) {
  const Options initial{};
  const Value& value = initial.*field.member;
  SettingInfo info{std::string(field.name), std::string(unit_name(field.unit)), "", std::string(field.help)};
  if constexpr (std::is_same_v<Value, bool>) {
    info.initial = value ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<Value>) {
    info.initial = number_text(value);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    info.initial = value;
  } else if (field.unit == Unit::kBytes) {
    info.initial = value == ~Size{0} ? std::string(kUnlimited) : bytes_setting(value);
  } else {
    info.initial = std::to_string(value);
  }
  return info;
}

}  // namespace detail

template <class Options>
std::vector<SettingInfo> settings_of() {
  std::vector<SettingInfo> infos;
  detail::for_each_field<Options>(
      [&](const auto& field) { infos.push_back(detail::info_of<Options>(field)); });
  return infos;
}

/// Takes the settings that are fields of Options out of `settings` and into `options`; others stay.
template <class Options>
void take_settings(Options& options, std::vector<Setting>& settings, std::string_view policy) {
  std::erase_if(settings, [&](const Setting& setting) {
    bool taken = false;
    detail::for_each_field<Options>([&](const auto& field) {
      if (taken || field.name != setting.key) return;
      detail::set_field(options, field, setting.value,
                        "policy '" + std::string(policy) + "', " + setting.key + "=" + setting.value);
      taken = true;
    });
    return taken;
  });
}

}  // namespace memoir
