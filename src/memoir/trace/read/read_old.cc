// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/read_old.h"

#include <algorithm>

#include "memoir/trace/file/old_format.h"
#include "memoir/trace/objects/event_checker.h"

namespace memoir {

using namespace trace_format;

namespace {

/// What the writers of that time had in one step of their files: so much room may stand behind the last
/// record.
constexpr Size kMostRoomBehind = 64 * kMiB + 2 * kMaxMetaText;

class OldReader {
 public:
  OldReader(const ByteSource& source, TraceData& data)
      : source_(source), data_(data), window_(std::min<Size>(kMiB, source.size())) {}
  void read();

 private:
  void read_header();
  std::uint64_t read_records(std::uint64_t count);
  const std::byte* bytes(std::uint64_t record, Size size);
  Event understand(const OldRecord& record, std::uint64_t number) const;
  bool is_zero_from(std::uint64_t record) const {
    return source_.end_of_data(place(record)) == place(record);
  }
  Size place(std::uint64_t record) const {
    return std::min(source_.size(), sizeof(OldHeader) + record * kRecordSize);
  }
  [[noreturn]] void fail(std::uint64_t record, const std::string& what) const {
    data_.fail("record " + std::to_string(record) + " (byte " +
               std::to_string(sizeof(OldHeader) + record * kRecordSize) + "): " + what);
  }

  const ByteSource& source_;
  TraceData& data_;
  OldHeader header_{};
  bool closed_ = false;
  std::vector<std::byte> window_;  // of the file
  Size window_begin_ = 0, window_end_ = 0;
};

void OldReader::read_header() {
  source_.read(0, std::as_writable_bytes(std::span(&header_, 1)));
  const std::uint32_t last_clock = header_.version == 1 ? kClockMonotonic : kClockImported;
  if (header_.header_size != sizeof(OldHeader) || header_.record_size != kRecordSize ||
      header_.flags > kComplete || header_.clock < kClockMonotonic || header_.clock > last_clock ||
      header_.reserved != 0 || header_.records > kMaxSize / kRecordSize) {
    data_.fail("the header is damaged: a field in bytes 16 to 63 has a value that version " +
               std::to_string(header_.version) + " does not have");
  }
}

void OldReader::read() {
  read_header();
  closed_ = (header_.flags & kComplete) != 0;
  const std::uint64_t whole = (source_.size() - sizeof(OldHeader)) / kRecordSize;
  const std::uint64_t count = closed_ ? std::min(whole, header_.records) : whole;
  data_.complete = closed_ && count == header_.records;
  data_.version = header_.version;
  data_.start = header_.start;
  data_.dropped = header_.dropped;
  if (data_.complete && !is_zero_from(count)) {
    fail(count, "the file goes on after the last of the records that its header counts");
  }
  const std::uint64_t at = read_records(count);
  if (closed_) {
    data_.losses.bytes = (header_.records - at) * kRecordSize;
  } else {
    const Size torn = source_.end_of_data(place(at)) - place(at);
    const Size whole_records = (torn + kRecordSize - 1) / kRecordSize * kRecordSize;
    data_.losses.bytes = std::min(whole_records, source_.size() - place(at));
    if (source_.size() - place(at) > kMostRoomBehind + data_.losses.bytes) {
      fail(at, "the file goes on for " + std::to_string(source_.size() - place(at)) +
                   " bytes after its last record, though a recording leaves at most 66 MiB: it is damaged");
    }
  }
  data_.check_sites();
}

/// So many bytes of the file, from the start of that record on; nullptr where it ends before.
const std::byte* OldReader::bytes(std::uint64_t record, Size size) {
  const Size from = sizeof(OldHeader) + record * kRecordSize;
  if (from < window_begin_ || from + size > window_end_) {
    if (window_.size() < size) window_.resize(size);
    window_begin_ = from;
    window_end_ = from + source_.read(from, window_);
  }
  return from + size <= window_end_ ? window_.data() + (from - window_begin_) : nullptr;
}

/// Reads up to `count` records; the number of the first that was not.
std::uint64_t OldReader::read_records(std::uint64_t count) {
  EventChecker checker;
  std::uint64_t at = 0;
  while (at < count) {
    OldRecord record;
    const std::byte* from = bytes(at, sizeof record);
    if (from == nullptr) break;  // it was cut meanwhile: a recording that ended
    std::memcpy(&record, from, sizeof record);
    if (record.kind == EventKind::kNone) {
      if (closed_) fail(at, "the record is empty, though the file was closed; the file is damaged");
      break;
    }
    const std::uint64_t texts = old_text_records(record, header_.version);
    if (texts >= count - at) {  // its text is not there
      if (data_.complete) fail(at, "its text of " + std::to_string(texts) + " records goes past the end");
      break;
    }
    if (texts > kMaxMetaText / kRecordSize + 1) {
      fail(at, "its text of " + std::to_string(texts) + " records is longer than 1 MiB; the file is damaged");
    }
    from = bytes(at, (1 + texts) * kRecordSize);
    if (from == nullptr) break;
    const std::uint64_t next = at + 1 + texts;
    if (record.check != checksum(record, from + kRecordSize, texts)) {
      if (!closed_ && is_zero_from(next)) break;  // torn: the last thing that was written
      fail(at, "the checksum does not match; the file is damaged");
    }
    const Event event = understand(record, at);
    if (const std::string why = checker.refusal(event, data_.events); !why.empty()) fail(at, why);
    if (has_text(event)) {
      const std::string why =
          data_.take_text(event, {reinterpret_cast<const char*>(from + kRecordSize), event.object});
      if (!why.empty()) fail(at, why);
    }
    data_.add(event);
    at = next;
  }
  return at;
}

/// A record as an event of today.
Event OldReader::understand(const OldRecord& record, std::uint64_t number) const {
  if (header_.version == 1 && record.kind > EventKind::kMeta) {
    fail(number, "unknown kind " + std::to_string(static_cast<unsigned>(record.kind)) +
                     "; version 1 knows 1 to 6: the file is damaged");
  }
  Event event{.kind = record.kind,
              .alignment_log2 = record.alignment_log2,
              .device = record.device,
              .thread = record.thread,
              .object = record.object,
              .site = record.site,
              .size = record.size,
              .time = record.time,
              .stream = record.stream};
  if (header_.version == 1) {
    const std::uint64_t text = old_text_bytes(record, 1);
    if (record.device != text / kRecordSize + (text % kRecordSize != 0) ||
        (!has_text(event) && record.stream != 0)) {
      fail(number, std::to_string(record.stream) + " bytes of text in " + std::to_string(record.device) +
                       " records cannot be");
    }
    if (has_text(event)) event.object = text;
    event.device = 0;
    event.stream = 0;
  }
  if (event.kind == EventKind::kSite) event.frame = FrameKind::kOperator;
  return event;
}

}  // namespace

void read_old(const ByteSource& source, TraceData& data) { OldReader(source, data).read(); }

}  // namespace memoir
