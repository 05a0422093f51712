// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/json.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "doctest/doctest.h"
#include "memoir/base/utf8.h"

namespace memoir {
namespace {

std::string quoted(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return json;
}

std::string number(double value, JsonStyle style = {}) {
  std::string json;
  JsonWriter(json, style).value(value);
  return json;
}

}  // namespace

TEST_CASE("the example of json.h") {
  std::string json;
  JsonWriter(json).begin_object().key("size").value(64).key("frames").begin_array().end_array().end_object();
  CHECK(json == R"({"size": 64, "frames": []})");
}

TEST_CASE("nested, with and without spaces, on lines") {
  for (const bool spaces : {true, false}) {
    std::string json;
    JsonWriter writer(json, {.spaces = spaces});
    writer.begin_array();
    for (int i = 0; i < 2; ++i) {
      writer.next_line(" ").begin_object().key("a").begin_array().value(i).null().value(true).end_array();
      writer.key("b").raw("{}").key("c").begin_object().end_object().end_object();
    }
    writer.value("last").end_array();
    CHECK(json == (spaces ? "[{\"a\": [0, null, true], \"b\": {}, \"c\": {}},\n"
                            " {\"a\": [1, null, true], \"b\": {}, \"c\": {}}, \"last\"]"
                          : "[{\"a\":[0,null,true],\"b\":{},\"c\":{}},\n"
                            " {\"a\":[1,null,true],\"b\":{},\"c\":{}},\"last\"]"));
  }
}

TEST_CASE("quotes, backslashes and every control character are escaped, and nothing is lost") {
  CHECK(quoted("a \"b\" \\ c") == R"("a \"b\" \\ c")");
  CHECK(quoted(std::string_view("\0\n\t\x1f\x7f", 5)) == R"("\u0000\u000a\u0009\u001f\u007f")");
  for (int c = 0; c < 0x20; ++c) {
    char expected[16];
    std::snprintf(expected, sizeof expected, "\"x\\u%04xy\"", static_cast<unsigned>(c));
    CHECK(quoted(std::string{'x', static_cast<char>(c), 'y'}) == expected);
  }
}

TEST_CASE("UTF-8 stays; each byte that is none becomes U+FFFD") {
  const std::string replaced = "\xef\xbf\xbd";
  CHECK(quoted("\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80") == "\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80\"");
  CHECK(quoted("a\xff") == "\"a" + replaced + "\"");
  CHECK(quoted("\xe2\x82") == "\"" + replaced + replaced + "\"");  // cut off
  CHECK(quoted("\xe2\"") == "\"" + replaced + "\\\"\"");           // a quote after a first byte
  CHECK(quoted("\xed\xa0\x80") == "\"" + replaced + replaced + replaced + "\"");  // a surrogate
  CHECK(quoted("\xc0\xaf") == "\"" + replaced + replaced + "\"");                 // longer than it must be
  // beyond U+10FFFF
  CHECK(quoted("\xf4\x90\x80\x80") == "\"" + replaced + replaced + replaced + replaced + "\"");
}

TEST_CASE("whatever the bytes, the text is one valid string") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 12, '\0');
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() % 0x40 : random());
    const std::string json = quoted(text);
    REQUIRE(valid_utf8(json) == json);
    for (size_t i = 1; i + 1 < json.size(); ++i) {
      REQUIRE(static_cast<unsigned char>(json[i]) >= 0x20);
      REQUIRE(json[i] != '"');
      if (json[i] == '\\') i += json[i + 1] == 'u' ? 5 : 1;
      REQUIRE(i + 1 < json.size());
    }
  }
}

TEST_CASE("numbers read back as the same") {
  std::string json;
  JsonWriter(json).begin_array().value(~std::uint64_t{0}).value(std::int64_t{-5}).value(0u).end_array();
  CHECK(json == "[18446744073709551615, -5, 0]");
  CHECK(number(0.1) == "0.1");
  CHECK(number(3) == "3.0");
  CHECK(number(1e300) == "1e+300");
  CHECK(number(-0.0) == "-0.0");
  std::mt19937_64 random(2);
  for (int round = 0; round < 2'000; ++round) {
    const double value = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 150);
    REQUIRE(std::strtod(number(value).c_str(), nullptr) == value);
  }
}

TEST_CASE("what is not a number is null, or as Python has it") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double value : {infinity, -infinity, nan}) CHECK(number(value) == "null");
  CHECK(number(infinity, {.python_floats = true}) == "Infinity");
  CHECK(number(-infinity, {.python_floats = true}) == "-Infinity");
  CHECK(number(nan, {.python_floats = true}) == "NaN");
}

}  // namespace memoir
