// SPDX-License-Identifier: Apache-2.0
//
// Files of version 2 of the trace format, as its writer made them: nothing in memoir writes them any more.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "memoir/trace/file/old_format.h"

namespace memoir {

class OldTrace {
 public:
  OldTrace() : bytes_(sizeof(trace_format::OldHeader)) {}

  void meta(std::string_view key, std::string_view value) {
    write({.kind = EventKind::kMeta}, std::string(key) + "=" + std::string(value));
  }
  void define_site(SiteId site, SiteId parent, std::string_view name) {
    write({.kind = EventKind::kSite, .site = site, .size = parent}, name);
  }
  void pass_begin(std::uint64_t pass) { write({.kind = EventKind::kPassBegin, .object = pass}); }
  void pass_end(std::uint64_t pass) { write({.kind = EventKind::kPassEnd, .object = pass}); }
  void allocate(ObjectId object, SiteId site, Size size, Size alignment) {
    write({.kind = EventKind::kAllocate,
           .alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(alignment)),
           .object = object,
           .site = site,
           .size = size});
  }
  void free(ObjectId object) { write({.kind = EventKind::kFree, .object = object}); }

  void close() { closed_ = true; }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> bytes = bytes_;
    trace_format::OldHeader header{};
    std::memcpy(header.magic, trace_format::kMagic, sizeof header.magic);
    header.version = 2;
    header.endianness = trace_format::kEndianness;
    header.header_size = sizeof header;
    header.record_size = trace_format::kRecordSize;
    header.clock = trace_format::kClockMonotonic;
    header.start = 1;
    if (closed_) {
      header.flags = trace_format::kComplete;
      header.records = (bytes.size() - sizeof header) / trace_format::kRecordSize;
    }
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  }

 private:
  void write(trace_format::OldRecord record, std::string_view text = {}) {
    using trace_format::kRecordSize;
    if (trace_format::old_has_text(record)) record.object = text.size();
    record.time = time_++;
    std::vector<std::byte> raw((text.size() + kRecordSize - 1) / kRecordSize * kRecordSize);
    std::memcpy(raw.data(), text.data(), text.size());
    record.check = trace_format::checksum(record, raw.data(), raw.size() / kRecordSize);
    const auto* const first = reinterpret_cast<const std::byte*>(&record);
    bytes_.insert(bytes_.end(), first, first + sizeof record);
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }

  std::vector<std::byte> bytes_;
  bool closed_ = false;
  Tick time_ = 100;
};

}  // namespace memoir
