// SPDX-License-Identifier: Apache-2.0
//
// A thread that gives back what slabs need no more, so that no pass waits for it, and an idle program does it
// too. It runs while any slab holds memory, and ends when none does; before a fork() it ends as well, so that
// a child has no half of it, and a program that has one thread forks with one.
#pragma once

#include <atomic>

namespace memoir {

inline constinit std::atomic<bool> slab_upkeep_runs{false};

/// Slabs hold more than before, or need less: the thread is started, or looks at them soon. Takes no lock
/// that is held for long; does nothing where no thread can be had, and the next one tries again.
void wake_slab_upkeep() noexcept;

}  // namespace memoir
