// SPDX-License-Identifier: Apache-2.0
//
// An option is written once: as a member of its policy's options struct, with a row in the struct's table of
// fields. The command line, the bindings and the docs are derived from the table.
//
//   struct PoolOptions {
//     Size largest = 32 * kMiB;
//     bool strict = false;
//     static constexpr auto fields() {
//       return std::tuple{OptionField{"largest", &PoolOptions::largest, "bytes: requests above go elsewhere"},
//                         OptionField{"strict", &PoolOptions::strict, "refuse instead of growing"}};
//     }
//   };
#pragma once

#include <string_view>

#include "memoir/base/units.h"

namespace memoir {

/// Value is one of Size (a count or bytes: the help says which, "bytes: ..." for bytes), double, bool.
template <class Options, class Value>
struct OptionField {
  std::string_view name;  // snake_case, the member's own
  Value Options::*member;
  std::string_view help;  // one line; begins with the unit where there is one
};
// Clang before 17 does not deduce an aggregate's types by itself.
template <class Options, class Value, class... Rest>
OptionField(std::string_view, Value Options::*, Rest...) -> OptionField<Options, Value>;

}  // namespace memoir
