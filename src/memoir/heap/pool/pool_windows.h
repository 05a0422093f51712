// SPDX-License-Identifier: Apache-2.0
//
// Where a request fits across free blocks and holes that lie in a row, and what that costs:
//
//   | live | free | hole      | free | live |   a window of the request's size anywhere between the live ones
//          |    request      |                  need: granules of the hole; waits: blocks of other streams
//
// A window that needs memory touches a hole, so it looks at what lies around holes, the smallest first, and
// around the largest free blocks: at most kLooks of them, and of each at a few neighbours. With fewer holes
// than that it finds the best window there is. The same few steps, however many blocks there are; only where
// they find nothing it looks at every block before it says so. It changes nothing.
#pragma once

#include "memoir/arena/arena.h"
#include "memoir/heap/pool/pool_row.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

class PoolWindows {
 public:
  using Index = PoolRow::Index;
  struct Window {
    Offset begin = 0;
    Index first = 0;          // the block that `begin` lies in; 0: there is no window
    Size need = ~Size{0};     // bytes of granules that have to be committed
    std::uint32_t waits = 0;  // blocks whose stream the request's has to wait for
  };
  struct Wish {
    Size size = 0;
    Size alignment = 1;  // a power of two, at least the row's
    std::uint16_t slot = 0;
    bool waits = false;  // the stream may be made to wait for others
  };

  /// Windows begin within `arena`'s capacity; what has no memory is counted in its granules. Without `order`
  /// no stream waits. The caller keeps all of them alive.
  PoolWindows(const PoolRow& row, const Arena& arena, StreamOrder* order) noexcept
      : row_(&row), arena_(&arena), order_(order) {}

  /// The window of the zone that needs the fewest granules, then the fewest waits, then lies lowest.
  Window find(const Wish& wish, PoolRow::Zone zone) const noexcept { return find(wish, zone, Window()); }
  /// `best` where that is better.
  Window find(const Wish& wish, PoolRow::Zone zone, Window best) const noexcept;

  /// Bytes of granules that the block lacks for this range.
  Size need_of(const PoolRow::Block& block, Range range) const noexcept;
  /// Whether the slot's stream comes after all that may still use the block.
  bool is_ordered(const PoolRow::Block& block, std::uint16_t slot) const noexcept;

 private:
  static constexpr int kLooks = 96, kLooksOfStream = 8, kNeighbours = 16;

  Window find_anywhere(const Wish& wish, PoolRow::Zone zone) const noexcept;
  void look_around(Window& best, Index index, const Wish& wish) const noexcept;
  void weigh(Window& best, Offset begin, Index first, const Wish& wish) const noexcept;

  const PoolRow* row_;
  const Arena* arena_;
  StreamOrder* order_;
};

}  // namespace memoir
