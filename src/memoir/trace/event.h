// SPDX-License-Identifier: Apache-2.0
//
// What a trace is made of, as readers give it. docs/reference/formats.md is the specification of the bytes.
//
//   allocate    object 7, site s, 4096 bytes, thread 0   object ids are never reused; an address identifies
//   free        object 7, thread 2                         nothing, since addresses are
//   pass_begin  pass 0, and pass_end                     one repetition of the program's unit of work
//   site        site s, parent p, then text              s is the frame of that name, reached from p
//   meta        then text "key=value"                    what was recorded: model, input signature, versions
//
// Recordings of devices say on which device and stream, and more:
//
//   segment_*        address, bytes                      what the recorded allocator asked of the device
//   address          object 7, address                   where the recorded allocator had put it
//   free_requested   object 7                            let go of; its memory is reusable at its free
//   out_of_memory    asked, free                         a request that failed
//   pool             1, PyTorch's (0, 2)                a private pool, which segments and addresses may name
//
// Recordings of native programs tell addresses with their allocations, and stacks as sites.
#pragma once

#include <cstdint>

#include "memoir/base/units.h"

namespace memoir {

enum class EventKind : std::uint8_t {
  kNone = 0,  // not written yet: a reader stops here
  kAllocate = 1,
  kFree = 2,
  kPassBegin = 3,
  kPassEnd = 4,
  kSite = 5,
  kMeta = 6,
  kSegmentAllocate = 7,  // memory of its own, at an address
  kSegmentFree = 8,
  kSegmentMap = 9,  // memory put behind addresses that were reserved before (expandable segments)
  kSegmentUnmap = 10,
  kAddress = 11,
  kFreeRequested = 12,
  kOutOfMemory = 13,
  kPool = 14,  // before anything names it
};

/// Which function served an allocation.
enum class Family : std::uint8_t {
  kTensor = 0,  // PyTorch's allocators, and whatever importers bring: an object of a program's own kind
  kMalloc = 1,  // malloc, calloc, realloc, memalign, ...
  kNew = 2,     // operator new
  kOther = 3,   // other allocators (of Python's objects, of a library)
};

/// Which allocations a reader wants.
enum class Only : std::uint8_t { kBoth, kTensors, kMallocs };

/// What a frame of a stack is.
enum class FrameKind : std::uint8_t {
  kNone = 0,
  kOperator = 1,    // a scope of PyTorch's
  kModulePath = 2,  // of an nn.Module: "layers.3.attn"
  kCut = 3,         // frames are missing here; the name says why and how many
  kOther = 4,       // of another runtime
  kNative = 5,      // a return address, as its module and the distance from its base
  kPython = 6,      // a function, its file and line
};

struct Event {
  EventKind kind = EventKind::kNone;
  std::uint8_t alignment_log2 = 0;  // kAllocate: the alignment is 1 << alignment_log2 bytes
  std::uint16_t device = 0;         // kAllocate, kFree and from kSegmentAllocate on; 0 elsewhere
  std::uint32_t thread = 0;         // small number of the thread, in order of first sight; see pool_of()
  ObjectId object = 0;    // the object; the pass; kSegment*: the address; kSite, kMeta: bytes of text;
                          // kOutOfMemory: bytes free on the device; kPool: PyTorch's first number of it
  SiteId site = kNoSite;  // where; kSite: the site that is defined
  Size size = 0;  // bytes as asked; kSegment*: bytes; kSite: the parent's SiteId; kAddress: the address;
                  // kPool: PyTorch's second number of it
  Tick time = 0;  // nanoseconds since the recording began
  StreamId stream = 0;                 // where `device` is
  Family family = Family::kTensor;     // kAllocate
  FrameKind frame = FrameKind::kNone;  // kSite
  Offset address = 0;  // kAllocate: where the recorded allocator had put it, if the file says so at once;
                       // 0: see kAddress

  bool operator==(const Event&) const = default;
};
static_assert(sizeof(Event) == 56);

inline constexpr std::uint8_t kLastKind = static_cast<std::uint8_t>(EventKind::kPool);

inline constexpr bool has_text(const Event& event) noexcept {
  return event.kind == EventKind::kSite || event.kind == EventKind::kMeta;
}

inline constexpr bool is_segment(EventKind kind) noexcept {
  return kind >= EventKind::kSegmentAllocate && kind <= EventKind::kSegmentUnmap;
}

/// Whether a record of this kind names a pool: that of a segment, of an object with an address, of a failed
/// request.
inline constexpr bool names_pool(EventKind kind) noexcept {
  return is_segment(kind) || kind == EventKind::kAddress || kind == EventKind::kOutOfMemory;
}

/// The pool that it names, or (kPool) defines: 1, 2, ... are private ones (CUDA graphs, MemPools) in the
/// order of their records, 0 is the default pool. These kinds have no thread.
inline constexpr std::uint32_t pool_of(const Event& event) noexcept { return event.thread; }

}  // namespace memoir
