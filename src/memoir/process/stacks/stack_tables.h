// SPDX-License-Identifier: Apache-2.0
//
// What the walkers of all threads share: modules, rules of code addresses, the tree of stacks. Thread-safe
// but for start() and after_fork().
#pragma once

#include <atomic>

#include "memoir/process/stacks/module_table.h"
#include "memoir/process/stacks/node_table.h"
#include "memoir/process/stacks/rule_cache.h"

namespace memoir::stacks {

class StackTables {
 public:
  static constexpr unsigned kNodesLog2 = 19;  // 8 MiB

  /// `fewer`: half of the nodes, where they are only keys (mixed_stack.h).
  bool start(bool fewer = false) noexcept;

  UnwindRule rule(Address pc) noexcept {
    UnwindRule rule;
    if (rules_.find(pc, rule)) [[likely]]
      return rule;
    return find_rule(pc);
  }
  NodeTable& nodes() noexcept { return nodes_; }
  ModuleTable& modules() noexcept { return modules_; }

  /// Goes up when what walkers remember is no longer true.
  std::uint32_t epoch() const noexcept { return epoch_.load(std::memory_order_acquire); }
  /// A module may have been unloaded. True when one was: its rules and all nodes are forgotten.
  bool look_for_unloaded() noexcept;
  /// All nodes get new numbers, since what the old ones mean was not written.
  void forget_nodes() noexcept;
  /// In the child: nothing of the parent's numbers counts.
  void after_fork() noexcept;

 private:
  UnwindRule find_rule(Address pc) noexcept;

  ModuleTable modules_;
  RuleCache rules_;
  NodeTable nodes_;
  std::atomic<std::uint32_t> epoch_{1};
};

}  // namespace memoir::stacks
