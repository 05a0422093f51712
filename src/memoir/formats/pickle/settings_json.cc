// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/pickle/settings_json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "memoir/formats/utf8.h"

namespace memoir {

namespace {

constexpr int kDeepest = 16;

/// The shortest digits that read back as the same number.
std::string float_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
  char text[32];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  std::string result = text;
  if (result.find_first_of(".e") == result.npos) result += ".0";
  return result;
}

class JsonWriter {
 public:
  JsonWriter(const PickleValues& values, std::size_t most) : values_(values), most_(most) {}

  bool write(Value value, int depth) {
    if (depth > kDeepest || text.size() > most_) return false;
    switch (value.kind()) {
      case Value::Kind::kNone:
        text += "null";
        return true;
      case Value::Kind::kFalse:
        text += "false";
        return true;
      case Value::Kind::kTrue:
        text += "true";
        return true;
      case Value::Kind::kInt:
        text += std::to_string(value.integer());
        return true;
      case Value::Kind::kBigInt: {
        std::uint64_t magnitude;
        if (values_.natural(value, magnitude) != Fault::kNone) return false;
        text += std::to_string(magnitude);
        return true;
      }
      case Value::Kind::kFloat:
        text += float_text(values_.float_of(value));
        return true;
      case Value::Kind::kString:
        append_json_string(text, values_.text(value.content()));
        return true;
      case Value::Kind::kTuple:
        return array(values_.tuple_items(value), depth);
      case Value::Kind::kSlot:
        break;
    }
    const PickleValues::Type type = values_.type(value);
    if (type == PickleValues::Type::kList) return array(values_.items_of(value), depth);
    return type == PickleValues::Type::kDict && object(values_.dict_of(value), depth);
  }

  std::string text;

 private:
  bool array(std::span<const Value> items, int depth) {
    text += '[';
    bool first = true;
    for (const Value item : items) {
      if (!first) text += ", ";
      first = false;
      if (!write(item, depth + 1)) return false;
    }
    text += ']';
    return true;
  }
  bool object(const PickleValues::Dict& dict, int depth) {
    text += '{';
    bool first = true;
    for (const auto& [key, value] : dict.items) {
      if (key.kind() != Value::Kind::kString) return false;
      if (!first) text += ", ";
      first = false;
      append_json_string(text, values_.text(key.content()));
      text += ": ";
      if (!write(value, depth + 1)) return false;
    }
    text += '}';
    return true;
  }

  const PickleValues& values_;
  std::size_t most_;
};

}  // namespace

std::optional<std::string> to_json(const PickleValues& values, Value value, std::size_t most) {
  JsonWriter writer(values, most);
  if (!writer.write(value, 0) || writer.text.size() > most) return std::nullopt;
  return std::move(writer.text);
}

void append_json_string(std::string& to, std::string_view text) {
  to += '"';
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    size_t size = 1;
    if (c == '"' || c == '\\') {
      to += '\\';
      to += text[0];
    } else if (c < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
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

}  // namespace memoir
