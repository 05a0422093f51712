// SPDX-License-Identifier: Apache-2.0
//
// JSON, appended to a string. The writer puts the commas; that begins and ends match, and that each value of
// an object has a key, is its caller's affair.
//
//   JsonWriter json(text);
//   json.begin_object().key("size").value(64).key("frames").begin_array().end_array().end_object();
//
//   {"size": 64, "frames": []}
//
// Any text can be written: quotes, backslashes and control characters (with U+007F) are escaped, and each
// byte that is not valid UTF-8, surrogates among them, becomes U+FFFD. Numbers are written so that they read
// back as the same.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace memoir {

/// `text` between quotes.
void append_json_string(std::string& to, std::string_view text);

struct JsonStyle {
  bool spaces = true;          // after a comma and a colon
  bool python_floats = false;  // NaN, Infinity, -Infinity, as Python has them; else they are null
};

class JsonWriter {
 public:
  /// Appends to `to`, which the caller keeps alive.
  explicit JsonWriter(std::string& to, JsonStyle style = {}) : to_(to), style_(style) {}

  JsonWriter& begin_object() { return begin('{'); }
  JsonWriter& end_object() { return end('}'); }
  JsonWriter& begin_array() { return begin('['); }
  JsonWriter& end_array() { return end(']'); }
  /// Of the value that follows.
  JsonWriter& key(std::string_view text);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool truth) { return raw(truth ? "true" : "false"); }
  template <std::integral Integer>
  JsonWriter& value(Integer number) {
    return raw(std::to_string(number));
  }
  /// The shortest digits that read back as this number, with a point or an exponent.
  JsonWriter& value(double number);
  JsonWriter& null() { return raw("null"); }
  /// What is JSON already.
  JsonWriter& raw(std::string_view json);
  /// The next value, or key, stands on a line of its own, unless it is the first in its array or object.
  JsonWriter& next_line(std::string_view indent = "") {
    line_ = true;
    indent_ = indent;
    return *this;
  }

 private:
  JsonWriter& begin(char bracket);
  JsonWriter& end(char bracket);
  void separate();

  std::string& to_;
  JsonStyle style_;
  bool comma_ = false;  // before what comes next
  bool line_ = false;
  std::string_view indent_;
};

}  // namespace memoir
