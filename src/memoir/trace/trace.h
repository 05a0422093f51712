// SPDX-License-Identifier: Apache-2.0
//
// A trace read back: mapped, checked once, then a span of events. A file from a stranger is not trusted:
// every size is bounded, and a bad record gets an Error that names it. Immutable, so any number of threads
// may read one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/trace/event.h"

namespace memoir {

class Trace {
 public:
  /// Maps and checks a file. Throws Error: not a trace, another version, a record that cannot be.
  static Trace open(const std::string& path);
  /// The same over bytes in memory (a TraceWriter's bytes()), which are copied.
  static Trace from_bytes(std::span<const std::byte> bytes, const std::string& name = "<memory>");

  /// Every record but text, in order of writing; kSite and kMeta too.
  std::span<const Event> events() const noexcept;
  /// True when the writer closed it; false after a crash or a kill: then the events are those up to the last
  /// complete one.
  bool complete() const noexcept;
  /// Bytes after the last complete record that were not read.
  Size lost_bytes() const noexcept;

  /// The name of one frame, and the whole chain "outer > inner", of a site; empty when the trace does not
  /// define it.
  std::string_view site_name(SiteId site) const noexcept;
  std::optional<SiteId> site_parent(SiteId site) const noexcept;
  std::string site_chain(SiteId site) const;
  /// The value of a meta record (the last one of that key), or empty.
  std::string_view meta(std::string_view key) const noexcept;

  ~Trace();
  Trace(Trace&&) noexcept;
  Trace& operator=(Trace&&) noexcept;

 private:
  struct Impl;
  explicit Trace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace memoir
