// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/model/plain_name.h"

#include <array>

#include "memoir/predict/model/mangled_parser.h"

namespace memoir {

namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
/// Letters of identifiers, by their codes.
constexpr std::array<bool, 256> kIsWord = [] {
  std::array<bool, 256> table{};
  for (int c = 0; c < 256; ++c)
    table[static_cast<size_t>(c)] =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
  return table;
}();
bool is_word(char c) noexcept { return kIsWord[static_cast<unsigned char>(c)]; }

// string_view::substr can throw, and with it libstdc++ would come in.
std::string_view head(std::string_view text, size_t length) noexcept {
  return {text.data(), length < text.size() ? length : text.size()};
}
std::string_view tail(std::string_view text, size_t from) noexcept {
  return from < text.size() ? std::string_view{text.data() + from, text.size() - from} : std::string_view{};
}

/// Without what compilers put behind the name of a function that they made another one of.
std::string_view without_suffixes(std::string_view name) noexcept {
  name = head(name, name.find('@'));
  static constexpr std::string_view kSuffixes[] = {".isra.",     ".part.", ".constprop.", ".cold",
                                                   ".lto_priv.", ".llvm.", ".localalias"};
  for (const std::string_view suffix : kSuffixes) {
    const size_t at = name.find(suffix);
    if (at != name.npos && at > 0) name = head(name, at);
  }
  size_t end = name.size();
  while (end > 0 && is_digit(name[end - 1])) --end;
  if (end > 1 && end < name.size() && name[end - 1] == '.') name = head(name, end - 1);
  return name;
}

}  // namespace

/// A name as demanglers print it.
class ReadableParser {
 public:
  ReadableParser(std::string_view text, PlainName& out) noexcept : text_(text), out_(out) {}

  void parse() noexcept {
    while (at_ < text_.size() && step()) {
    }
    std::string_view plain = out_.view();
    if (plain.starts_with("::")) {
      const std::string_view rest = tail(plain, 2);
      out_.clear();
      for (const char c : rest) out_.add(c);  // to the left: reads ahead of what it writes
    }
  }

 private:
  bool at(std::string_view word) const noexcept { return tail(text_, at_).starts_with(word); }

  /// Past what matches the bracket that stands here.
  void pass_brackets(char open, char close) noexcept {
    int depth = 0;
    const char* const begin = text_.data();
    const char* const end = begin + text_.size();
    for (const char* place = begin + at_; place < end; ++place) {
      const char c = *place;
      if (is_word(c)) continue;
      if (c == open) ++depth;
      if (c == close && !(c == '>' && place > begin && place[-1] == '-') && --depth == 0) {
        at_ = static_cast<size_t>(place - begin) + 1;
        return;
      }
    }
    at_ = text_.size();
  }

  bool step() noexcept {
    const char c = text_[at_];
    const std::string_view so_far = out_.view();
    if (is_word(c)) {
      const bool begins = so_far.empty() || so_far.back() == ':';
      if (c == 'o' && begins && at("operator") && !is_word(at_ + 8 < text_.size() ? text_[at_ + 8] : ' ')) {
        pass_operator();
        return true;
      }
      do out_.add(text_[at_]);
      while (++at_ < text_.size() && is_word(text_[at_]));
      return true;
    }
    switch (c) {
      case '<':
        pass_brackets('<', '>');
        return true;
      case '[':
        pass_brackets('[', ']');
        return true;
      case '(': {
        if (at("(anonymous namespace)")) {
          out_.add("(anonymous namespace)");
          at_ += 21;
          return true;
        }
        const bool nothing = so_far.empty();  // decltype (...)
        pass_brackets('(', ')');
        return nothing || local();
      }
      case '{':
        braces();
        return true;
      case ' ':
        if (at(" [clone")) return false;
        out_.clear();  // it was a type
        ++at_;
        return true;
      default:
        out_.add(c);
        ++at_;
        return true;
    }
  }

  /// Behind parameters: is it a name inside of that function?
  bool local() noexcept {
    static constexpr std::string_view kQualifiers[] = {" const", " volatile", " &&", " &", " noexcept"};
    for (const std::string_view word : kQualifiers)
      if (at(word)) at_ += word.size();
    return at("::");
  }

  void braces() noexcept {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '(') {
        pass_brackets('(', ')');
        continue;
      }
      out_.add(c);
      ++at_;
      if (c == '{') ++depth;
      if (c == '}' && --depth == 0) return;
    }
  }

  void pass_operator() noexcept {
    out_.add("operator");
    at_ += 8;
    if (at("()")) {
      out_.add("()");
      at_ += 2;
      return;
    }
    if (at("\"\" ")) {
      out_.add("\"\" ");
      at_ += 3;
      return;
    }
    for (const std::string_view word : {" new[]", " new", " delete[]", " delete", " co_await"}) {
      if (!at(word) || is_word(at_ + word.size() < text_.size() ? text_[at_ + word.size()] : ' ')) continue;
      out_.add(word);
      at_ += word.size();
      return;
    }
    if (at(" ")) {
      out_.add(" cast");
      while (at_ < text_.size() && text_[at_] != '(') {
        if (text_[at_] == '<') pass_brackets('<', '>');
        else ++at_;
      }
      return;
    }
    static constexpr std::string_view kSigns[] = {
        // longest first
        "<=>", "->*", "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++",
        "--",  "->",  "+=",  "-=",  "*=", "/=", "%=", "&=", "|=", "^=", "[]", "+",  "-",
        "*",   "/",   "%",   "^",   "&",  "|",  "~",  "!",  "=",  "<",  ">",  ","};
    for (const std::string_view sign : kSigns) {
      if (!at(sign)) continue;
      out_.add(sign);
      at_ += sign.size();
      break;
    }
    if (at(" <")) ++at_;
  }

  std::string_view text_;
  PlainName& out_;
  size_t at_ = 0;
};

PlainName::PlainName(std::string_view name) noexcept {
  if (name.starts_with("_Z")) {
    if (MangledParser(name, *this).parse()) return;
    clear();
    add(without_suffixes(name));
    return;
  }
  size_t letters = 0;
  while (letters < name.size() && (is_word(name[letters]) || name[letters] == '.' || name[letters] == '@'))
    ++letters;
  if (letters < name.size()) {
    ReadableParser(name, *this).parse();
    if (size_ > 0) return;
  }
  add(without_suffixes(name));
}

bool is_allocation_name(std::string_view plain) noexcept {
  if (plain.starts_with("memoir::malloc_::")) return true;  // where it is part of the program
  if (plain == "operator new" || plain == "operator new[]") return true;
  for (const std::string_view prefix : {"__libc_", "__interceptor_"}) {
    if (plain.starts_with(prefix)) {
      plain = tail(plain, prefix.size());
      break;
    }
  }
  for (const std::string_view known : {"malloc", "calloc", "realloc", "aligned_alloc", "memalign",
                                       "posix_memalign", "valloc", "pvalloc", "reallocarray"})
    if (plain == known) return true;
  return false;
}

std::string_view program_name(std::string_view path) noexcept {
  path.remove_prefix(path.rfind('/') + 1);
  path.remove_suffix(path.size() - (path.find_last_not_of("0123456789.-_") + 1));
  return path;
}

}  // namespace memoir
