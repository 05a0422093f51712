// SPDX-License-Identifier: Apache-2.0
//
// Writes a trace as it happens, into a file or into memory. Called inside allocators: never throws, never
// calls malloc, and a full disk ends the recording (ok() turns false, dropped() counts) without harming the
// program that is recorded.
//
// The file is mapped and grown in steps with its blocks really allocated (a sparse file on a full disk would
// kill the program with SIGBUS). An event becomes visible to readers by the count in its block's header,
// which is stored last; so after a SIGKILL the file is readable up to its last complete event. The file gets
// its name when its header is there (O_TMPFILE; where a file system has no such files, the header is the
// first thing written). After fork() the child's copy of a writer into a file records nothing (two processes
// would overwrite each other's events); a writer into memory goes on in both. Not thread-safe: the recorder
// that owns it has the lock.
#pragma once

#include <span>
#include <string_view>

#include "memoir/trace/event.h"

namespace memoir {

class TraceWriter {
 public:
  /// Writes into growing anonymous memory; bytes() is then what a file would hold.
  TraceWriter() noexcept;
  /// Creates the file at `path` (which must not exist: O_EXCL). ok() is false, error() says why, when it
  /// cannot; a file that found no room for its first records is removed again.
  explicit TraceWriter(const char* path) noexcept;
  ~TraceWriter();  // close()
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// True while records are taken: nothing failed, and close() was not called.
  bool ok() const noexcept;
  int error() const noexcept;  // an errno: ENOSPC, EFBIG (a limit on file sizes), ...; 0 when nothing failed

  /// All return false when the record was dropped: after the recording ended, or because no reader would
  /// believe it (an allocation beyond 2^56 bytes, an alignment that is not a power of two). The free of an
  /// allocation that was dropped must not be recorded. The time is filled in by the writer.
  bool allocate(ObjectId object, SiteId site, Size size, Size alignment, std::uint32_t thread,
                std::uint16_t device = 0, StreamId stream = 0) noexcept;
  /// `device` is the object's; `stream` the one that may have the memory from now on.
  bool free(ObjectId object, std::uint32_t thread, std::uint16_t device = 0, StreamId stream = 0,
            SiteId site = kNoSite) noexcept;
  /// The program let go of the object, whose memory is reusable only at its free: for where something happens
  /// on the device between the two.
  bool free_requested(ObjectId object, std::uint32_t thread, std::uint16_t device = 0, StreamId stream = 0,
                      SiteId site = kNoSite) noexcept;
  /// Where the recorded allocator had put an object that is live; once, best behind its allocation.
  bool address(ObjectId object, Offset address, std::uint16_t device = 0, StreamId stream = 0,
               std::uint32_t pool = 0) noexcept;
  /// What the recorded allocator asked of the device: `kind` is one of kSegment*.
  bool segment(EventKind kind, Offset address, Size size, std::uint16_t device = 0, StreamId stream = 0,
               SiteId site = kNoSite, std::uint32_t pool = 0) noexcept;
  /// A request for `asked` bytes that failed while `free` were free on the device.
  bool out_of_memory(Size asked, Size free, std::uint16_t device = 0, StreamId stream = 0,
                     SiteId site = kNoSite, std::uint32_t pool = 0) noexcept;
  /// A private pool, by its number from 1 on, and the two numbers that PyTorch knows it by, which no other
  /// pool has ((0, 0) is the default pool's). Pools are defined in order, each before it is named; 0 needs no
  /// definition.
  bool define_pool(std::uint32_t pool, std::uint64_t first, std::uint64_t second) noexcept;
  bool pass_begin(std::uint64_t pass, std::uint32_t thread) noexcept;
  bool pass_end(std::uint64_t pass, std::uint32_t thread) noexcept;
  /// Defines a site; write it once, before or after its first use. Names longer than 4,096 bytes are cut.
  bool define_site(SiteId site, SiteId parent, std::string_view name,
                   FrameKind kind = FrameKind::kOperator) noexcept;
  /// "key=value" about the recording as a whole, up to 1 MiB. A key is not empty and holds no '='.
  bool meta(std::string_view key, std::string_view value) noexcept;

  /// For recordings that somebody else made: the time of day at time 0, in nanoseconds since 1970-01-01 UTC.
  void set_start(std::uint64_t nanoseconds) noexcept;
  /// For the same: from now on records bear this time, and no clock is read. False, and nothing changes, when
  /// that would go back, or beyond 2^62.
  bool set_time(Tick time) noexcept;

  std::uint64_t records() const noexcept;  // written, those of sites and metas included
  std::uint64_t dropped() const noexcept;

  /// The trace so far as the bytes of a file: header and complete events. Valid until the next call that
  /// writes. Empty once a file is closed; a closed trace in memory keeps its bytes.
  std::span<const std::byte> bytes() const noexcept;

  /// Cuts the file to its length, marks it complete in the header, closes it. Idempotent; the destructor does
  /// it too.
  void close() noexcept;

 private:
  struct Impl;
  bool end(EventKind kind, ObjectId object, std::uint32_t thread, std::uint16_t device, StreamId stream,
           SiteId site) noexcept;

  Impl* impl_;  // in metadata memory; nullptr when there was none
};

}  // namespace memoir
