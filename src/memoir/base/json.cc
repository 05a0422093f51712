// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "memoir/base/utf8.h"

namespace memoir {

void append_json_string(std::string& to, std::string_view text) {
  to += '"';
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    std::size_t size = 1;
    if (c == '"' || c == '\\') {
      to += '\\';
      to += text[0];
    } else if (c < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      to += escaped;
    } else if (c < 0x80) {
      to += text[0];
    } else if ((size = utf8_size(text)) != 0) {
      to += text.substr(0, size);
    } else {
      size = 1;
      to += "\xef\xbf\xbd";
    }
    text.remove_prefix(size);
  }
  to += '"';
}

void JsonWriter::separate() {
  if (comma_) {
    to_ += ',';
    if (line_) to_.append("\n").append(indent_);
    else if (style_.spaces) to_ += ' ';
  }
  comma_ = true;
  line_ = false;
}

JsonWriter& JsonWriter::begin(char bracket) {
  separate();
  to_ += bracket;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  to_ += bracket;
  comma_ = true;
  line_ = false;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view text) {
  value(text);
  to_ += style_.spaces ? ": " : ":";
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_json_string(to_, text);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  to_ += json;
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) {
    if (!style_.python_floats) return null();
    return raw(std::isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity");
  }
  char text[32];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, number);
    if (std::strtod(text, nullptr) == number) break;
  }
  raw(text);
  if (std::string_view(text).find_first_of(".e") == std::string_view::npos) to_ += ".0";
  return *this;
}

}  // namespace memoir
