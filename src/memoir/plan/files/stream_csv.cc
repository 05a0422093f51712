// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "memoir/base/error.h"
#include "memoir/base/output.h"
#include "memoir/base/utf8.h"
#include "memoir/base/whole_file.h"
#include "memoir/plan/simple/stream.h"

namespace memoir {
namespace {

class CsvStream {
 public:
  CsvStream(const std::string& name, std::FILE* in, Output& out)
      : name_(name), in_(in), out_(out), planner_([this](Offset offset) { write(offset); }) {}
  ~CsvStream() { std::free(text_); }
  CsvStream(const CsvStream&) = delete;

  Streamed run() {
    std::string line;
    while (next(line)) {
      if (columns_ == 0) {
        read_header(line);
      } else {
        read_row(line);
      }
    }
    if (columns_ == 0) throw Error(name_ + ": is empty; the first line must name the columns");
    planner_.finish();
    return {planner_.count() + empty_, planner_.load(), planner_.arena_size(), planner_.most_live()};
  }

 private:
  enum Column : std::size_t { kId, kLower, kUpper, kSize, kAlignment, kColumns };
  static constexpr std::array<std::string_view, kColumns> kNames{"id", "lower", "upper", "size", "alignment"};

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(readable(name_ + ":" + std::to_string(line_) + ": " + what));
  }

  bool next(std::string& line) {
    while (read_line(line)) {
      ++line_;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
      if (line.find_first_not_of(" \t") != line.npos) return true;
    }
    return false;
  }

  bool read_line(std::string& line) {
    const ssize_t length = ::getline(&text_, &room_, in_);
    if (length < 0) return false;
    line.assign(text_, static_cast<std::size_t>(length));
    if (line.ends_with('\n')) line.pop_back();
    return true;
  }

  void split(std::string_view line) {
    fields_.clear();
    for (;;) {
      const std::size_t end = std::min(line.find(','), line.size());
      std::string_view field = line.substr(0, end);
      while (!field.empty() && (field.front() == ' ' || field.front() == '\t')) field.remove_prefix(1);
      while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.remove_suffix(1);
      fields_.push_back(field);
      if (end == line.size()) return;
      line.remove_prefix(end + 1);
    }
  }

  void read_header(const std::string& line) {
    split(line);
    positions_.fill(~std::size_t{0});
    for (std::size_t position = 0; position < fields_.size(); ++position) {
      std::string_view name = fields_[position];
      if (name == "buffer" || name == "buffer_id") name = "id";
      if (name == "start" || name == "begin") name = "lower";
      if (name == "end") name = "upper", inclusive_ = true;
      std::size_t column = 0;
      while (column < kColumns && kNames[column] != name) ++column;
      if (column == kColumns) {
        refuse(
            "a stream has the columns id, lower, upper (or end, inclusive), size and perhaps alignment, not "
            "'" +
            std::string(name) + "'; a planner that reads the whole file takes it");
      }
      if (positions_[column] != ~std::size_t{0}) refuse("two columns give '" + std::string(name) + "'");
      positions_[column] = position;
    }
    for (std::size_t column = 0; column < kAlignment; ++column) {
      if (positions_[column] == ~std::size_t{0}) refuse("no column '" + std::string(kNames[column]) + "'");
    }
    columns_ = fields_.size();
    out_.put(line);
    out_.put(",offset\n");
  }

  std::uint64_t number(Column column) const {
    const std::string_view text = fields_[positions_[column]];
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      refuse(std::string(kNames[column]) + " is '" + std::string(text.substr(0, 40)) +
             "', not a whole number of 64 bits");
    }
    return value;
  }

  void read_row(const std::string& line) {
    split(line);
    if (fields_.size() != columns_) {
      refuse("has " + std::to_string(fields_.size()) + " fields; the header has " + std::to_string(columns_) +
             " columns");
    }
    Buffer buffer{{number(kLower), number(kUpper)}, number(kSize), 1};
    if (inclusive_ && ++buffer.lifetime.end == 0) refuse("the end is the last tick of 64 bits");
    const std::size_t at = positions_[kAlignment];
    if (at != ~std::size_t{0} && !fields_[at].empty()) buffer.alignment = number(kAlignment);
    if (buffer.size == 0 && buffer.lifetime.begin < buffer.lifetime.end && buffer.alignment != 0) {
      waiting_.push_back({line, true});
      if (waiting_.size() == 1) write_empty();
      return;
    }
    waiting_.push_back({line, false});
    try {
      planner_.add(buffer);
    } catch (const Error& error) {
      refuse(error.what());
    }
  }

  void write(Offset offset) {
    out_.put(waiting_.front().row);
    out_.put(',' + std::to_string(offset) + '\n');
    waiting_.pop_front();
    write_empty();
  }

  /// Rows of 0 bytes, which no window holds, follow the row before them.
  void write_empty() {
    for (; !waiting_.empty() && waiting_.front().empty; waiting_.pop_front(), ++empty_) {
      out_.put(waiting_.front().row);
      out_.put(",0\n");
    }
  }

  const std::string& name_;
  std::FILE* const in_;
  char* text_ = nullptr;  // of getline(), with its room
  std::size_t room_ = 0;
  Output& out_;
  StreamPlanner planner_;
  struct Waiting {
    std::string row;
    bool empty;  // of 0 bytes
  };
  std::deque<Waiting> waiting_;  // the rows of the open window
  std::size_t empty_ = 0;        // rows of 0 bytes
  std::vector<std::string_view> fields_;
  std::array<std::size_t, kColumns> positions_{};
  std::size_t columns_ = 0;
  std::uint64_t line_ = 0;
  bool inclusive_ = false;
};

}  // namespace

Streamed stream_csv(const std::string& input, const std::string& output) {
  const auto in = open_file(input);
  Output out(output);
  try {
    const Streamed streamed = CsvStream(input, in.get(), out).run();
    if (std::ferror(in.get())) throw Error(input + ": cannot be read to its end");
    out.flush();
    return streamed;
  } catch (...) {
    std::remove(output.c_str());
    throw;
  }
}

}  // namespace memoir
