// SPDX-License-Identifier: Apache-2.0
//
// The name of a function out of a mangled one (Itanium C++ ABI, chapter 5.1): its own parts only; types and
// template arguments are passed over. What is rare (expressions in template arguments) is not followed.
#pragma once

#include <string_view>

#include "memoir/predict/model/plain_name.h"

namespace memoir {

class MangledParser {
 public:
  MangledParser(std::string_view text, PlainName& out) noexcept : text_(text), out_(out) {}

  /// False: it is not such a name, or has something that this does not follow; then `out` is undefined.
  bool parse() noexcept;

 private:
  static constexpr int kMostDepth = 48;
  class Deeper;

  char peek(size_t ahead = 0) const noexcept {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(char c) noexcept {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) noexcept;
  bool number(size_t& value) noexcept;
  bool source_name(std::string_view& name) noexcept;
  bool sequence() noexcept;       // [0-9A-Z]* _
  bool offset_number() noexcept;  // n?[0-9]* _

  bool encoding() noexcept;
  bool name() noexcept;
  bool nested() noexcept;
  bool local() noexcept;
  bool unqualified() noexcept;
  bool operator_name() noexcept;
  bool unnamed() noexcept;
  bool standard_prefix() noexcept;
  bool pass_tags() noexcept;

  // Passed over; nothing is written.
  bool pass_type() noexcept;
  bool pass_arguments() noexcept;
  bool pass_argument() noexcept;
  bool pass_literal() noexcept;
  bool pass_name() noexcept;

  void part(std::string_view text) noexcept;

  std::string_view text_;
  PlainName& out_;
  size_t at_ = 0;
  size_t last_begin_ = 0, last_size_ = 0;  // of the last part in `out_`
  bool muted_ = false;
  int depth_ = 0;
};

}  // namespace memoir
