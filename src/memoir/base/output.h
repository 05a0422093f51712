// SPDX-License-Identifier: Apache-2.0
//
// Where an export goes: a new file, a stretch at a time, or a string.
#pragma once

#include <string>
#include <string_view>

#include "memoir/base/units.h"

namespace memoir {

class Output {
 public:
  /// Into memory; see text().
  Output() = default;
  /// Creates the file, which must not exist. Throws Error when it cannot.
  explicit Output(const std::string& path);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Throws Error when the disk is full, say.
  void put(std::string_view bytes) {
    buffer_.append(bytes);
    if (file_ >= 0 && buffer_.size() >= kStretch) flush();
  }
  void put(char byte) { put(std::string_view(&byte, 1)); }
  /// Writes what is held back. To be called at the end: the destructor does not, since it could not say that
  /// it failed.
  void flush();
  /// What was put into memory.
  const std::string& text() const noexcept { return buffer_; }

 private:
  static constexpr Size kStretch = kMiB;

  std::string path_;
  std::string buffer_;
  int file_ = -1;
};

}  // namespace memoir
