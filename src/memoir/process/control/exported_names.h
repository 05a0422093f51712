// SPDX-License-Identifier: Apache-2.0
//
// The C library's exported names, answered by other functions.
//
// A preloaded malloc comes before the C library's wherever names are looked up, except in two places.
// A library that is opened with RTLD_DEEPBIND looks into itself and what it needs first: PHP opens
// its extensions so. And dlsym() of the C library's own handle finds that one's: Python's
// ctypes.CDLL("libc.so.6").free. Such code would give blocks of one malloc to the other.
//
// So before a program opens a library in one of these ways, the table in which the loader finds the C
// library's names (.dynsym, in this process's memory) gets the addresses of our functions. All else of it
// stays, and RTLD_DEEPBIND keeps its meaning for every other name.
#pragma once

#include <stddef.h>

namespace memoir::host_control {

struct ExportedName {
  const char* name;
  void* function;  // what answers from now on
};

/// The flags of a dlopen(file, flags) that is about to happen, after the C library's `names` are answered by
/// others, where that is of use. Where it cannot be done (a C library without the tables that are needed,
/// memory that may not be written), RTLD_DEEPBIND is left out of the flags. A name that something else
/// answers already is left alone. May be called by several threads and after fork; allocates nothing; errno
/// stays.
int before_dlopen(const char* file, int flags, const ExportedName* names, size_t count) noexcept;

}  // namespace memoir::host_control
