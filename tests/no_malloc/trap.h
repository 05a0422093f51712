// SPDX-License-Identifier: Apache-2.0
//
// A malloc that can be forbidden. This program has its own malloc family (trap.cc), which passes everything
// on to the C library's; while a thread has a NoMalloc, a call of it by that thread prints its stack and
// aborts.
//
// Exempt is what a stack with a frame in the tests' CUDA driver (libfake_cuda.so) calls: it stands for a
// driver that does as it likes.
#pragma once

#include <cstdint>

namespace memoir::trap {

/// From its start to its end the thread must not call malloc, free or any of their family. They may nest.
class NoMalloc {
 public:
  NoMalloc() noexcept;
  ~NoMalloc();
  NoMalloc(const NoMalloc&) = delete;
  NoMalloc& operator=(const NoMalloc&) = delete;
};

/// Calls of the family by the whole process so far, exempt ones included.
std::uint64_t calls() noexcept;

}  // namespace memoir::trap
