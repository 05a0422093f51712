// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/stack_tables.h"

namespace memoir::stacks {

bool StackTables::start(bool fewer) noexcept {
  return modules_.start() && rules_.start() && nodes_.start(fewer ? kNodesLog2 - 1 : kNodesLog2);
}

UnwindRule StackTables::find_rule(Address pc) noexcept {
  const LoadedModule* const module = modules_.find(pc);
  // Not remembered: a library may be loaded there next.
  if (module == nullptr) return {};
  const UnwindRule rule = read_rule(*module, pc);
  rules_.put(pc, rule);
  return rule;
}

bool StackTables::look_for_unloaded() noexcept {
  if (!modules_.find_unloaded()) return false;
  rules_.forget();
  nodes_.forget();
  epoch_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void StackTables::forget_nodes() noexcept {
  nodes_.forget();
  epoch_.fetch_add(1, std::memory_order_acq_rel);
}

void StackTables::after_fork() noexcept {
  modules_.unlock_after_fork();
  nodes_.clear();
  epoch_.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace memoir::stacks
