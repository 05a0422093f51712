// SPDX-License-Identifier: Apache-2.0
//
// How another thread gets to work on a thread's free lists, at no cost to that thread but two plain stores a
// call:
//
//   the owner   busy = 1; looks at `token`; touches its lists; busy = 0         (its slow path too)
//   the other   takes the heap's lock; takes the token away; a barrier on every processor (membarrier);
//               waits until busy is 0: the owner is outside, and its next call finds no token, takes the
//               slow path, and waits for the lock
#pragma once

namespace memoir::malloc_ {

/// Asks the system for the barrier, once per process (again in a forked child).
void prepare_pauses() noexcept;
/// False where the system refuses barriers: then no thread can be paused.
bool pauses_possible() noexcept;
/// Every other thread of the process has run a full memory barrier when this returns.
void barrier_on_every_thread() noexcept;

}  // namespace memoir::malloc_
