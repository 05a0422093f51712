// SPDX-License-Identifier: Apache-2.0
//
// How to get from one frame to its caller, for one code address: what a compiler's unwind table (.eh_frame)
// says of that address, boiled down to eight bytes. x86-64 only.
//
//        CFA = where rsp pointed before the call      CFA - 8: the return address
//
//   sum        CFA = rsp + offset, or rbp + offset
//   indirect   CFA = what stands at rbp + offset (a function that realigned its stack)
//   signal     the kernel's frame around a signal handler: everything stands in the context that it saved
//   outermost  there is no caller
//   uncovered  no table says anything of that address: code made at run time, or assembly. Where it keeps
//              frame pointers, as a compiler at run time does whose programs profilers can follow:
//
//                  rbp -> | caller's rbp | return address |        CFA = rbp + 16
//
//   unknown    the table says more than fits here
#pragma once

#include <cstdint>

namespace memoir::stacks {

using Address = std::uintptr_t;

enum class CfaKind : std::uint8_t {
  kUnknown,
  kUncovered,
  kFromRsp,
  kFromRbp,
  kIndirect,
  kSignal,
  kOutermost
};

/// Where the caller's rbp is.
enum class RbpKind : std::uint8_t { kSame, kAtCfa, kAtRbp };

struct UnwindRule {
  std::int32_t cfa_offset = 0;  // bytes, see CfaKind
  std::int16_t rbp_offset = 0;  // in 8 bytes, from the CFA (kAtCfa) or from rbp (kAtRbp)
  CfaKind cfa = CfaKind::kUnknown;
  RbpKind rbp = RbpKind::kSame;

  bool operator==(const UnwindRule&) const = default;
};
static_assert(sizeof(UnwindRule) == 8);

}  // namespace memoir::stacks
