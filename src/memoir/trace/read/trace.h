// SPDX-License-Identifier: Apache-2.0
//
// A trace read back: read once, checked once, then a span of events. A file from a stranger is not trusted:
// every size is bounded, its cost is in proportion to its size, and what cannot be gets an Error that names
// the block or record and its byte. Immutable, so any number of threads may read one; but for one that
// follows a file, in poll(), and for forget_events().
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/trace/event.h"
#include "memoir/trace/process_record.h"
#include "memoir/trace/read/site_forest.h"
#include "memoir/trace/stack_frame.h"

namespace memoir {

class Trace {
 public:
  /// Reads and checks a file. Throws Error: not a trace, another version, a record that cannot be. A file
  /// that just ends too early is not an error: complete() is then false.
  ///
  /// What holds for the events of any Trace: an object is allocated once and freed at most once, later; times
  /// do not decrease; sizes and alignments, and the bytes live at once, are at most 2^56; a pass begins once
  /// and ends at most once, later; no chain of sites has a loop or more than 4,096 frames; what is said of an
  /// object is said while it lives, of the device that it lives on; a segment is freed as it was allocated,
  /// no more is unmapped from a device than is mapped, and its segments never exceed 2^56 bytes.
  ///
  /// `only`: without the tensors, or without the mallocs, of a recording that has both.
  static Trace open(const std::string& path, Only only = Only::kBoth);
  /// As open(), the tensors alone, each at the site of its operators alone, without the frames around them:
  /// what plans are matched by. Of a recording of nothing but tensors that is all of it.
  static Trace open_plannable(const std::string& path);
  /// open() or open_plannable() of its tensors where a file has any, else of everything. Which of the two it
  /// was stands in `has_tensors`. The file is read once; to its first tensor twice.
  static Trace open_chosen(const std::string& path, bool plannable, bool& has_tensors);
  /// The same over bytes in memory (a TraceWriter's bytes()), which are copied. `name` is for the messages.
  static Trace from_bytes(std::span<const std::byte> bytes, const std::string& name = "<memory>",
                          Only only = Only::kBoth);

  /// A trace that is still written: what it holds now. poll() gives more. Throws as open().
  static Trace follow(const std::string& path, Only only = Only::kBoth);
  /// Reads what a followed file has gained: at most what its writer has not flushed yet, half a second, is
  /// missing. How many events are new; spans and views of before end. A malloc may turn out to serve a
  /// tensor, which changes its event. Throws Error when the file was damaged or cut. 0 for a trace of open().
  std::size_t poll();

  /// Every record but text, in order of writing; kSite and kMeta too. Those of an older file as they would be
  /// written today.
  std::span<const Event> events() const noexcept;
  /// Forgets the first `count` of them and gives their memory back: they read as zeros. Without any left,
  /// events() is empty. Not for a trace that is followed, nor while others look at the events.
  void forget_events(std::size_t count) noexcept;
  /// Of the file's format.
  std::uint32_t version() const noexcept;
  /// True when the recording ended by itself and nothing was cut off since; false after a crash or a kill:
  /// then the events are those up to the last complete one.
  bool complete() const noexcept;
  /// Bytes known to be lost: written but torn, or cut off a closed file.
  Size lost_bytes() const noexcept;
  /// Events that the writer could not write: its disk was full, or they were impossible.
  std::uint64_t dropped() const noexcept;
  /// What else is missing, as far as the file tells.
  const Losses& losses() const noexcept;
  /// Nanoseconds since 1970-01-01 UTC at time 0 of the events.
  std::uint64_t start() const noexcept;
  /// Threads, modules, mappings and counters of a recorded process; empty where the file has none.
  const ProcessRecord& process() const noexcept;

  /// The name of one frame, and the whole chain "outer > inner", of a site; empty when the trace does not
  /// define it.
  std::string_view site_name(SiteId site) const noexcept;
  FrameKind site_kind(SiteId site) const noexcept;  // kNone when the trace does not define it
  /// The site that this one was reached from, kNoSite at the bottom; nullopt when the trace does not define
  /// `site`.
  std::optional<SiteId> site_parent(SiteId site) const noexcept;
  /// Of thousands of frames those between are left out (stack_cut.h).
  std::string site_chain(SiteId site) const;
  /// The same chain, outermost first, with what is known of each frame; inlined functions are frames too.
  std::vector<StackFrame> site_frames(SiteId site) const;
  /// Of these the site's own: those that its parent has not. Empty for one that the trace does not define.
  std::vector<StackFrame> own_frames(SiteId site) const;
  /// Whether the file has names for native frames.
  bool has_symbols() const noexcept;
  /// The chains of many sites as one forest, at the cost of its rows. Its texts live as long as the trace.
  SiteForest forest(std::span<const SiteId> sites) const;
  /// The innermost site of a site's chain whose frame is of that kind; kNoSite when none is.
  SiteId innermost(SiteId site, FrameKind kind) const noexcept;
  /// The path of the library or program that a site's own, native frame lies in; empty: none, or unknown.
  std::string_view site_module(SiteId site) const noexcept;
  /// The return addresses of all stacks; of a library that was loaded again, those of each module.
  std::vector<NativeAddress> native_addresses() const;
  /// The value of a meta record (the last one of that key), or empty.
  std::string_view meta(std::string_view key) const noexcept;
  std::vector<std::string_view> meta_keys() const;

  ~Trace();
  Trace(Trace&&) noexcept;
  Trace& operator=(Trace&&) noexcept;

 private:
  struct Impl;
  explicit Trace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace memoir
