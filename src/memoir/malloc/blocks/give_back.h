// SPDX-License-Identifier: Apache-2.0
//
// Pages without objects go back to the system, many ranges at once. A call for each range costs as much again
// as two pages; newer kernels take a list.
#pragma once

#include <sys/uio.h>

#include <cstddef>

namespace memoir::malloc_ {

/// Gives whole pages back; `gone[i]` says whether the i-th range went. They read as zeros afterwards. Any
/// thread, without a lock; keeps errno.
void give_back(const iovec* ranges, size_t count, bool* gone) noexcept;

}  // namespace memoir::malloc_
