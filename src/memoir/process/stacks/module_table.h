// SPDX-License-Identifier: Apache-2.0
//
// The modules (program, libraries) that stacks went through, in the order of their discovery. A module is
// found by the first address of it that somebody asks for, without the loader's lock where the C library
// allows (glibc 2.35 on). One that was unloaded is marked gone and never looked up again.
#pragma once

#include <atomic>
#include <cstddef>

#include "memoir/process/stacks/unwind_table.h"

namespace memoir::stacks {

struct LoadedModule : UnwindModule {
  Address bias = 0;  // what the loader added to the addresses of the file
  const void* link_map = nullptr;
  char path[256] = {};  // cut where it is longer; "" for the program itself
  unsigned char build_id[32] = {};
  unsigned build_id_size = 0;
  std::atomic<bool> gone{false};
};

class ModuleTable {
 public:
  static constexpr unsigned kMost = 1024;

  bool start() noexcept;
  /// The module that holds `pc`, or nullptr: code made at run time, or more modules than the table holds.
  const LoadedModule* find(Address pc) noexcept;
  /// True when a module that was there is gone: rules and frames of it must be forgotten.
  bool find_unloaded() noexcept;

  unsigned count() const noexcept { return count_.load(std::memory_order_acquire); }
  const LoadedModule& operator[](unsigned index) const noexcept { return modules_[index]; }
  /// In a child of fork(): a lock that another thread held is free.
  void unlock_after_fork() noexcept { locked_.store(false, std::memory_order_relaxed); }

 private:
  LoadedModule* modules_ = nullptr;
  std::atomic<unsigned> count_{0};
  std::atomic<bool> locked_{false};
};

}  // namespace memoir::stacks
