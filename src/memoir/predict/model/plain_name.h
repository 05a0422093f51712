// SPDX-License-Identifier: Apache-2.0
//
// What a function is called, without what differs between builds: return type, parameters, template
// arguments, qualifiers, ABI tags and the suffixes of clones. Mangled and readable names of one function give
// the same, so that a profile with readable names serves a program that only has its symbol table.
//
//   _ZNSt6vectorIiSaIiEE9push_backERKi                      std::vector::push_back
//   std::vector<int, std::allocator<int> >::push_back(int const&)    std::vector::push_back
//   table_insert.constprop.0                                table_insert
//
// No memory, no exception: a name is at most kMost bytes, and is cut there.
#pragma once

#include <cstddef>
#include <string_view>

namespace memoir {

class PlainName {
 public:
  static constexpr size_t kMost = 255;

  /// Of a mangled (Itanium ABI) or a readable name. One that cannot be parsed stays as it is.
  explicit PlainName(std::string_view name) noexcept;

  std::string_view view() const noexcept { return {text_, size_}; }

 private:
  friend class MangledParser;
  friend class ReadableParser;

  void clear() noexcept { size_ = 0; }
  void add(char c) noexcept {
    if (size_ < kMost) text_[size_++] = c;
  }
  void add(std::string_view text) noexcept {
    for (const char c : text) add(c);
  }

  char text_[kMost];
  size_t size_ = 0;
};

/// Whether programs ask for memory by the function of that plain name: stacks begin behind it.
bool is_allocation_name(std::string_view plain) noexcept;

/// What a program is called, of whatever version: the name of its file without folders and without digits,
/// dots, hyphens and underscores at its end, as of /usr/bin/python3.11. Empty when nothing is left.
std::string_view program_name(std::string_view path) noexcept;

}  // namespace memoir
