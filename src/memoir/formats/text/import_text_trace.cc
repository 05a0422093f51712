// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/text/import_text_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/formats/recorded_memory.h"
#include "memoir/trace/format.h"
#include "memoir/trace/objects/object_index.h"

namespace memoir {

namespace {

constexpr Size kTextAlignment = 256;       // bytes: what CUDA guarantees of every allocation
constexpr std::uint64_t kTextStep = 1000;  // nanoseconds between two events
constexpr size_t kMostWords = 5;           // of a line
constexpr size_t kShown = 30;              // characters of a word, in errors

bool is_blank(char character) { return character == ' ' || character == '\t' || character == '\r'; }

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// The words of a line, as many as there is room for and one more.
struct Words {
  std::array<std::string_view, kMostWords + 1> word;
  size_t count = 0;

  explicit Words(std::string_view line) {
    size_t at = 0;
    while (count < word.size()) {
      while (at < line.size() && is_blank(line[at])) ++at;
      const size_t begin = at;
      while (at < line.size() && !is_blank(line[at])) ++at;
      if (begin == at) break;
      word[count++] = line.substr(begin, at - begin);
    }
  }
  bool is_event() const { return count != 0 && word[0].front() != '#'; }
};

enum class Side : std::uint8_t { kBefore, kAfter, kAny };
struct TextKind {
  char letter;
  Side side;
  size_t least, most;  // numbers
};
constexpr std::array<TextKind, 10> kTextKinds = {{{'s', Side::kBefore, 2, 2},
                                                  {'i', Side::kBefore, 3, 4},
                                                  {'b', Side::kAny, 0, 0},
                                                  {'a', Side::kAfter, 3, 4},
                                                  {'f', Side::kAfter, 1, 1},
                                                  {'S', Side::kAfter, 2, 2},
                                                  {'R', Side::kAfter, 2, 2},
                                                  {'M', Side::kAfter, 2, 2},
                                                  {'U', Side::kAfter, 2, 2},
                                                  {'O', Side::kAfter, 2, 2}}};

EventKind segment_kind(char letter) {
  switch (letter) {
    case 'R':
      return EventKind::kSegmentFree;
    case 'M':
      return EventKind::kSegmentMap;
    case 'U':
      return EventKind::kSegmentUnmap;
    default:
      return EventKind::kSegmentAllocate;
  }
}

class TextImporter {
 public:
  TextImporter(std::string_view text, const std::string& name, TraceWriter& writer, std::uint16_t device)
      : text_(text), name_(name), writer_(writer), device_(device) {}

  TextTraceReport run() {
    writer_.set_time(0);
    writer_.meta("source", "text trace");
    while (!text_.empty()) {
      const std::string_view line = next_line(text_);
      ++line_;
      if (std::any_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) >= 128; }))
        fail("is not ASCII, as a text trace is");
      const Words words(line);
      if (words.is_event()) read(words);
    }
    if (!begun_) throw Error(name_ + ": there is no line 'b', after which the history begins");
    if (!writer_.ok()) throw Error(name_ + ": cannot write its trace: " + std::strerror(writer_.error()));
    return report_;
  }

 private:
  struct Object {
    ObjectId id = 0;
    Offset address = 0;  // 0: none
    Size size = 0;
    StreamId stream = 0;
    bool live = false;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(name_ + ":" + std::to_string(line_) + ": " + what);
  }
  void must_be_possible(const std::string& refusal) const {
    if (!refusal.empty()) fail(refusal);
  }
  void must_be_written(bool written) const {
    if (!written) fail("a number in it is out of bounds");
  }
  void read(const Words& words);
  std::uint64_t number(std::string_view word) const;
  void allocate(ObjectId id, Size size, std::uint64_t stream, Offset address);
  void free(ObjectId id);
  void segment(EventKind kind, Range range);

  std::string_view text_;
  const std::string& name_;
  TraceWriter& writer_;
  const std::uint16_t device_;
  TextTraceReport report_;
  size_t line_ = 0;
  std::uint64_t time_ = 0;
  bool begun_ = false;
  Size live_ = 0, held_ = 0;  // bytes
  std::vector<Object> objects_;
  ObjectIndex numbers_;  // of objects_
  RecordedMemory memory_;
};

std::uint64_t TextImporter::number(std::string_view word) const {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value > trace_format::kMaxAddress - 1)
    fail("'" + std::string(word.substr(0, kShown)) + "' is not a number from 0 to 2^63 - 1");
  return value;
}

void TextImporter::read(const Words& words) {
  const std::string_view letter = words.word[0];
  const auto* const kind = std::find_if(kTextKinds.begin(), kTextKinds.end(), [&](const TextKind& known) {
    return letter.size() == 1 && letter[0] == known.letter;
  });
  const auto quoted = [&] { return "'" + std::string(letter.substr(0, kShown)) + "'"; };
  if (kind == kTextKinds.end()) fail("no event begins with " + quoted());
  if (kind->side == (begun_ ? Side::kBefore : Side::kAfter))
    fail(quoted() + " is on the wrong side of the line 'b'");
  if (words.count - 1 < kind->least || words.count - 1 > kind->most) {
    fail(quoted() + " takes " + std::to_string(kind->least) +
         (kind->least == kind->most ? "" : " or " + std::to_string(kind->most)) + " numbers");
  }
  std::array<std::uint64_t, kMostWords> values{};
  for (size_t i = 1; i < words.count; ++i) values[i - 1] = number(words.word[i]);
  if (begun_) writer_.set_time(time_ += kTextStep);
  switch (kind->letter) {
    case 'b':
      if (begun_) fail("a second 'b'");
      begun_ = true;
      break;
    case 'a':
    case 'i':
      allocate(values[0], values[1], values[2], values[3]);
      break;
    case 'f':
      free(values[0]);
      break;
    case 'O':
      ++report_.out_of_memory;
      must_be_written(writer_.out_of_memory(values[1], values[0], device_));
      break;
    default:
      segment(segment_kind(kind->letter), {values[0], values[1]});
  }
}

void TextImporter::segment(EventKind kind, Range range) {
  ++report_.segments;
  must_be_written(writer_.segment(kind, range.begin, range.size, device_));
  must_be_possible(memory_.segment(kind, range));
  const bool gives = kind == EventKind::kSegmentAllocate || kind == EventKind::kSegmentMap;
  held_ = gives ? held_ + range.size : held_ - range.size;
  if (held_ > trace_format::kMaxSize) fail("the segments add up to more than 2^56 bytes");
}

void TextImporter::allocate(ObjectId id, Size size, std::uint64_t stream, Offset address) {
  if (stream > ~StreamId{0}) fail("stream " + std::to_string(stream) + " is 2^32 or more");
  const auto id_of = [&](std::uint32_t number) { return objects_[number].id; };
  if (numbers_.find(id, id_of) != ObjectIndex::kNone) {
    fail("object " + std::to_string(id) + " is allocated a second time: names are not reused");
  }
  if (objects_.size() >= ObjectIndex::kNone - 1) fail("a text trace of 2^32 objects or more is not read");
  ++(begun_ ? report_.allocations : report_.live_before);
  const auto on = static_cast<StreamId>(stream);
  objects_.push_back({id, address, size, on, true});
  numbers_.add(id, static_cast<std::uint32_t>(objects_.size() - 1), id_of);
  must_be_written(writer_.allocate(id, kNoSite, size, kTextAlignment, 0, device_, on));
  live_ += size;
  if (live_ > trace_format::kMaxSize) fail("the live objects add up to more than 2^56 bytes");
  if (address == 0) return;
  if (address > trace_format::kMaxAddress - size) fail("object " + std::to_string(id) + " ends beyond 2^63");
  must_be_written(writer_.address(id, address, device_, on));
  must_be_possible(memory_.place(id, {address, size}));
}

void TextImporter::free(ObjectId id) {
  const std::uint32_t known = numbers_.find(id, [&](std::uint32_t number) { return objects_[number].id; });
  if (known == ObjectIndex::kNone || !objects_[known].live)
    fail("object " + std::to_string(id) + " is not live");
  ++report_.frees;
  Object& object = objects_[known];
  object.live = false;
  live_ -= object.size;
  if (object.address != 0) memory_.remove(id, object.address);
  must_be_written(writer_.free(id, 0, device_, object.stream));
}

}  // namespace

bool is_text_trace(std::string_view begin) noexcept {
  while (!begin.empty()) {
    const Words words(next_line(begin));
    if (!words.is_event()) continue;
    const std::string_view letter = words.word[0];
    return letter == "b" ? words.count == 1 : words.count > 1 && (letter == "s" || letter == "i");
  }
  return false;
}

TextTraceReport import_text_trace(std::string_view text, const std::string& name, TraceWriter& writer,
                                  std::uint16_t device) {
  return TextImporter(text, name, writer, device).run();
}

}  // namespace memoir
