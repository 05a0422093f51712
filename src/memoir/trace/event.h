// SPDX-License-Identifier: Apache-2.0
//
// What a trace is made of: records of one size. docs/formats.md is the specification; this is its C++ side.
//
//   allocate    object 7, site s, 4096 bytes, thread 0   object ids are never reused; an address appears
//   free        object 7, thread 2                         nowhere, since addresses are
//   pass_begin  pass 0, and pass_end                     one repetition of the program's unit of work
//   site        site s, parent p, then text              s is the frame of that name, reached from p
//   meta        then text "key=value"                    what was recorded: model, input signature, versions
//
// Text is 48 bytes a record, raw: the continuation of the site or meta before it.
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
};

struct Event {
  EventKind kind = EventKind::kNone;
  std::uint8_t alignment_log2 = 0;  // kAllocate: the alignment is 1 << alignment_log2 bytes
  std::uint16_t text_records = 0;   // kSite, kMeta: how many raw text records follow this one
  std::uint32_t thread = 0;         // small number of the thread, in order of first sight
  ObjectId object = 0;              // kAllocate, kFree: the object; kPassBegin, kPassEnd: the pass
  SiteId site = kNoSite;            // kAllocate: where; kSite: the site that is defined
  Size size = 0;  // kAllocate: bytes as asked; kSite: the parent's SiteId; kMeta, kSite: see text_size
  Tick time = 0;  // nanoseconds since the recording began
  std::uint32_t text_size = 0;  // kSite, kMeta: bytes of text in the records that follow
  std::uint32_t check = 0;      // checksum over the other 44 bytes (and the text): a torn record is not read

  bool operator==(const Event&) const = default;
};
static_assert(sizeof(Event) == 48);

}  // namespace memoir
