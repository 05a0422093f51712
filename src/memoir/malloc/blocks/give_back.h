// SPDX-License-Identifier: Apache-2.0
//
// Pages without objects go back to the system by the C library's madvise(), so that what others put in front
// of that (registration caches of RDMA, which must know which pages leave) sees all that goes. Where nobody
// has, newer kernels take many ranges in one call: a call for each costs as much again as two pages.
#pragma once

#include <sys/uio.h>

#include <cstddef>

namespace memoir::malloc_ {

/// Gives whole pages back; `gone[i]` says whether the i-th range went: then it reads as zeros. One that the
/// system refused (locked memory, a filter) holds what it held, or zeros in a part. True when any went. Any
/// thread, without a lock; keeps errno.
bool give_back(const iovec* ranges, size_t count, bool* gone) noexcept;

}  // namespace memoir::malloc_
