// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/python_layout.h"

#include <dlfcn.h>
#include <string.h>

namespace memoir::stacks {

namespace {

/// What 3.13 has at the start of _PyRuntime (_Py_DebugOffsets), as 64-bit words.
struct DebugOffsets {
  char cookie[8];
  std::uint64_t version, free_threaded;
  std::uint64_t runtime[3];  // size, finalizing, ...
  std::uint64_t interpreter[13];
  std::uint64_t thread[9];  // size, prev, next, interp, current_frame, ...
  std::uint64_t frame[6];   // size, previous, executable, instr_ptr, localsplus, owner
  std::uint64_t code[10];   // size, filename, name, qualname, linetable, firstlineno, ..., code_adaptive
  std::uint64_t object[2];
  std::uint64_t type[4];
  std::uint64_t tuple[3], list[3], dict[3], floating[2], integer[3];
  std::uint64_t bytes[3];  // size, ob_size, ob_sval
  std::uint64_t text[4];   // size, state, length, asciiobject_size
};

std::uint16_t small(std::uint64_t offset) noexcept { return static_cast<std::uint16_t>(offset); }

bool read_debug_offsets(const DebugOffsets& told, Address runtime, PythonLayout& layout) noexcept {
  if (memcmp(told.cookie, "xdebugpy", 8) != 0 || told.free_threaded != 0) return false;
  layout.finalizing = runtime + told.runtime[1];
  layout.state_frame = small(told.thread[4]);
  layout.frame_previous = small(told.frame[1]);
  layout.frame_code = small(told.frame[2]);
  layout.frame_instruction = small(told.frame[3]);
  layout.frame_mark = small(told.frame[5]);
  layout.code_file = small(told.code[1]);
  layout.code_name = small(told.code[3]);
  layout.code_lines = small(told.code[4]);
  layout.code_first_line = small(told.code[5]);
  layout.code_instructions = small(told.code[9]);
  layout.bytes_length = small(told.bytes[1]);
  layout.bytes_data = small(told.bytes[2]);
  layout.text_state = small(told.text[1]);
  layout.text_length = small(told.text[2]);
  layout.text_ascii = small(told.text[3]);
  layout.text_other = small(told.text[3] + 16);
  return true;
}

bool fill(unsigned minor, Address runtime, PythonLayout& layout) noexcept {
  switch (minor) {
    case 10:
      layout.finalizing = runtime + 16;
      layout.state_frame = 24;
      layout.state_c_frame = 48;
      layout.c_frame_previous = 8;
      layout.frame_previous = 24;
      layout.frame_code = 32;
      layout.frame_instruction = 96;
      layout.code_first_line = 40;
      layout.code_file = 104;
      layout.code_name = 112;
      layout.code_lines = 120;
      layout.text_ascii = 48;
      layout.text_other = 72;
      return true;
    case 11:
      layout.finalizing = runtime + 24;
      layout.state_c_frame = 56;
      layout.c_frame_current = 8;
      layout.c_frame_previous = 16;
      layout.frame_code = 32;
      layout.frame_previous = 48;
      layout.frame_instruction = 56;
      layout.frame_mark = 68;
      layout.code_first_line = 72;
      layout.code_file = 112;
      layout.code_name = 128;
      layout.code_lines = 136;
      layout.code_instructions = 184;
      layout.text_ascii = 48;
      layout.text_other = 72;
      return true;
    case 12:
      layout.finalizing = runtime + 24;
      layout.state_c_frame = 56;
      layout.c_frame_current = 0;
      layout.c_frame_previous = 8;
      layout.frame_code = 0;
      layout.frame_previous = 8;
      layout.frame_instruction = 56;
      layout.frame_mark = 70;
      layout.code_first_line = 68;
      layout.code_file = 112;
      layout.code_name = 128;
      layout.code_lines = 136;
      layout.code_instructions = 192;
      layout.text_ascii = 40;
      layout.text_other = 56;
      return true;
    case 13:
      return read_debug_offsets(*reinterpret_cast<const DebugOffsets*>(runtime), runtime, layout);
    default:
      return false;
  }
}

}  // namespace

bool has_python() noexcept { return dlsym(RTLD_DEFAULT, "Py_GetVersion") != nullptr; }

PythonLayout find_python() noexcept {
  PythonLayout layout;
  void* const runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
  if (runtime == nullptr) return {};
  void* const version = dlsym(RTLD_DEFAULT, "Py_GetVersion");
  void* const state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  void* const code = dlsym(RTLD_DEFAULT, "PyCode_Type");
  const bool debugs = dlsym(RTLD_DEFAULT, "_Py_NegativeRefcount") != nullptr;
  if (version == nullptr || state == nullptr || code == nullptr || debugs) return {};
  const char* const text = reinterpret_cast<const char* (*)()>(version)();
  if (strncmp(text, "3.1", 3) != 0 || text[3] < '0' || text[3] > '3' || text[4] != '.') return {};
  const auto minor = static_cast<unsigned>(text[3] - '0') + 10;
  if (!fill(minor, reinterpret_cast<Address>(runtime), layout)) return {};
  layout.minor = minor;
  layout.thread_state = reinterpret_cast<Address (*)()>(state);
  layout.code_type = reinterpret_cast<Address>(code);
  return layout;
}

}  // namespace memoir::stacks
