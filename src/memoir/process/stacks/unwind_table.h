// SPDX-License-Identifier: Apache-2.0
//
// Reads a module's .eh_frame, as it is mapped in this process: from a code address to its UnwindRule. Called
// inside malloc: no allocation, no lock, no exception. The tables are those of the running program: they are
// believed to be mapped, and every read stays within the module that they belong to.
#pragma once

#include "memoir/process/stacks/unwind_rule.h"

namespace memoir::stacks {

/// One loaded module, as far as unwinding needs it.
struct UnwindModule {
  Address begin = 0, end = 0;              // of all that is mapped of it
  Address eh_frame_header = 0;             // PT_GNU_EH_FRAME; 0 when it has none
  Address table_begin = 0, table_end = 0;  // the segment that the header, and the tables with it, lie in
};

/// The rule at `pc`, an address of an instruction (for a caller: its return address less one). kUncovered
/// when the table has no entry for it. `function`: where the entry begins that covers it.
UnwindRule read_rule(const UnwindModule& module, Address pc, Address* function = nullptr) noexcept;

}  // namespace memoir::stacks
