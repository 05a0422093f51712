// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a file, a stretch at a time, or of a buffer. Lengths come from strangers: memory is taken for
// what was really read, never for what was announced.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

class PickleInput {
 public:
  /// Over bytes that the caller keeps.
  explicit PickleInput(std::span<const std::byte> bytes) noexcept;
  /// Over a file (not a folder). Throws Error when it cannot be opened.
  explicit PickleInput(const std::string& path);
  ~PickleInput();
  PickleInput(const PickleInput&) = delete;
  PickleInput& operator=(const PickleInput&) = delete;

  /// The next `size` bytes, valid until the next call; nullptr, and nothing is consumed, when fewer are left.
  const std::uint8_t* take(Size size) {
    if (static_cast<Size>(end_ - next_) < size && !fill(size)) return nullptr;
    const std::uint8_t* const bytes = next_;
    next_ += size;
    return bytes;
  }
  /// Where the next byte lies, from the beginning.
  Offset at() const noexcept { return before_ + static_cast<Offset>(next_ - begin_); }
  /// How many bytes are left up to `most`, read ahead if need be.
  Size left(Size most);

 private:
  bool fill(Size size);

  std::string path_;
  int file_ = -1;  // -1: none, or at its end
  std::vector<std::uint8_t> buffer_;
  const std::uint8_t* begin_ = nullptr;  // what is at hand: [begin_, end_), of which [next_, end_) is unread
  const std::uint8_t* next_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  Offset before_ = 0;  // bytes before begin_
};

}  // namespace memoir
