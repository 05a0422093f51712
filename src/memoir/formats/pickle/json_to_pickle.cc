// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>

#include "memoir/base/utf8.h"
#include "memoir/formats/pickle/settings_json.h"

namespace memoir {

namespace {

constexpr int kDeepest = 32;

void append_utf8(std::string& to, std::uint32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += static_cast<char>(0xc0 | c >> 6);
    to += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    to += static_cast<char>(0xe0 | c >> 12);
    to += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    to += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    to += static_cast<char>(0xf0 | c >> 18);
    to += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    to += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    to += static_cast<char>(0x80 | (c & 0x3f));
  }
}

/// Walks a JSON text (RFC 8259; NaN and the infinities too, as Python writes them). Without a writer it only
/// looks whether it is one.
class JsonReader {
 public:
  JsonReader(std::string_view text, PickleWriter* writer) : rest_(text), writer_(writer) {}

  bool whole() { return value(0) && (skip_space(), rest_.empty()); }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\n' || rest_[0] == '\r'))
      rest_.remove_prefix(1);
  }
  bool take(std::string_view expected) {
    skip_space();
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  bool word(std::string_view expected, void (*write)(PickleWriter&)) {
    if (!take(expected)) return false;
    if (writer_ != nullptr) write(*writer_);
    return true;
  }
  bool value(int depth) {
    if (depth > kDeepest) return false;
    skip_space();
    if (rest_.empty()) return false;
    switch (rest_[0]) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return word("true", [](PickleWriter& w) { w.boolean(true); });
      case 'f':
        return word("false", [](PickleWriter& w) { w.boolean(false); });
      case 'n':
        return word("null", [](PickleWriter& w) { w.none(); });
      default:
        return number();
    }
  }
  bool object(int depth) {
    take("{");
    if (writer_ != nullptr) writer_->begin_dict();
    if (!take("}")) {
      do {
        skip_space();
        if (!string() || !take(":") || !value(depth + 1)) return false;
      } while (take(","));
      if (!take("}")) return false;
    }
    if (writer_ != nullptr) writer_->end_dict();
    return true;
  }
  bool array(int depth) {
    take("[");
    if (writer_ != nullptr) writer_->begin_list();
    if (!take("]")) {
      do {
        if (writer_ != nullptr) writer_->item();
        if (!value(depth + 1)) return false;
      } while (take(","));
      if (!take("]")) return false;
    }
    if (writer_ != nullptr) writer_->end_list();
    return true;
  }
  bool number() {
    const size_t size = std::min(rest_.find_first_of(",]} \t\n\r"), rest_.size());
    const std::string digits(rest_.substr(0, size));
    if (digits.empty() || digits.find_first_not_of("+-.0123456789eENaInfity") != digits.npos) return false;
    char* end = nullptr;
    const bool whole = digits.find_first_of(".eEIN") == digits.npos;
    errno = 0;
    if (whole && digits[0] == '-') {
      const long long integer = std::strtoll(digits.c_str(), &end, 10);
      if (*end != '\0' || errno != 0) return false;
      if (writer_ != nullptr) writer_->integer(std::int64_t{integer});
    } else if (whole) {
      const unsigned long long natural = std::strtoull(digits.c_str(), &end, 10);
      if (*end != '\0' || errno != 0) return false;
      if (writer_ != nullptr) writer_->natural(natural);
    } else {
      const double real = std::strtod(digits.c_str(), &end);
      if (*end != '\0') return false;
      if (writer_ != nullptr) writer_->number(real);
    }
    rest_.remove_prefix(size);
    return true;
  }
  std::optional<std::uint32_t> four_digits() {
    if (rest_.size() < 4) return std::nullopt;
    const std::string digits(rest_.substr(0, 4));
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) return std::nullopt;
    rest_.remove_prefix(4);
    return static_cast<std::uint32_t>(std::strtoul(digits.c_str(), nullptr, 16));
  }
  bool escape(std::string& text) {
    if (rest_.empty()) return false;
    const char c = rest_[0];
    rest_.remove_prefix(1);
    constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (const size_t known = kFrom.find(c); known != kFrom.npos) {
      text += kTo[known];
      return true;
    }
    if (c != 'u') return false;
    std::optional<std::uint32_t> code = four_digits();
    if (!code) return false;
    if (*code >= 0xd800 && *code < 0xdc00 && rest_.starts_with("\\u")) {  // the first of a pair
      rest_.remove_prefix(2);
      const auto low = four_digits();
      if (!low || *low < 0xdc00 || *low >= 0xe000) return false;
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
    } else if (*code >= 0xd800 && *code < 0xe000) {
      code = 0xfffd;
    }
    append_utf8(text, *code);
    return true;
  }
  bool string() {
    if (!rest_.starts_with('"')) return false;
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.starts_with('"')) {
      const size_t size = utf8_size(rest_);
      if (size == 0 || static_cast<unsigned char>(rest_[0]) < 0x20) return false;
      if (rest_[0] == '\\') {
        rest_.remove_prefix(1);
        if (!escape(text)) return false;
        continue;
      }
      text += rest_.substr(0, size);
      rest_.remove_prefix(size);
    }
    rest_.remove_prefix(1);
    if (writer_ != nullptr) writer_->string(text);
    return true;
  }

  std::string_view rest_;
  PickleWriter* writer_;
};

}  // namespace

bool write_json(std::string_view json, PickleWriter& writer) {
  return JsonReader(json, nullptr).whole() && JsonReader(json, &writer).whole();
}

}  // namespace memoir
