// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/plan/whole_file.h"

namespace memoir {
namespace {

using Fields = std::vector<std::string_view>;

enum Column : size_t { kId, kLower, kUpper, kSize, kAlignment, kGaps, kHint, kOffset, kColumns };
constexpr std::array<std::string_view, kColumns> kNames = {"id",        "lower", "upper", "size",
                                                           "alignment", "gaps",  "hint",  "offset"};
constexpr std::string_view kKnown =
    "id, lower, upper (or end, inclusive), size; alignment, gaps, hint, offset";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// Takes the next line off `rest`, without its end (LF or CRLF).
std::string_view next_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

bool is_blank(std::string_view line) { return trim(line).empty(); }

/// Fields are parted by commas; one in double quotes may hold commas.
void split(std::string_view line, Fields& fields) {
  fields.clear();
  for (size_t begin = 0;;) {
    size_t end = begin;
    for (bool quoted = false; end < line.size() && (quoted || line[end] != ','); ++end) {
      if (line[end] == '"') quoted = !quoted;
    }
    fields.push_back(trim(line.substr(begin, end - begin)));
    if (end == line.size()) return;
    begin = end + 1;
  }
}

class Parser {
 public:
  Parser(CsvProblem& csv, const std::string& name) : csv_(csv), name_(name) {}

  void parse() {
    std::string_view rest = csv_.text;
    if (rest.substr(0, 3) == "\xEF\xBB\xBF") rest.remove_prefix(3);
    bool header = false;
    while (!rest.empty()) {
      const std::string_view line = next_line(rest);
      ++line_;
      if (is_blank(line)) continue;
      split(line, fields_);
      if (header) {
        read_row();
      } else {
        read_header();
        header = true;
      }
    }
    if (!header)
      throw Error(name_ + ": is empty; the first line must name the columns: " + std::string(kKnown));
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(name_ + ":" + std::to_string(line_) + ": " + what);
  }

  void read_header() {
    positions_.fill(kAbsent);
    for (size_t position = 0; position < fields_.size(); ++position) {
      std::string_view name = fields_[position];
      if (name == "buffer" || name == "buffer_id") name = "id";
      if (name == "start" || name == "begin") name = "lower";
      if (name == "end") {
        name = "upper";
        inclusive_ = true;
      }
      const auto column = static_cast<size_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
      if (column == kColumns) {
        refuse("unknown column '" + std::string(name) + "'; there are " + std::string(kKnown));
      }
      if (positions_[column] != kAbsent) refuse("two columns give '" + std::string(name) + "'");
      positions_[column] = position;
    }
    count_ = fields_.size();
    for (const Column column : {kId, kLower, kUpper, kSize}) {
      if (!has(column)) {
        refuse("no column '" + std::string(kNames[column]) + "'; there must be " + std::string(kKnown));
      }
    }
  }

  bool has(Column column) const { return positions_[column] != kAbsent; }
  std::string_view field(Column column) const { return fields_[positions_[column]]; }

  std::uint64_t number(std::string_view text, std::string_view what) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    const std::string shown = std::string(what) + " is '" + std::string(text.substr(0, 40)) + "'";
    if (text.empty()) refuse(std::string(what) + " is missing");
    if (error == std::errc::result_out_of_range) refuse(shown + ", more than 64 bits hold");
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    if (text[0] == '-' && text.size() > 1 && std::all_of(text.begin() + 1, text.end(), digit)) {
      refuse(shown + ": it must not be negative");
    }
    refuse(shown + ", not a whole number");
  }
  std::uint64_t number(Column column) const { return number(field(column), kNames[column]); }

  Tick end_tick(std::string_view text, std::string_view what) const {
    const Tick tick = number(text, what);
    if (inclusive_ && tick == ~Tick{0})
      refuse(std::string(what) + " is the last tick of 64 bits, with none after it");
    return tick + (inclusive_ ? 1 : 0);
  }

  void read_row() {
    if (fields_.size() != count_) {
      refuse("has " + std::to_string(fields_.size()) + " fields; the header has " + std::to_string(count_) +
             " columns");
    }
    Buffer buffer{{number(kLower), end_tick(field(kUpper), inclusive_ ? "end" : "upper")},
                  number(kSize),
                  has(kAlignment) && !field(kAlignment).empty() ? number(kAlignment) : 1};
    if (buffer.lifetime.begin >= buffer.lifetime.end) {
      refuse("the lifetime [" + std::to_string(buffer.lifetime.begin) + ", " +
             std::to_string(buffer.lifetime.end) + ") is " +
             (buffer.lifetime.begin == buffer.lifetime.end ? "empty" : "inverted") +
             ": it must end after it begins");
    }
    if (buffer.size == 0) refuse("the size is 0: leave the buffer out, it needs no offset");
    if (buffer.alignment == 0) refuse("the alignment is 0: the least is 1");
    if (__builtin_add_overflow(total_, buffer.size, &total_) ||
        __builtin_add_overflow(total_, buffer.alignment - 1, &total_) || total_ >> 63 != 0) {
      refuse("a size of " + std::to_string(buffer.size) +
             " bytes brings the sum of all sizes to 2^63 bytes or more");
    }
    const std::string_view id = field(kId);
    if (id.empty()) refuse("id is missing");
    const auto [earlier, fresh] = lines_.emplace(std::string(id), line_);
    if (!fresh)
      refuse("id '" + std::string(id) + "' is used twice; first in line " + std::to_string(earlier->second));

    csv_.problem.push_back(buffer);
    csv_.ids.emplace_back(id);
    if (has(kGaps)) csv_.gaps.push_back(read_gaps(field(kGaps), buffer));
    if (has(kHint)) {  // minimalloc writes -1 for none
      const bool none = field(kHint).empty() || field(kHint) == "-1";
      csv_.hints.push_back(none ? kNoOffset : number(kHint));
    }
    if (has(kOffset)) {
      csv_.offsets.push_back(field(kOffset).empty() ? std::nullopt : std::optional(number(kOffset)));
    }
  }

  std::vector<Gap> read_gaps(std::string_view text, const Buffer& buffer) const {
    std::vector<Gap> gaps;
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
    for (text = trim(text); !text.empty();) {
      const size_t length = std::min(text.find(' '), text.size());
      gaps.push_back(read_gap(text.substr(0, length), buffer));
      text = trim(text.substr(length));
    }
    std::sort(gaps.begin(), gaps.end(),
              [](const Gap& a, const Gap& b) { return a.lifetime.begin < b.lifetime.begin; });
    for (size_t i = 1; i < gaps.size(); ++i) {
      if (gaps[i].lifetime.begin < gaps[i - 1].lifetime.end) {
        refuse("two gaps overlap at " + std::to_string(gaps[i].lifetime.begin));
      }
    }
    return gaps;
  }

  Gap read_gap(std::string_view text, const Buffer& buffer) const {
    const auto shown = [&] { return "gap '" + std::string(text.substr(0, 60)) + "' "; };
    const auto pair = [&](std::string_view part, char separator) {
      const size_t at = part.find(separator);
      if (at == std::string_view::npos) refuse(shown() + "is not lower-upper or lower-upper@begin:end");
      return std::pair(part.substr(0, at), part.substr(at + 1));
    };
    const size_t at = text.find('@');
    const auto [lower, upper] = pair(text.substr(0, at), '-');
    Gap gap{{number(lower, "a gap's lower"), end_tick(upper, "a gap's upper")}, std::nullopt};
    if (gap.lifetime.begin >= gap.lifetime.end) refuse(shown() + "is empty or inverted");
    if (gap.lifetime.begin < buffer.lifetime.begin || gap.lifetime.end > buffer.lifetime.end) {
      refuse(shown() + "leaves the lifetime [" + std::to_string(buffer.lifetime.begin) + ", " +
             std::to_string(buffer.lifetime.end) + ")");
    }
    if (at != std::string_view::npos) {
      const auto [first, last] = pair(text.substr(at + 1), ':');
      const Offset begin = number(first, "a window's begin"), end = number(last, "a window's end");
      if (begin >= end || end > buffer.size) {
        refuse(shown() + "has a window that is not within the size of " + std::to_string(buffer.size) +
               " bytes");
      }
      gap.window = Range{begin, end - begin};
    }
    return gap;
  }

  static constexpr size_t kAbsent = ~size_t{0};

  CsvProblem& csv_;
  const std::string& name_;
  size_t line_ = 0;
  Fields fields_;
  std::array<size_t, kColumns> positions_{};
  size_t count_ = 0;  // columns in the header
  bool inclusive_ = false;
  Size total_ = 0;
  std::unordered_map<std::string, size_t> lines_;  // of each id
};

}  // namespace

bool CsvProblem::has_gaps() const noexcept {
  return std::any_of(gaps.begin(), gaps.end(), [](const auto& list) { return !list.empty(); });
}

CsvProblem parse_csv(std::string text, const std::string& name) {
  CsvProblem csv;
  csv.text = std::move(text);
  Parser(csv, name).parse();
  return csv;
}

CsvProblem read_csv(const std::string& path) { return parse_csv(read_whole_file(path), path); }

std::string write_csv(const CsvProblem& csv, const Plan& plan) {
  std::string output;
  output.reserve(csv.text.size() + 12 * plan.offsets.size());
  std::string_view rest = csv.text;
  if (rest.substr(0, 3) == "\xEF\xBB\xBF") rest.remove_prefix(3);
  Fields fields;
  bool header = true;
  size_t column = ~size_t{0}, row = 0;  // where an offset is to be replaced
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);
    if (is_blank(line)) continue;
    const std::string added = header ? "offset" : std::to_string(plan.offsets[row++]);
    split(line, fields);
    if (header) {
      column = static_cast<size_t>(std::find(fields.begin(), fields.end(), "offset") - fields.begin());
      header = false;
    }
    if (column == fields.size()) {
      output.append(line).append(",").append(added);
    } else {
      for (size_t i = 0; i < fields.size(); ++i) {
        output.append(i == 0 ? "" : ",").append(i == column ? std::string_view(added) : fields[i]);
      }
    }
    output += '\n';
  }
  return output;
}

std::string write_csv(const Problem& problem, const std::vector<std::string>& ids, const Plan* plan) {
  std::string output = "id,lower,upper,size,alignment";
  output += plan != nullptr ? ",offset\n" : "\n";
  for (size_t i = 0; i < problem.size(); ++i) {
    const auto& [lifetime, size, alignment] = problem[i];
    output.append(ids[i]);
    for (const std::uint64_t value : {lifetime.begin, lifetime.end, size, alignment}) {
      output.append(",").append(std::to_string(value));
    }
    if (plan != nullptr) output.append(",").append(std::to_string(plan->offsets[i]));
    output += '\n';
  }
  return output;
}

}  // namespace memoir
