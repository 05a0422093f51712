// SPDX-License-Identifier: Apache-2.0
//
// Whether this process may still ask the kernel. One that confines itself (seccomp) would be killed by a call
// that its filter does not know, and a program's filter does not know ours.
#pragma once

#include <atomic>

namespace memoir {

/// True from before such a filter is there. Those who run inside the program look at it before each system
/// call, and do without.
inline std::atomic<bool> system_calls_are_forbidden{false};

inline bool may_call_system() noexcept { return !system_calls_are_forbidden.load(std::memory_order_relaxed); }

}  // namespace memoir
