// SPDX-License-Identifier: Apache-2.0
//
// An array that grows in pieces of 4 Ki elements and never moves them: growing needs no second copy, which is
// what keeps a reader of large files within its memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace memoir {

template <class T>
class ChunkedArray {
 public:
  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t index) noexcept { return pieces_[index / kPiece][index % kPiece]; }
  const T& operator[](std::size_t index) const noexcept { return pieces_[index / kPiece][index % kPiece]; }
  void push_back(const T& value) {
    if (size_ == pieces_.size() * kPiece) pieces_.push_back(std::make_unique_for_overwrite<T[]>(kPiece));
    (*this)[size_++] = value;
  }
  void clear() noexcept {
    pieces_.clear();
    size_ = 0;
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 12;
  std::vector<std::unique_ptr<T[]>> pieces_;
  std::size_t size_ = 0;
};

}  // namespace memoir
