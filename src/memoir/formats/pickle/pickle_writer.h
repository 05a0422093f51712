// SPDX-License-Identifier: Apache-2.0
//
// Writes pickles of protocol 4, with no opcodes but those that PyTorch's memory viewer reads
// (pytorch.org/memory_viz, whose own reader refuses protocol 5).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "memoir/base/output.h"

namespace memoir {

class PickleWriter {
 public:
  explicit PickleWriter(Output& output) : output_(output) { output_.put("\x80\x04"); }

  void none() { output_.put('N'); }
  void boolean(bool value) { output_.put(value ? '\x88' : '\x89'); }
  void natural(std::uint64_t value);
  void integer(std::int64_t value);
  void number(double value);
  /// Valid UTF-8. The same text again takes two to five bytes.
  void string(std::string_view text);

  /// Between begin and end: keys and values in turn.
  void begin_dict() { output_.put("}("); }
  void end_dict() { output_.put('u'); }
  /// Between begin and end: each element is announced by item(), so that no batch grows large.
  void begin_list();
  void item();
  void end_list();
  /// After two values: a tuple of them.
  void make_pair() { output_.put('\x86'); }

  /// The same, of what is written once and then only named; the number is for get().
  std::uint32_t begin_kept_dict();
  std::uint32_t begin_kept_list();
  void get(std::uint32_t memo);
  void stop() { output_.put('.'); }

 private:
  static constexpr std::uint32_t kBatch = 1000;  // as Python's own

  Output& output_;
  std::unordered_map<std::string, std::uint32_t> strings_;
  std::uint32_t memos_ = 0;
  std::vector<std::uint32_t> items_;  // of each list that was begun, in its batch
};

}  // namespace memoir
