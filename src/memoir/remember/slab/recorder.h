// SPDX-License-Identifier: Apache-2.0
//
// Turns allocations and frees, told by address, into the events of a trace, told by object: an address is
// reused, an object id never is. Thread-safe (one lock); never throws, never calls malloc.
#pragma once

#include <atomic>

#include "memoir/base/fork_mutex.h"
#include "memoir/base/metadata.h"
#include "memoir/base/scope_stack.h"
#include "memoir/trace/write/trace_writer.h"

namespace memoir {

/// Live addresses and their objects: open addressing, in metadata memory. Not thread-safe.
class LiveTable {
 public:
  /// False when there is no memory (nothing changed). An address that is there already is overwritten: its
  /// free was missed.
  bool insert(const void* address, ObjectId object) noexcept;
  /// The object, taken out; 0 when the address is unknown. Object ids start at 1.
  ObjectId take(const void* address) noexcept;
  size_t size() const noexcept { return size_; }

 private:
  struct Slot {
    const void* address;
    ObjectId object;
  };
  size_t home(const void* address) const noexcept;
  bool grow() noexcept;

  MetadataArray<Slot> slots_;  // a power of two, at most half full
  size_t size_ = 0;
};

class Recorder {
 public:
  /// Records into memory.
  Recorder() noexcept = default;
  /// Records into a new file; see TraceWriter.
  explicit Recorder(const char* path) noexcept : writer_(path) {}

  /// After the real allocation. `scopes` may be null: the site is then unknown.
  void allocated(const void* address, Size size, Size alignment, const ScopeStack* scopes) noexcept;
  /// Before the real free; false when this recorder does not know the address.
  bool freed(const void* address) noexcept;
  void pass_begin(std::uint64_t pass) noexcept;
  void pass_end(std::uint64_t pass) noexcept;
  void meta(std::string_view key, std::string_view value) noexcept;

  /// For reading the result: no other call may run meanwhile.
  TraceWriter& writer() noexcept { return writer_; }

 private:
  void define_sites(const ScopeStack& scopes) noexcept;
  bool is_new_site(SiteId site) noexcept;

  ForkMutex mutex_;
  TraceWriter writer_;
  LiveTable live_;
  MetadataArray<SiteId> sites_;  // open addressing, kNoSite is empty
  size_t site_count_ = 0;
  ObjectId next_object_ = 1;
};

/// A small number for the calling thread, in order of first sight in this process.
std::uint32_t thread_number() noexcept;

}  // namespace memoir
