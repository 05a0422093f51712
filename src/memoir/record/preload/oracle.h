// SPDX-License-Identifier: Apache-2.0
//
// The compiler's own unwinder as the judge of --check-stacks.
#pragma once

#include "memoir/record/program_recorder.h"

namespace memoir::record {

/// nullptr when the program has no libgcc_s.so.1 to load.
StackOracle find_oracle() noexcept;

}  // namespace memoir::record
