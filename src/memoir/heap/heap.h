// SPDX-License-Identifier: Apache-2.0
//
// A heap decides WHICH offset of one arena an object gets. Every allocation policy of memoir is a Heap, and
// the same object code serves simulation, host memory and devices, because of four rules:
//
//   1. it speaks only in offsets of its arena, the type that a planner emits;
//   2. it never touches the memory that it manages: its bookkeeping is its own;
//   3. it is single-threaded, and waits for nothing: locks, caches, events and queues live in host/ and
//      device/. A stream is a number in the request to it; see docs/decisions/heaps-see-stream-numbers.md;
//   4. it never throws, blocks on I/O, or calls malloc.
#pragma once

#include <cstdint>

#include "memoir/base/units.h"

namespace memoir {

struct Request {
  Size size = 0;             // bytes, > 0
  Size alignment = 1;        // bytes, a power of two
  SiteId site = kNoSite;     // where in the program, kNoSite when unknown
  StreamId stream = 0;       // the stream that uses it first; hosts have one, 0
  bool plain = false;        // memory that others will register (processes, NICs): never mapped page by page
  std::uint32_t thread = 0;  // a small number of the thread that asks
  std::uint8_t lifetime = kNoLifetime;  // how long it is expected to live: a class of the policy's, 0 the
                                        // shortest; kNoLifetime: nobody says

  static constexpr std::uint8_t kNoLifetime = 255;
};

class Heap {
 public:
  virtual ~Heap() = default;

  /// An offset at a multiple of the alignment with `size` bytes that no live object holds, or kNoOffset: the
  /// caller then serves the request elsewhere. A request of 0 bytes or of a bad alignment gets kNoOffset.
  virtual Offset allocate(const Request& request) noexcept = 0;
  /// Ends the object at this offset: work that is queued on its stream from now on may have the bytes, and
  /// other streams once they are ordered after it (heap/stream_order.h). Anything but an offset that
  /// allocate() returned and that is live is ignored, and reported by returning false: a wild free must not
  /// corrupt a heap.
  virtual bool free(Offset offset) noexcept = 0;
  /// The same on a thread, by a number as in Request: for heaps to which it matters who frees.
  virtual bool free_on(std::uint32_t /*thread*/, Offset offset) noexcept { return free(offset); }
  /// Bytes held by the live object at this offset (>= what was asked), or 0 when there is none.
  virtual Size size_of(Offset offset) const noexcept = 0;
  /// Gives back to the arena what is committed and not live, as far as the policy allows.
  virtual void trim() noexcept {}
  /// What the policy does on its own between requests, when it is due: the owner calls this now and then.
  /// `now`: nanoseconds of any clock that never goes back. Returns when it wants the next call, kNever if it
  /// wants none.
  virtual Tick tick(Tick /*now*/) noexcept { return kNever; }
  static constexpr Tick kNever = ~Tick{0};

  /// Bytes that live objects asked for.
  virtual Size live() const noexcept = 0;
};

}  // namespace memoir
