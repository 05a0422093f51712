// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/secrets.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace memoir {

namespace {

// Of names without their - and _, in small letters: what they end with, and what they are.
constexpr std::string_view kEnds[] = {
    "password",    "passwd",        "passphrase",    "passcode",         "secret",
    "token",       "apikey",        "accesskey",     "secretkey",        "privatekey",
    "authkey",     "signingkey",    "encryptionkey", "masterkey",        "credential",
    "credentials", "authorization", "cookie",        "connectionstring",
};
constexpr std::string_view kNames[] = {"pass",      "pwd",     "auth",   "dbpass", "requirepass", "userpass",
                                       "storepass", "keypass", "pgpass", "bearer", "jwt"};
// Of tokens, which are long.
constexpr std::string_view kTokens[] = {
    "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "sk-",  "xoxb-", "xoxp-",
    "AKIA", "ASIA", "AIza", "hf_",         "eyJ",    "npm_", "pypi-",
};
constexpr std::size_t kLeastToken = 20;
// Programs whose -p has its password right behind it.
constexpr std::string_view kGluedPassword[] = {"mysql", "mariadb", "sshpass"};
constexpr std::string_view kMask = "***";

constexpr char small(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_secret_name(std::string_view name) noexcept {
  if (name.starts_with("--no-") || name.starts_with("--no_")) return false;
  char plain[64];
  std::size_t length = 0;
  for (const char c : name) {
    if (c == '-' || c == '_' || c == '.') continue;
    if (length == sizeof plain) {  // its end counts
      std::memmove(plain, plain + 1, sizeof plain - 1);
      --length;
    }
    plain[length++] = small(c);
  }
  const std::string_view squeezed(plain, length);
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](auto end) { return squeezed.ends_with(end); }) ||
         std::find(std::begin(kNames), std::end(kNames), squeezed) != std::end(kNames);
}

bool is(std::string_view word, std::string_view small_word) noexcept {
  return std::equal(word.begin(), word.end(), small_word.begin(), small_word.end(),
                    [](char a, char b) { return small(a) == b; });
}

/// As substr(), which throws: preloaded libraries have no exceptions. `begin` is in the text or its end.
constexpr std::string_view part(std::string_view text, std::size_t begin,
                                std::size_t length = std::string_view::npos) noexcept {
  return {text.data() + begin, std::min(length, text.size() - begin)};
}

constexpr bool is_quote(char c) noexcept { return c == '\'' || c == '"'; }
constexpr bool ends_word(char c) noexcept {
  return c == '\0' || c == ' ' || c == '\t' || c == '\n' || is_quote(c) || c == ';' || c == '&' || c == '|' ||
         c == '(' || c == ')' || c == ',';
}

/// The text is read and written in one buffer: what is written never is longer.
class Masker {
 public:
  Masker(char* text, std::size_t size) noexcept : text_(text), size_(size) {}

  std::size_t run() noexcept {
    std::size_t argument = 0;  // where the present one begins
    while (read_ < size_) {
      if (ends_word(text_[read_])) {
        if (text_[read_] == '\0') argument = read_ + 1;
        keep_to(read_ + 1);
        continue;
      }
      if (argument == 0) note_program();
      take_word(read_ == argument);
    }
    return written_;
  }

 private:
  enum class Next { kNothing, kAll, kBehindColon, kToken };

  std::size_t end_of(std::size_t from, bool (*ends)(char)) const noexcept {
    while (from < size_ && !ends(text_[from])) ++from;
    return from;
  }
  static bool ends_argument(char c) noexcept { return c == '\0'; }

  void keep_to(std::size_t end) noexcept {
    std::memmove(text_ + written_, text_ + read_, end - read_);
    written_ += end - read_;
    read_ = end;
  }
  void mask_to(std::size_t end) noexcept {
    const std::size_t length = std::min(end - read_, kMask.size());
    std::memcpy(text_ + written_, kMask.data(), length);
    written_ += length;
    read_ = end;
  }
  /// A value that begins here, or whose quotes have just begun: to the end of its quotes, of its argument
  /// where that is all of it, or of its word.
  void mask_value(bool is_rest_of_argument) noexcept {
    const bool in_quotes = read_ > 0 && is_quote(text_[read_ - 1]);
    if (in_quotes || (read_ < size_ && is_quote(text_[read_]))) {
      const char quote = text_[in_quotes ? read_ - 1 : read_];
      if (!in_quotes) keep_to(read_ + 1);
      std::size_t end = read_;
      while (end < size_ && text_[end] != quote && text_[end] != '\0') ++end;
      mask_to(end);
    } else {
      mask_to(end_of(read_, is_rest_of_argument ? &ends_argument : &ends_word));
    }
  }

  void note_program() noexcept {
    const std::string_view path(text_, end_of(0, &ends_argument));
    const std::string_view name = part(path, path.rfind('/') + 1);  // npos + 1 is 0
    glued_ = std::any_of(std::begin(kGluedPassword), std::end(kGluedPassword),
                         [&](auto program) { return name.starts_with(program); });
  }

  void take_word(bool begins_argument) noexcept {
    const std::size_t end = end_of(read_, &ends_word);
    const std::string_view word(text_ + read_, end - read_);
    const Next awaited = next_;
    next_ = Next::kNothing;
    if (awaited == Next::kAll && word[0] != '-') return mask_value(begins_argument);
    if (awaited == Next::kToken && word.size() >= 6) return mask_value(false);
    if (awaited == Next::kBehindColon) {
      if (const std::size_t colon = word.find(':'); colon != word.npos) {
        keep_to(read_ + colon + 1);
        return mask_value(begins_argument);
      }
    }
    if (const std::size_t equals = word.find('=');
        equals != word.npos && is_secret_name(part(word, 0, equals))) {
      keep_to(read_ + equals + 1);
      return mask_value(begins_argument);
    }
    if (end < size_ && is_quote(text_[end]) && is_secret_name(word)) {  // JSON: "password": "..."
      std::size_t value = end_of(end + 1, [](char c) { return c != ' '; });
      if (value < size_ && text_[value] == ':') {
        value = end_of(value + 1, [](char c) { return c != ' '; });
        keep_to(value);
        if (value < size_ && text_[value] != '\0') mask_value(false);
        return;
      }
    }
    if (const std::size_t colon = word.find(':'); colon != word.npos && colon + 1 < word.size()) {
      const std::string_view name = part(word, word[0] == '/', colon - (word[0] == '/' && colon > 0));
      if (name.find('/') == name.npos && is_secret_name(name)) {  // --password:..., /password:...
        keep_to(read_ + colon + 1);
        return mask_value(begins_argument);
      }
    }
    if (word.ends_with(':') && is_secret_name(part(word, 0, word.size() - 1))) {  // a header of HTTP
      keep_to(end);
      while (read_ < size_ && text_[read_] == ' ') keep_to(read_ + 1);
      return mask_to(end_of(read_, [](char c) { return c == '\0' || is_quote(c); }));
    }
    if (glued_ && begins_argument && word.size() > 2 && word.starts_with("-p")) {
      keep_to(read_ + 2);
      return mask_value(true);
    }
    if (word[0] == '-') {
      if (is(word, "-u") || is(word, "--user") || is(word, "--proxy-user")) next_ = Next::kBehindColon;
      else if (is_secret_name(word)) next_ = Next::kAll;
    } else if (is(word, "bearer") || is(word, "basic")) {
      next_ = Next::kToken;
    }
    if (const std::size_t scheme = word.find("://"); scheme != word.npos) {
      const std::size_t begin = scheme + 3;
      const std::string_view authority = part(word, begin, word.find_first_of("/?#", begin) - begin);
      const std::size_t at = authority.rfind('@'), colon = authority.find(':');
      if (at != authority.npos && colon < at) {
        const std::size_t from = read_;
        keep_to(from + begin + colon + 1);
        mask_to(from + begin + at);
        return keep_to(end);
      }
    }
    const std::size_t value = word.rfind('=') + 1;  // npos + 1 is 0
    for (const std::string_view token : kTokens) {
      if (word.size() - value < kLeastToken || !part(word, value).starts_with(token)) continue;
      keep_to(read_ + value + token.size());
      return mask_to(end);
    }
    keep_to(end);
  }

  char* const text_;
  const std::size_t size_;
  std::size_t read_ = 0, written_ = 0;
  Next next_ = Next::kNothing;
  bool glued_ = false;
};

}  // namespace

std::size_t mask_secrets(char* arguments, std::size_t size) noexcept { return Masker(arguments, size).run(); }

}  // namespace memoir
