// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/rmm/import_rmm_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/base/hex.h"
#include "memoir/formats/stream_list.h"
#include "memoir/trace/format.h"

namespace memoir {

namespace {

constexpr Size kPromised = 256;                     // bytes: the alignment of every allocation of RMM's
constexpr std::uint64_t kDay = 86'400'000'000'000;  // nanoseconds
constexpr size_t kMostNumbers = 1 << 20;            // of threads, and of streams

enum Column : size_t { kThread, kTime, kAction, kPointer, kSize, kStream, kColumns };
constexpr std::array<std::string_view, kColumns> kNames = {"Thread",  "Time", "Action",
                                                           "Pointer", "Size", "Stream"};

enum class Action : std::uint8_t { kAllocate, kFree, kFailure };

struct Row {
  std::uint64_t time = 0;  // nanoseconds since midnight, days counted on
  std::uint64_t address = 0;
  Size size = 0;
  std::uint32_t thread = 0, stream = 0;  // numbered in order of first sight
  Action action = Action::kAllocate;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

/// The first line of the text, which goes on behind it.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// The fields of a line; false when it has another number of them.
bool split(std::string_view line, std::array<std::string_view, kColumns>& fields) {
  for (size_t i = 0; i < kColumns; ++i) {
    const size_t comma = line.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == kColumns)) return false;
    fields[i] = trimmed(line.substr(0, comma));
    if (comma != std::string_view::npos) line.remove_prefix(comma + 1);
  }
  return true;
}

/// Decimal, hexadecimal behind 0x, or what C's printf writes for a null pointer.
std::optional<std::uint64_t> plain_number(std::string_view text) {
  std::uint64_t value = 0;
  if (text == "(nil)" || text == "nullptr") return 0;
  const bool is_hex = text.starts_with("0x");
  if (is_hex) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, is_hex ? 16 : 10);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class RmmImporter {
 public:
  RmmImporter(std::string_view text, const std::string& name, TraceWriter& writer)
      : text_(text), name_(name), writer_(writer) {}

  RmmReport run() {
    if (!is_rmm_log(text_))
      throw Error(name_ + ": is not a log of RMM: its first line names no columns of one");
    take_line(text_);
    for (line_ = 2; !text_.empty(); ++line_) {
      const std::string_view line = take_line(text_);
      if (!trimmed(line).empty()) read(line);
    }
    write();
    return report_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(name_ + ":" + std::to_string(line_) + ": " + what);
  }
  void read(std::string_view line);
  std::uint64_t number(std::string_view text, Column column, std::uint64_t most) const;
  std::optional<std::uint64_t> time_of(std::string_view text) const;
  std::uint32_t numbered(std::unordered_map<std::uint64_t, std::uint32_t>& known, std::uint64_t number,
                         const char* what) const;
  std::uint32_t thread_of(std::string_view text);
  void write();
  void write_row(const Row& row);

  std::string_view text_;
  const std::string& name_;
  TraceWriter& writer_;
  RmmReport report_;
  size_t line_ = 1;
  std::vector<Row> rows_;
  std::unordered_map<std::uint64_t, std::uint32_t> threads_, streams_{{0, 0}};
  std::vector<std::uint64_t> handles_{0};             // of streams, by their numbers
  std::unordered_map<std::uint64_t, ObjectId> live_;  // by address
  std::vector<size_t> before_;                        // rows that free what was live at the start
  ObjectId objects_ = 0;
};

std::uint64_t RmmImporter::number(std::string_view text, Column column, std::uint64_t most) const {
  const std::optional<std::uint64_t> value = plain_number(text);
  if (!value) {
    fail(std::string(kNames[column]) + " '" + std::string(text.substr(0, 40)) +
         "' is not a number of 64 bits");
  }
  if (*value > most) {
    fail(std::string(kNames[column]) + " is " + std::to_string(*value) + ", over " + std::to_string(most));
  }
  return *value;
}

/// hh:mm:ss and a fraction behind a dot or a third colon; of anything else: none.
std::optional<std::uint64_t> RmmImporter::time_of(std::string_view text) const {
  const auto two_digits = [&](size_t at) -> std::uint64_t {
    const auto is_digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
    if (!is_digit(at) || !is_digit(at + 1)) return 100;
    return static_cast<std::uint64_t>((text[at] - '0') * 10 + (text[at + 1] - '0'));
  };
  const std::uint64_t hours = two_digits(0), minutes = two_digits(3), seconds = two_digits(6);
  bool is_time = hours < 24 && minutes < 60 && seconds < 61 && text[2] == ':' && text[5] == ':';
  std::uint64_t fraction = 0, digits = 0;
  if (is_time && text.size() > 8) {
    is_time = (text[8] == '.' || text[8] == ':') && text.size() > 9 && text.size() <= 18;
    for (size_t i = 9; is_time && i < text.size(); ++i, ++digits) {
      is_time = text[i] >= '0' && text[i] <= '9';
      fraction = fraction * 10 + static_cast<std::uint64_t>(text[i] - '0');
    }
  }
  if (!is_time) return std::nullopt;
  for (; digits < 9; ++digits) fraction *= 10;
  return ((hours * 60 + minutes) * 60 + seconds) * 1'000'000'000 + fraction;
}

std::uint32_t RmmImporter::numbered(std::unordered_map<std::uint64_t, std::uint32_t>& known,
                                    std::uint64_t number, const char* what) const {
  const auto [at, fresh] = known.try_emplace(number, static_cast<std::uint32_t>(known.size()));
  if (fresh && known.size() > kMostNumbers) fail(std::string("has more than 2^20 ") + what);
  return at->second;
}

/// No answer depends on threads and times: of those that cannot be read, the first, and that of the row
/// before.
std::uint32_t RmmImporter::thread_of(std::string_view text) {
  const std::optional<std::uint64_t> thread = plain_number(text);
  const bool is_known = thread && (threads_.size() < kMostNumbers || threads_.contains(*thread));
  report_.unreadable += !is_known;
  return is_known ? threads_.try_emplace(*thread, static_cast<std::uint32_t>(threads_.size())).first->second
                  : 0;
}

void RmmImporter::read(std::string_view line) {
  std::array<std::string_view, kColumns> fields;
  if (!split(line, fields)) fail("does not have the six fields that the first line names");
  Row row;
  if (fields[kAction] == "allocate") row.action = Action::kAllocate;
  else if (fields[kAction] == "free" || fields[kAction] == "deallocate") row.action = Action::kFree;
  else if (fields[kAction] == "allocate failure") row.action = Action::kFailure;
  else
    fail("Action '" + std::string(fields[kAction].substr(0, 40)) +
         "' is not one of allocate, free, allocate failure");
  row.thread = thread_of(fields[kThread]);
  const std::uint64_t handle = number(fields[kStream], kStream, ~std::uint64_t{0});
  row.stream = numbered(streams_, handle, "streams");
  if (row.stream == handles_.size()) handles_.push_back(handle);
  row.size = number(fields[kSize], kSize, trace_format::kMaxSize);
  row.address = number(fields[kPointer], kPointer, trace_format::kMaxAddress - row.size);
  const std::uint64_t last = rows_.empty() ? 0 : rows_.back().time;
  const std::optional<std::uint64_t> time = time_of(fields[kTime]);
  row.time = time.value_or(last % kDay);
  report_.unreadable += !time;
  row.time += last - last % kDay;
  if (row.time + kDay / 2 < last) row.time += kDay;  // past midnight
  if (row.time < last) {
    row.time = last;
    ++report_.times_back;
  }
  // A free of what nothing allocated is of an object from before the log.
  if (row.action == Action::kAllocate && row.size != 0) {
    live_[row.address] = 1;
  } else if (row.action == Action::kFree && row.size != 0) {
    const auto known = live_.find(row.address);
    if (known == live_.end()) {
      live_[row.address] = 0;
      before_.push_back(rows_.size());
    } else if (known->second == 0) {
      fail("frees " + hex(row.address) + ", which was freed already, and nothing allocated since");
    } else {
      known->second = 0;
    }
  }
  rows_.push_back(row);
}

void RmmImporter::write() {
  live_.clear();
  report_.rows = rows_.size();
  report_.threads = threads_.size();
  report_.streams = handles_.size();
  report_.live_before = before_.size();
  writer_.set_time(0);
  writer_.meta("source", "rmm log");
  std::sort(before_.begin(), before_.end(),
            [&](size_t a, size_t b) { return rows_[a].address < rows_[b].address; });
  for (const size_t index : before_) {
    Row row = rows_[index];
    row.action = Action::kAllocate;
    write_row(row);
  }
  report_.allocations = 0;
  const std::uint64_t first = rows_.empty() ? 0 : rows_[0].time;
  for (const Row& row : rows_) {
    writer_.set_time(row.time - first + 1'000);  // what was there before stands at time 0
    write_row(row);
  }
  write_stream_list(writer_, handles_);
  if (!writer_.ok()) throw Error(name_ + ": cannot write its trace: " + std::strerror(writer_.error()));
  if (writer_.dropped() != 0)
    throw Error(name_ + ": holds more than a trace can: a list of streams over 1 MiB");
}

void RmmImporter::write_row(const Row& row) {
  switch (row.action) {
    case Action::kFailure:
      ++report_.out_of_memory;
      writer_.out_of_memory(row.size, 0, 0, row.stream);  // the log does not say what the device had free
      return;
    case Action::kAllocate: {
      ++report_.allocations;
      ObjectId& known = live_[row.address];
      if (row.size != 0 && known != 0) {
        writer_.free(known, row.thread, 0, row.stream);
        ++report_.lost_frees;
      }
      ++objects_;
      writer_.allocate(objects_, kNoSite, row.size, kPromised, row.thread, 0, row.stream);
      if (row.size == 0) {  // RMM gives them no memory: nothing tells which free is theirs
        writer_.free(objects_, row.thread, 0, row.stream);
        return;
      }
      known = objects_;
      writer_.address(objects_, row.address, 0, row.stream);
      return;
    }
    default: {
      ++report_.frees;
      if (row.size == 0) return;
      ObjectId& known = live_[row.address];
      writer_.free(known, row.thread, 0, row.stream);
      known = 0;
    }
  }
}

}  // namespace

bool is_rmm_log(std::string_view begin) noexcept {
  std::array<std::string_view, kColumns> fields;
  return split(trimmed(take_line(begin)), fields) && fields == kNames;
}

RmmReport import_rmm_log(std::string_view text, const std::string& name, TraceWriter& writer) {
  return RmmImporter(text, name, writer).run();
}

}  // namespace memoir
