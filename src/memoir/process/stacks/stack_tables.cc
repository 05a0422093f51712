// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/stack_tables.h"

#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memoir/base/system_calls.h"
#include "memoir/process/stacks/thread_stack.h"

namespace memoir::stacks {

bool StackTables::start(bool fewer) noexcept {
  return modules_.start() && rules_.start() && nodes_.start(fewer ? kNodesLog2 - 1 : kNodesLog2);
}

UnwindRule StackTables::find_rule(Address pc) noexcept {
  const LoadedModule* const module = modules_.find(pc);
  // Not remembered: a library may be loaded there next.
  if (module == nullptr) return {.cfa = CfaKind::kUncovered};
  const UnwindRule rule = read_rule(*module, pc);
  rules_.put(pc, rule);
  return rule;
}

Address StackTables::function_at(Address pc) noexcept {
  const LoadedModule* const module = modules_.find(pc);
  Address function = 0;
  if (module != nullptr) read_rule(*module, pc, &function);
  return function;
}

/// Of an address in no module: whether it lies in code.
bool StackTables::can_run(Address at) noexcept {
  for (Made& made : made_) {
    const Address begin = made.begin.load(std::memory_order_acquire);
    if (begin != 0 && at >= begin && at < made.end.load(std::memory_order_acquire)) return true;
  }
  const Mapping mapping = find_mapping(at);
  if (!mapping.can_run) return false;
  Made& made = made_[made_next_.fetch_add(1, std::memory_order_relaxed) % kMostMade];
  made.begin.store(0, std::memory_order_release);
  made.end.store(mapping.end, std::memory_order_release);
  made.begin.store(mapping.begin, std::memory_order_release);
  return true;
}

StackTables::Call StackTables::call_before(Address returns, Address& target) noexcept {
  constexpr Address kLongest = 7, kLeast = 4096, kMost = Address{1} << 47;
  if (returns < kLeast || returns >= kMost) return Call::kNone;
  UnwindRule known;
  if (rules_.find(returns | kCall, known)) {
    target = returns + static_cast<Address>(std::int64_t{known.cfa_offset});
    return static_cast<Call>(known.rbp_offset);
  }
  unsigned char code[kLongest];
  if (const LoadedModule* const module = modules_.find(returns - 1)) {
    if (!module->has_code(returns - kLongest)) return Call::kNone;
    memcpy(code, reinterpret_cast<const void*>(returns - kLongest), sizeof code);
  } else {
    if (!may_call_system() || !can_run(returns - 1)) return Call::kNone;
    const iovec here{code, sizeof code}, there{reinterpret_cast<void*>(returns - kLongest), sizeof code};
    if (::syscall(SYS_process_vm_readv, ::getpid(), &here, 1ul, &there, 1ul, 0ul) != long{sizeof code})
      return Call::kNone;
  }
  Call call = Call::kNone;
  std::int32_t distance = 0;
  if (code[2] == 0xe8) {  // call rel32
    call = Call::kDirect;
    memcpy(&distance, code + 3, sizeof distance);
  }
  // ff /2 with a register or memory of any form: what follows the byte behind ff has just the right length.
  for (unsigned length = 2; length <= kLongest && call == Call::kNone; ++length) {
    const unsigned char* const at = code + kLongest - length;
    if (at[0] != 0xff || (at[1] >> 3 & 7) != 2) continue;
    const unsigned mode = at[1] >> 6, base = at[1] & 7;
    const bool has_index = mode != 3 && base == 4;
    const bool is_far =
        mode == 2 || (mode == 0 && (base == 5 || (has_index && length > 2 && (at[2] & 7) == 5)));
    if (2u + has_index + (is_far ? 4 : mode == 1) == length) call = Call::kIndirect;
  }
  // What is none may become code later.
  if (call == Call::kNone) return call;
  known = {.cfa_offset = distance, .rbp_offset = static_cast<std::int16_t>(call)};
  rules_.put(returns | kCall, known);
  target = returns + static_cast<Address>(std::int64_t{distance});
  return call;
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
