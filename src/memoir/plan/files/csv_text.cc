// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/csv_text.h"

#include <algorithm>
#include <charconv>

#include "memoir/base/error.h"
#include "memoir/base/utf8.h"

namespace memoir {

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string_view next_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

std::string_view without_mark(std::string_view text) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  return text;
}

void split(std::string_view line, Fields& fields) {
  fields.clear();
  for (std::size_t begin = 0;;) {
    std::size_t end = begin;
    for (bool quoted = false; end < line.size() && (quoted || line[end] != ','); ++end) {
      if (line[end] == '"') quoted = !quoted;
    }
    fields.push_back(trim(line.substr(begin, end - begin)));
    if (end == line.size()) return;
    begin = end + 1;
  }
}

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') return text.substr(1, text.size() - 2);
  return text;
}

Fields words(std::string_view text) {
  Fields out;
  for (text = trim(unquoted(text)); !text.empty();) {
    const std::size_t length = std::min(text.find(' '), text.size());
    out.push_back(text.substr(0, length));
    text = trim(text.substr(length));
  }
  return out;
}

bool CsvReader::next_line(std::string_view& line) {
  while (!rest_.empty()) {
    line = memoir::next_line(rest_);
    ++line_;
    if (!trim(line).empty()) return true;
  }
  return false;
}

bool CsvReader::next(Fields& fields) {
  std::string_view line;
  if (!next_line(line)) return false;
  split(line, fields);
  return true;
}

void CsvReader::refuse(const std::string& what) const { refuse(line_, what); }

void CsvReader::refuse(std::size_t line, const std::string& what) const {
  throw Error(readable(name_ + ":" + std::to_string(line) + ": " + what));
}

std::uint64_t CsvReader::number(std::string_view text, std::string_view what) const {
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

}  // namespace memoir
