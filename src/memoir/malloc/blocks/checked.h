// SPDX-License-Identifier: Apache-2.0
//
// Two libraries are built from these sources: the malloc, and one that checks what the program does to it.
#pragma once

namespace memoir::malloc_ {

#if defined(MEMOIR_MALLOC_SECURE)
inline constexpr bool kChecked = true;
#else
inline constexpr bool kChecked = false;
#endif

}  // namespace memoir::malloc_
