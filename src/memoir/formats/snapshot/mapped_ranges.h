// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "memoir/base/units.h"

namespace memoir {

/// Ranges that are mapped, none touching another of its stream and pool.
class MappedRanges {
 public:
  struct Piece {
    std::uint64_t end;
    std::uint32_t stream;
    std::uint32_t pool;
    std::uint64_t origin;  // the caller's: who asked for it

    bool is_like(const Piece& other) const { return stream == other.stream && pool == other.pool; }
  };

  void add(std::uint64_t begin, Piece piece) {
    remove(begin, piece.end);
    auto at = pieces_.emplace(begin, piece).first;
    if (at != pieces_.begin()) {
      const auto before = std::prev(at);
      if (before->second.end == begin && before->second.is_like(piece)) {
        before->second.end = piece.end;
        pieces_.erase(at);
        at = before;
      }
    }
    const auto after = std::next(at);
    if (after != pieces_.end() && after->first == piece.end && after->second.is_like(piece)) {
      at->second.end = after->second.end;
      pieces_.erase(after);
    }
  }
  /// How many bytes of the range were mapped.
  Size remove(std::uint64_t begin, std::uint64_t end) {
    Size removed = 0;
    auto at = pieces_.upper_bound(begin);
    if (at != pieces_.begin() && std::prev(at)->second.end > begin) --at;
    while (at != pieces_.end() && at->first < end) {
      const std::uint64_t from = at->first;
      const Piece piece = at->second;
      at = pieces_.erase(at);
      removed += std::min(end, piece.end) - std::max(begin, from);
      if (from < begin) pieces_.emplace(from, Piece{begin, piece.stream, piece.pool, piece.origin});
      if (piece.end > end) pieces_.emplace(end, piece);
    }
    return removed;
  }
  /// The piece that the address lies in, or nullptr.
  const Piece* find(std::uint64_t address) const {
    const auto after = pieces_.upper_bound(address);
    if (after == pieces_.begin() || std::prev(after)->second.end <= address) return nullptr;
    return &std::prev(after)->second;
  }
  /// The first piece that the range reaches into, or nullptr.
  const Piece* first_in(std::uint64_t begin, std::uint64_t end) const {
    if (const Piece* const piece = find(begin)) return piece;
    const auto after = pieces_.upper_bound(begin);
    return after != pieces_.end() && after->first < end ? &after->second : nullptr;
  }
  const std::map<std::uint64_t, Piece>& pieces() const { return pieces_; }

 private:
  std::map<std::uint64_t, Piece> pieces_;
};

}  // namespace memoir
