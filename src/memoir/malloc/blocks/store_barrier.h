// SPDX-License-Identifier: Apache-2.0
//
// How another thread gets to work on a thread's free lists, at no cost to that thread but two plain stores a
// call:
//
//   the owner   busy = 1; looks at `token`; touches its lists; busy = 0         (its slow path too)
//   the other   takes the heap's lock; takes the token away; until_stores_are_seen(); waits until busy is 0:
//               the owner is outside, and its next call finds no token, takes the slow path, and waits for
//               the lock
//
// The owner's busy = 1 may still be on its way when the other looks. membarrier() makes all processors send
// what they have. Behind a filter of system calls, or where the system has no such call, time does: a store
// leaves its processor within microseconds (Morrison and Afek, Temporally Bounding TSO for Fence-Free
// Asymmetric Synchronization, 2015), so a thousand of them are waited for, or until the owner itself waits.
#pragma once

#include "memoir/base/lock.h"

namespace memoir::malloc_ {

/// What other threads had stored when this was called is seen when it returns; or the owner of the heap with
/// that lock, which the caller holds, waits for it.
void until_stores_are_seen(const Lock* lock) noexcept;
/// A forked child has to ask the system for barriers again.
void forget_barriers() noexcept;

}  // namespace memoir::malloc_
