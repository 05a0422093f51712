// SPDX-License-Identifier: Apache-2.0
//
// Prints one line on standard error when a program frees an address that is not a block, or writes where it
// must not, and ends the program.
#pragma once

namespace memoir::malloc_ {

/// "memoir: free(0x7f12): `what`", and abort(). `call` names what the program called.
[[noreturn]] void misused(const char* call, const void* block, const char* what) noexcept;
/// Of a free block whose link or mark is not what was written there: "memoir: block 0x7f12: ...", and
/// abort().
[[noreturn]] void damaged(const void* block) noexcept;

}  // namespace memoir::malloc_
