// SPDX-License-Identifier: Apache-2.0
//
// What reading fills and a Trace gives: for the readers of the format's versions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "memoir/base/metadata.h"
#include "memoir/trace/event.h"
#include "memoir/trace/process_record.h"
#include "memoir/trace/read/site_table.h"
#include "memoir/trace/read/stack_table.h"

namespace memoir {

/// Thrown at the first tensor of a trace that is read as one that has none.
struct FoundTensor {};

struct TraceData {
  std::string name;  // for messages
  std::uint32_t version = 0;
  std::uint64_t start = 0;
  std::uint64_t dropped = 0;
  bool complete = false;
  bool stops_at_tensors = false;  // its reader throws FoundTensor
  MetadataArray<Event> events;    // whose pages are taken as they fill
  SiteTable sites;
  StackTable stacks;
  std::map<std::string, std::string, std::less<>> metas;
  ProcessRecord process;
  Losses losses;

  /// What the text of a site or meta says; empty, or why it cannot be.
  std::string take_text(const Event& event, std::string_view text);
  /// Throws Error when there is no memory.
  void add(const Event& event);
  /// Throws Error, which names the file.
  [[noreturn]] void fail(const std::string& what) const;
  /// Throws Error for a chain of sites without end.
  void check_sites();
};

}  // namespace memoir
