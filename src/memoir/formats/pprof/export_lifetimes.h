// SPDX-License-Identifier: Apache-2.0
//
// A lifetime profile for the tools that people have.
#pragma once

#include <string>
#include <string_view>

#include "memoir/base/output.h"
#include "memoir/predict/profile/lifetime_profile.h"

namespace memoir {

/// "pprof": its protobuf (github.com/google/pprof, proto/profile.proto), not compressed, with the sample
/// types and labels of TCMalloc's lifetime profiles; values are estimates for the whole program, since pprof
/// scales nothing. "folded": one line a stack, outermost frame first, with the estimated bytes it allocated,
/// as flame graphs take it; names are cut at 1,000 bytes, and a stack may come twice.
/// Throws Error for another format, and when the output does.
void export_lifetimes(const LifetimeProfile& profile, std::string_view format, Output& output);

/// What a frame is called: its names, innermost first, else module+offset.
std::string frame_names(const LifetimeProfile& profile, std::uint32_t frame);

}  // namespace memoir
