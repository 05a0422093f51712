// SPDX-License-Identifier: Apache-2.0
//
// A trace as a timeline for the viewers that people have. Both formats stream: memory goes to what is live,
// not to what was written.
#pragma once

#include "memoir/base/output.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

/// Chrome's Trace Event Format (JSON,
/// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): chrome://tracing and
/// ui.perfetto.dev open it. Devices are processes; an object's site is its stack, which Perfetto leaves out.
/// Gives the number of objects. Throws Error when the output does.
std::uint64_t export_chrome(const Trace& trace, Output& output);

/// Perfetto's own format (protobuf; perfetto.dev, TrackEvent), a third of the size. All objects are rows of
/// one track there, with the chain of their sites.
std::uint64_t export_perfetto(const Trace& trace, Output& output);

}  // namespace memoir
