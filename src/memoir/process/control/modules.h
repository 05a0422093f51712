// SPDX-License-Identifier: Apache-2.0
//
// The executables and libraries of this process, as /proc/self/maps has them: no lock of the dynamic loader
// is taken, so that this is safe inside malloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace memoir::host_control {

/// A stretch of code.
struct CodeMapping {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t bias = 0;  // address in memory - address in the file's own space
  std::string_view path;   // for the time of the call
  unsigned char id[32] = {};
  std::uint32_t id_size = 0;  // of the build id; 0: it has none
};

/// Calls visit(context, mapping) for each mapping of a file (or the vdso) that may run. False when the
/// process may not read what it has mapped. No malloc, no locks; about 20 us and 8 KiB of stack.
bool visit_code(bool (*visit)(void* context, const CodeMapping& mapping) noexcept, void* context) noexcept;

}  // namespace memoir::host_control
