// SPDX-License-Identifier: Apache-2.0
//
// The malloc that the program would have without this one: it serves where this one cannot, for the whole
// life of the process.
#pragma once

#include "memoir/base/units.h"

namespace memoir::malloc_::next_malloc {

/// Finds it, before anything else. False: there is none, and no block comes from it.
bool find() noexcept;

void* allocate(Size size, Size alignment) noexcept;
void* reallocate(void* block, Size size) noexcept;
void free(void* block) noexcept;
Size size_of(void* block) noexcept;

}  // namespace memoir::malloc_::next_malloc
