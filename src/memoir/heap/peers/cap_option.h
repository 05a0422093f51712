// SPDX-License-Identifier: Apache-2.0
//
// The limit that CuArrays.jl gives both of its pools, as a setting.
#pragma once

#include "memoir/base/option.h"

namespace memoir {

/// For a policy's table of fields; Options has `Size cap`, where 0 means no limit.
template <class Options>
constexpr OptionField<Options, Size> cap_option() {
  return {"cap", &Options::cap, Unit::kBytes, "most bytes to hold of the device's memory; 0: no limit"};
}

}  // namespace memoir
