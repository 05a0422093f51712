// SPDX-License-Identifier: Apache-2.0
//
// The modules (program, libraries) that stacks went through, in the order of their discovery. A module is
// found by the first address of it that somebody asks for, without the loader's lock where the C library
// allows (glibc 2.35 on). One that was unloaded is marked gone, until the same file is loaded again at the
// same place.
//
// Only its segments of code count: what lies between them, where they are far apart, may be another's.
#pragma once

#include <atomic>
#include <cstddef>

#include "memoir/process/stacks/unwind_table.h"

namespace memoir::stacks {

struct LoadedModule : UnwindModule {
  Address bias = 0;  // what the loader added to the addresses of the file
  const void* link_map = nullptr;
  char path[1024] = {};  // cut where it is longer; "" for the program itself, else absolute
  unsigned char build_id[32] = {};
  unsigned build_id_size = 0;
  struct Range {
    Address begin = 0, end = 0;
  };
  static constexpr unsigned kMostCode = 8;
  Range code[kMostCode] = {};  // the last one may reach over more
  unsigned code_count = 0;
  std::atomic<bool> gone{false};

  bool has_code(Address pc) const noexcept {
    if (pc < begin || pc >= end) return false;
    for (unsigned i = 0; i < code_count; ++i)
      if (pc >= code[i].begin && pc < code[i].end) return true;
    return false;
  }
};

class ModuleTable {
 public:
  static constexpr unsigned kMost = 2048;

  bool start() noexcept;
  /// The module that holds `pc`, or nullptr: code made at run time, or more modules than the table holds.
  const LoadedModule* find(Address pc) noexcept { return find(pc, true); }
  /// The same of any address, of data too.
  const LoadedModule* find_holder(Address at) noexcept { return find(at, false); }
  /// True when a module that was there is gone: rules and frames of it must be forgotten.
  bool find_unloaded() noexcept;

  unsigned count() const noexcept { return count_.load(std::memory_order_acquire); }
  const LoadedModule& operator[](unsigned index) const noexcept { return modules_[index]; }
  /// In a child of fork(): a lock that another thread held is free.
  void unlock_after_fork() noexcept { locked_.store(false, std::memory_order_relaxed); }

 private:
  const LoadedModule* find(Address at, bool code) noexcept;

  LoadedModule* modules_ = nullptr;
  std::atomic<unsigned> count_{0};
  std::atomic<bool> locked_{false};
};

}  // namespace memoir::stacks
