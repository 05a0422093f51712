// SPDX-License-Identifier: Apache-2.0
//
// A snapshot's stacks as sites of a trace. A frame is "file:line function"; one whose file is not known is
// its function alone. The frames of the recorder and of the allocator itself, which lie innermost in every
// stack that was taken with those of C++, are left out: they tell nothing, and would be every object's site.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "memoir/formats/pickle/pickle_values.h"
#include "memoir/trace/write/trace_writer.h"

namespace memoir {

class FrameSites {
 public:
  /// Both are kept by the caller.
  FrameSites(const PickleValues& values, TraceWriter& writer)
      : values_(values), writer_(writer), sites_(values.stacks()), frames_(values.frames()) {}

  /// The site that this stack is, defined in the trace; kNoSite once there is more text than any program has.
  SiteId site_of(std::uint32_t stack);

 private:
  struct Text {
    std::string text;
    bool known = false;
    bool skipped = false;  // when innermost
  };
  const Text& text_of(std::uint32_t frame);

  const PickleValues& values_;
  TraceWriter& writer_;
  std::vector<SiteId> sites_;  // by stack; kNoSite: not asked for yet, or empty
  std::vector<Text> frames_;
  std::unordered_set<SiteId> defined_;
  Size written_ = 0;  // bytes of text
};

/// A frame's text, parsed again: file, line, function. What has no ":line " is a function alone.
struct FrameText {
  std::string_view filename = "??";
  std::uint32_t line = 0;
  std::string_view name;
};
FrameText split_frame(std::string_view text) noexcept;

}  // namespace memoir
