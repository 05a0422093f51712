// SPDX-License-Identifier: Apache-2.0
//
// Lines and fields of CSV, for the readers of problems (csv.h) and of what goes with them (csv_tables.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memoir {

using Fields = std::vector<std::string_view>;

/// Without blanks and tabs around it.
std::string_view trim(std::string_view text);

/// Takes the next line off `rest`, without its end (LF or CRLF).
std::string_view next_line(std::string_view& rest);

/// A byte order mark at the start is not part of the text.
std::string_view without_mark(std::string_view text);

/// Fields are separated by commas; one in double quotes may hold commas.
void split(std::string_view line, Fields& fields);

/// What is in double quotes, or the text as it is.
std::string_view unquoted(std::string_view text);

/// The words of a list: separated by blanks, perhaps in quotes as a whole.
Fields words(std::string_view text);

/// Knows which line it reads; every error names file and line.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& name) : rest_(without_mark(text)), name_(name) {}

  /// The next line that is not blank; false after the last.
  bool next_line(std::string_view& line);
  /// Its fields.
  bool next(Fields& fields);
  std::size_t line() const { return line_; }

  /// Throws Error: "name:line: what".
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse(std::size_t line, const std::string& what) const;
  /// A whole number of 64 bits; `what` names it in the error.
  std::uint64_t number(std::string_view text, std::string_view what) const;

 private:
  std::string_view rest_;
  const std::string name_;
  std::size_t line_ = 0;
};

}  // namespace memoir
