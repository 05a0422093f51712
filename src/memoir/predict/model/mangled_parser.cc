// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/model/mangled_parser.h"

#include <cstddef>

namespace memoir {

namespace {

struct Operator {
  char code[3];
  std::string_view name;
};
constexpr Operator kOperators[] = {
    {"nw", " new"}, {"na", " new[]"}, {"dl", " delete"},   {"da", " delete[]"}, {"ps", "+"},
    {"ng", "-"},    {"ad", "&"},      {"de", "*"},         {"co", "~"},         {"pl", "+"},
    {"mi", "-"},    {"ml", "*"},      {"dv", "/"},         {"rm", "%"},         {"an", "&"},
    {"or", "|"},    {"eo", "^"},      {"aS", "="},         {"pL", "+="},        {"mI", "-="},
    {"mL", "*="},   {"dV", "/="},     {"rM", "%="},        {"aN", "&="},        {"oR", "|="},
    {"eO", "^="},   {"ls", "<<"},     {"rs", ">>"},        {"lS", "<<="},       {"rS", ">>="},
    {"eq", "=="},   {"ne", "!="},     {"lt", "<"},         {"gt", ">"},         {"le", "<="},
    {"ge", ">="},   {"ss", "<=>"},    {"nt", "!"},         {"aa", "&&"},        {"oo", "||"},
    {"pp", "++"},   {"mm", "--"},     {"cm", ","},         {"pm", "->*"},       {"pt", "->"},
    {"cl", "()"},   {"ix", "[]"},     {"aw", " co_await"},
};

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

std::string_view digits_of(size_t value, char (&room)[24]) noexcept {
  char* end = room + sizeof room;
  char* begin = end;
  do *--begin = static_cast<char>('0' + value % 10);
  while ((value /= 10) != 0);
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

class MangledParser::Deeper {
 public:
  explicit Deeper(MangledParser& parser) noexcept : parser_(parser) { ++parser_.depth_; }
  ~Deeper() { --parser_.depth_; }
  bool too_deep() const noexcept { return parser_.depth_ > kMostDepth; }

 private:
  MangledParser& parser_;
};

bool MangledParser::parse() noexcept { return take("_Z") && encoding() && out_.view().size() > 0; }

bool MangledParser::take(std::string_view word) noexcept {
  for (size_t i = 0; i < word.size(); ++i)
    if (peek(i) != word[i]) return false;
  at_ += word.size();
  return true;
}

bool MangledParser::number(size_t& value) noexcept {
  if (!is_digit(peek())) return false;
  for (value = 0; is_digit(peek()); ++at_) {
    value = value * 10 + static_cast<size_t>(peek() - '0');
    if (value > text_.size()) return false;
  }
  return true;
}

bool MangledParser::source_name(std::string_view& name) noexcept {
  size_t size = 0;
  if (!number(size) || size == 0 || size > text_.size() - at_) return false;
  name = {text_.data() + at_, size};
  at_ += size;
  return true;
}

bool MangledParser::sequence() noexcept {
  while (is_digit(peek()) || (peek() >= 'A' && peek() <= 'Z')) ++at_;
  return take('_');
}

bool MangledParser::offset_number() noexcept {
  take('n');
  while (is_digit(peek())) ++at_;
  return take('_');
}

void MangledParser::part(std::string_view text) noexcept {
  if (muted_) return;
  if (!out_.view().empty()) out_.add("::");
  last_begin_ = out_.view().size();
  out_.add(text);
  last_size_ = out_.view().size() - last_begin_;
}

bool MangledParser::encoding() noexcept {
  const Deeper deeper(*this);
  if (deeper.too_deep()) return false;
  take("GTt");         // of transactions
  while (take('T')) {  // thunks: what they lead to
    if (take('h')) {
      if (!offset_number()) return false;
    } else if (take('v')) {
      if (!offset_number() || !offset_number()) return false;
    } else {
      return false;
    }
  }
  return name();
}

bool MangledParser::name() noexcept {
  const Deeper deeper(*this);
  if (deeper.too_deep()) return false;
  if (take('N')) return nested();
  if (take('Z')) return local();
  if (take("St")) part("std");
  return unqualified() && (peek() != 'I' || pass_arguments());
}

bool MangledParser::nested() noexcept {
  while (peek() == 'r' || peek() == 'V' || peek() == 'K') ++at_;
  if (peek() == 'R' || peek() == 'O') ++at_;
  for (bool first = true; !take('E'); first = false) {
    if (at_ >= text_.size()) return false;
    if (peek() == 'I') {
      if (first || !pass_arguments()) return false;
    } else if (peek() == 'S' && (!muted_ || peek(1) == 't')) {
      if (!first || !standard_prefix()) return false;
    } else if (muted_ && (peek() == 'S' || peek() == 'T')) {
      if (!pass_type())
        return false;            // what stands for an earlier part of the name: inside of arguments alone
    } else if (peek() == 'M') {  // of a lambda in an initializer
      ++at_;
    } else if (!unqualified()) {
      return false;
    }
  }
  return true;
}

bool MangledParser::standard_prefix() noexcept {
  if (take("St")) return part("std"), true;
  struct Short {
    char letter;
    std::string_view name, whole;
  };
  static constexpr Short kShort[] = {
      {'a', "allocator", "allocator"},   {'b', "basic_string", "basic_string"},
      {'s', "string", "basic_string"},   {'i', "istream", "basic_istream"},
      {'o', "ostream", "basic_ostream"}, {'d', "iostream", "basic_iostream"},
  };
  for (const Short& one : kShort) {
    if (peek(1) != one.letter) continue;
    at_ += 2;
    part("std");
    // Constructors are named by the whole type.
    part(peek() == 'C' || peek() == 'D' ? one.whole : one.name);
    return true;
  }
  return false;
}

bool MangledParser::local() noexcept {
  if (!encoding()) return false;
  while (!take('E')) {  // the types of its parameters
    if (at_ >= text_.size() || !pass_type()) return false;
  }
  if (take('s')) return true;  // a text
  if (take('d')) {
    if (!offset_number()) return false;
  }
  if (!name()) return false;
  if (take("__")) {
    size_t ignored = 0;
    return number(ignored) && take('_');
  }
  if (peek() == '_' && is_digit(peek(1))) at_ += 2;
  return true;
}

bool MangledParser::pass_tags() noexcept {
  std::string_view ignored;
  while (take('B')) {
    if (!source_name(ignored)) return false;
  }
  return true;
}

bool MangledParser::unqualified() noexcept {
  if (peek() == 'L' && is_digit(peek(1))) ++at_;  // of this file alone
  if (is_digit(peek())) {
    std::string_view text;
    if (!source_name(text)) return false;
    if (text.size() >= 10 && text.substr(0, 10) == "_GLOBAL__N") text = "(anonymous namespace)";
    // Rust ends names with a hash of the build.
    bool hash = text.size() == 17 && text[0] == 'h' && peek() == 'E';
    for (size_t i = 1; hash && i < text.size(); ++i)
      hash = is_digit(text[i]) || (text[i] >= 'a' && text[i] <= 'f');
    if (!hash) part(text);
    return pass_tags();
  }
  if (peek() == 'C' || (peek() == 'D' && is_digit(peek(1)))) {
    const bool ends = peek() == 'D';
    if (!ends && peek(1) == 'I') return false;  // inherited
    if (!is_digit(peek(1))) return false;
    at_ += 2;
    if (!muted_) {
      char copy[PlainName::kMost];
      size_t size = 0;
      if (ends) copy[size++] = '~';
      const std::string_view last{out_.view().data() + last_begin_, last_size_};
      for (const char c : last)
        if (size < sizeof copy) copy[size++] = c;
      part({copy, size});
    }
    return pass_tags();
  }
  if (peek() == 'U' && (peek(1) == 't' || peek(1) == 'l')) return unnamed();
  return operator_name() && pass_tags();
}

bool MangledParser::unnamed() noexcept {
  const bool lambda = peek(1) == 'l';
  at_ += 2;
  if (lambda) {
    while (!take('E')) {
      if (at_ >= text_.size() || !pass_type()) return false;
    }
  }
  size_t count = 0;
  const bool first = take('_');
  if (!first && !(number(count) && take('_'))) return false;
  if (muted_) return true;
  part(lambda ? "{lambda#" : "{unnamed type#");
  char room[24];
  out_.add(digits_of(first ? 1 : count + 2, room));
  out_.add('}');
  last_size_ = out_.view().size() - last_begin_;
  return pass_tags();
}

bool MangledParser::operator_name() noexcept {
  if (take("cv")) {
    if (!pass_type()) return false;
    part("operator cast");
    return true;
  }
  if (take("li")) {
    std::string_view suffix;
    if (!source_name(suffix)) return false;
    part("operator\"\" ");
    if (!muted_) out_.add(suffix);
    return true;
  }
  for (const Operator& one : kOperators) {
    if (peek() != one.code[0] || peek(1) != one.code[1]) continue;
    at_ += 2;
    part("operator");
    if (!muted_) out_.add(one.name);
    return true;
  }
  return false;
}

bool MangledParser::pass_name() noexcept {
  const bool before = muted_;
  muted_ = true;
  const bool done = name();
  muted_ = before;
  return done;
}

bool MangledParser::pass_arguments() noexcept {
  const Deeper deeper(*this);
  if (deeper.too_deep() || !take('I')) return false;
  while (!take('E')) {
    if (at_ >= text_.size() || !pass_argument()) return false;
  }
  return true;
}

bool MangledParser::pass_argument() noexcept {
  const Deeper deeper(*this);
  if (deeper.too_deep()) return false;
  if (peek() == 'L') return pass_literal();
  if (take("Xad"))
    return peek() == 'L' && pass_literal() && take('E');  // an address; other expressions are rare
  if (take('J')) {
    while (!take('E')) {
      if (at_ >= text_.size() || !pass_argument()) return false;
    }
    return true;
  }
  return pass_type();
}

bool MangledParser::pass_literal() noexcept {
  ++at_;
  if (take("_Z")) {
    const bool before = muted_;
    muted_ = true;
    bool done = encoding();
    while (done && peek() != 'E') done = at_ < text_.size() && pass_type();
    muted_ = before;
    return done && take('E');
  }
  if (!pass_type()) return false;
  while (is_digit(peek()) || peek() == 'n' || (peek() >= 'a' && peek() <= 'f') || peek() == '_') ++at_;
  return take('E');
}

bool MangledParser::pass_type() noexcept {
  const Deeper deeper(*this);
  if (deeper.too_deep()) return false;
  while (peek() == 'r' || peek() == 'V' || peek() == 'K' || peek() == 'P' || peek() == 'R' || peek() == 'O' ||
         peek() == 'C' || peek() == 'G')
    ++at_;
  const char c = peek();
  switch (c) {
    case 'D': {
      const char next = peek(1);
      at_ += 2;
      if (next == 'p') return pass_type();
      if (next == 'o') return pass_type();
      if (next == 'v') {
        size_t ignored = 0;
        return number(ignored) && take('_') && pass_type();
      }
      for (const char builtin : std::string_view("defhisuacn"))
        if (next == builtin) return true;
      return false;
    }
    case 'F':
      ++at_;
      take('Y');
      while (!take('E')) {
        if ((peek() == 'R' || peek() == 'O') && peek(1) == 'E') {
          ++at_;
          continue;
        }
        if (at_ >= text_.size() || !pass_type()) return false;
      }
      return true;
    case 'A': {
      ++at_;
      while (is_digit(peek())) ++at_;
      return take('_') && pass_type();
    }
    case 'M':
      ++at_;
      return pass_type() && pass_type();
    case 'T':
      ++at_;
      return sequence() && (peek() != 'I' || pass_arguments());
    case 'S':
      if (peek(1) == 't') return pass_name();
      if (peek(1) == '_' || is_digit(peek(1)) || (peek(1) >= 'A' && peek(1) <= 'Z')) {
        ++at_;
        if (!sequence()) return false;
      } else {
        at_ += 2;  // one of the standard library's
      }
      return pass_tags() && (peek() != 'I' || pass_arguments());
    case 'N':
    case 'Z':
      return pass_name();
    case 'U': {
      if (peek(1) == 'l' || peek(1) == 't') return pass_name();
      ++at_;
      std::string_view ignored;
      return source_name(ignored) && (peek() != 'I' || pass_arguments()) && pass_type();
    }
    default:
      if (is_digit(c)) return pass_name();
      if (c >= 'a' && c <= 'z') {
        ++at_;
        std::string_view ignored;
        return c != 'u' || source_name(ignored);
      }
      return false;
  }
}

}  // namespace memoir
