// SPDX-License-Identifier: Apache-2.0
//
// Runs a pickle (protocols 2 to 5; Python's pickletools.py describes the opcodes) as far as it is data. Every
// opcode that would import, call or build something of the program's is refused before it does anything: a
// snapshot from a stranger runs nothing.
#pragma once

#include <string>

#include "memoir/formats/pickle/pickle_input.h"
#include "memoir/formats/pickle/pickle_values.h"

namespace memoir {

/// The value that the pickle stands for, made in `values`. Throws Error, which begins with `name` and names
/// the byte, for anything that is not such a pickle.
Value run_pickle(PickleInput& input, PickleValues& values, const std::string& name);

}  // namespace memoir
