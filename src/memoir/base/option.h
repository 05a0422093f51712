// SPDX-License-Identifier: Apache-2.0
//
// An option is written once: as a member of its policy's options struct, with a row in the struct's table of
// fields. The command line, the bindings and the docs are derived from the table.
//
//   struct PoolOptions {
//     Size largest = 32 * kMiB;
//     bool strict = false;
//     static constexpr auto fields() {
//       using Options = PoolOptions;
//       return std::tuple{OptionField{"largest", &Options::largest, Unit::kBytes, "larger go elsewhere"},
//                         OptionField{"strict", &Options::strict, Unit::kFlag, "refuse instead of growing"}};
//     }
//   };
#pragma once

#include <cstdint>
#include <string_view>

#include "memoir/base/units.h"

namespace memoir {

/// What a value counts, and so how it is written and read.
enum class Unit : std::uint8_t {
  kBytes,       // Size: a whole number, or one with KiB, MiB, GiB
  kCount,       // Size: how many
  kTimes,       // Size: a multiple of something that the help names
  kOperations,  // Size: allocations and frees
  kSeconds,     // double
  kShare,       // double: of something that the help names; 1 is all of it
  kFlag,        // bool
  kText         // std::string
};

/// The word for people: "bytes", "count", ...
constexpr std::string_view unit_name(Unit unit) noexcept {
  constexpr std::string_view kNames[] = {"bytes",   "count", "times", "operations",
                                         "seconds", "share", "flag",  "text"};
  return kNames[static_cast<std::size_t>(unit)];
}

/// Value is the type that Unit says.
template <class Options, class Value>
struct OptionField {
  std::string_view name;  // snake_case, the member's own
  Value Options::*member;
  Unit unit;
  std::string_view help;  // one line
};
// Clang before 17 does not deduce an aggregate's types by itself.
template <class Options, class Value, class... Rest>
OptionField(std::string_view, Value Options::*, Rest...) -> OptionField<Options, Value>;

}  // namespace memoir
