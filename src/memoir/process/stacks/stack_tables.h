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
  /// What stands right before an address that may be a return address.
  enum class Call : std::uint8_t { kNone, kIndirect, kDirect };
  /// Of any word at all: it is read only where it is code. `target`: of a direct call.
  Call call_before(Address returns, Address& target) noexcept;
  /// Where the function begins whose table covers `pc`; 0: no table does.
  Address function_at(Address pc) noexcept;
  /// Whether `pc` lies in no module.
  bool is_made(Address pc) noexcept { return modules_.find(pc) == nullptr; }
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
  bool can_run(Address at) noexcept;

  static constexpr unsigned kMostMade = 16;
  static constexpr Address kCall = Address{1} << 63;  // with a return address: the key of what is before it

  ModuleTable modules_;
  RuleCache rules_;
  NodeTable nodes_;
  std::atomic<std::uint32_t> epoch_{1};
  // Where code made at run time was seen, for call_before(); the older ones give way.
  struct Made {
    std::atomic<Address> begin{0}, end{0};
  };
  Made made_[kMostMade];
  std::atomic<unsigned> made_next_{0};
};

}  // namespace memoir::stacks
