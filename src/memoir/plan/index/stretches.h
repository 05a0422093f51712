// SPDX-License-Identifier: Apache-2.0
//
// Buffers that are not live all the time from their birth to their death, but always as a whole: each has
// stretches of time with gaps between, and one offset for all of them. Obstacles are pieces that belong to no
// buffer and lie at a given offset: what is fixed, and bytes that nobody may touch.
//
//   problem   a = [0, 9)  b = [3, 5)      a is not needed in [3, 5), and b may lie where it lies
//   pieces    {[0, 3), [5, 9), [3, 5)}    begin  {0, 2, 3}    owner  {a, a, b}
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/plan.h"

namespace memoir {

struct Stretches {
  Problem pieces;                    // those of one buffer in a row, by time; they touch at most
  std::vector<std::uint32_t> begin;  // per buffer, and one more: where its pieces begin
  std::vector<std::uint32_t> owner;  // per piece: the buffer; kNobody: it is an obstacle
  std::vector<Offset> obstacles;     // where the last pieces lie, which follow those of all buffers

  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  void add(const Buffer& buffer, const std::vector<Lifetime>& lifetimes) {
    if (begin.empty()) begin.push_back(0);
    for (const Lifetime& lifetime : lifetimes) {
      owner.push_back(static_cast<std::uint32_t>(begin.size() - 1));
      pieces.push_back(buffer);
      pieces.back().lifetime = lifetime;
    }
    begin.push_back(static_cast<std::uint32_t>(pieces.size()));
  }
  /// After all buffers.
  void add_obstacle(const Lifetime& lifetime, const Range& range) {
    owner.push_back(kNobody);
    pieces.push_back({lifetime, range.size, 1});
    obstacles.push_back(range.begin);
  }
  std::uint32_t first_obstacle() const {
    return static_cast<std::uint32_t>(pieces.size() - obstacles.size());
  }
  Range obstacle(std::size_t k) const { return {obstacles[k], pieces[first_obstacle() + k].size}; }
  std::vector<Lifetime> of(std::uint32_t buffer) const {
    std::vector<Lifetime> lifetimes;
    for (std::uint32_t p = begin[buffer]; p < begin[buffer + 1]; ++p) lifetimes.push_back(pieces[p].lifetime);
    return lifetimes;
  }
};

}  // namespace memoir
