// SPDX-License-Identifier: Apache-2.0
//
// Where CPython keeps what a thread runs: the interpreter that this process has loaded, 3.10 to 3.13. All
// offsets are in bytes. 3.13 says them itself; of the others they are part of the binary interface of each
// minor version. PythonFrames checks them against the running interpreter before it trusts them.
#pragma once

#include <cstdint>

#include "memoir/process/stacks/unwind_rule.h"

namespace memoir::stacks {

struct PythonLayout {
  unsigned minor = 0;  // 10 to 13; 0: no interpreter that memoir knows
  /// The calling thread's state, or null: one thread-local load, without any lock, with or without the GIL.
  Address (*thread_state)() = nullptr;
  Address finalizing = 0;  // the address of a word: the thread state that ends the interpreter, or 0
  Address code_type = 0;   // the address of PyCode_Type

  // Of a thread state: its innermost frame, or (3.10 to 3.12) the C frame that has it.
  std::uint16_t state_frame = 0, state_c_frame = 0;
  // Of a C frame, which lies in the frame of the C function that runs it.
  std::uint16_t c_frame_current = 0, c_frame_previous = 0;
  // Of a frame. `mark`: 3.11: whether it is the first of its C function; 3.12 on: who owns it.
  std::uint16_t frame_code = 0, frame_previous = 0, frame_instruction = 0, frame_mark = 0;
  // Of a code object. Of 3.10 there is no place for instructions: frames hold an index.
  std::uint16_t code_instructions = 0, code_first_line = 0, code_lines = 0, code_file = 0, code_name = 0;
  // Of a type, a str, a bytes.
  std::uint16_t type_dealloc = 48, text_length = 16, text_state = 32, text_ascii = 0, text_other = 0;
  std::uint16_t bytes_length = 16, bytes_data = 32;
};

/// Whether an interpreter is among the libraries that are loaded now, of whatever version.
bool has_python() noexcept;
/// Looks for an interpreter among the libraries that are loaded now. Takes the loader's lock. minor is 0
/// where there is none: another version, a build for debugging, or without the GIL.
PythonLayout find_python() noexcept;

}  // namespace memoir::stacks
