// SPDX-License-Identifier: Apache-2.0
//
// The bytes that a trace is read from: a file, read and not mapped (one that is cut while we look would kill
// us with SIGBUS), or memory.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

class ByteSource {
 public:
  /// Throws Error, which names the file: it cannot be read, is a folder, is not a regular file.
  static ByteSource open(const std::string& path);
  /// Copies the bytes; `name` is for messages.
  static ByteSource copy(std::span<const std::byte> bytes, const std::string& name);

  ByteSource() = default;  // no bytes
  ByteSource(ByteSource&& other) noexcept;
  ByteSource& operator=(ByteSource&& other) noexcept;
  ~ByteSource();

  const std::string& name() const noexcept { return name_; }
  /// Bytes there are; of a file, when it was opened or last looked at.
  Size size() const noexcept { return size_; }
  /// Rights of the file that was opened; of one that is not this user's what a new one has, 0600.
  unsigned rights() const;
  /// Looks again at a file's size: it grows, and is cut to its end.
  void look_again();
  /// Whether another file has its name now: the one that was opened gains nothing more.
  bool is_replaced() const noexcept;
  /// Whether an open file is the one that this reads.
  bool is_of(int file) const noexcept;
  /// Up to to.size() bytes from `from` on: how many there were. Throws Error when a file cannot be read.
  Size read(Size from, std::span<std::byte> to) const;
  /// The end of the last byte from `from` on that is not 0; `from` when there is none. Holes are not read.
  Size end_of_data(Size from) const;

 private:
  std::string name_;
  Size size_ = 0;
  int file_ = -1;
  std::vector<std::byte> bytes_;
};

}  // namespace memoir
