// SPDX-License-Identifier: Apache-2.0
//
// Where a request fits across free blocks and holes that lie in a row, and what that costs:
//
//   | live | free | hole      | free | live |   a window of the request's size anywhere between the live ones
//          |    request      |                  need: granules of the hole; waits: blocks of other streams
//
// The cost is counted in granules: those in which nothing lives yet, which the request pins (kPin each),
// those that have to be committed (kNeed), some of what is left of the room, since a small rest is of use to
// nobody while a large one is cut for this request (kLeft), and the waits (kWait). So a window that needs
// memory may be better than a free block, where it fills its room and the block is much too large.
//
// Windows begin or end where a block does, in the smallest rooms with a hole that are large enough, and
// around a best fit among free blocks: at most kLooks rooms. The same few steps, however many blocks there
// are; only where they find nothing it looks at every block before it says so.
#pragma once

#include <bit>

#include "memoir/arena/arena.h"
#include "memoir/heap/pool/pool_row.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

class PoolWindows {
 public:
  using Index = PoolRow::Index;
  static constexpr Size kPin = 1024, kNeed = 307, kLeft = 51;  // for a granule
  static constexpr Size kMostLeft = 64;                        // granules: more is as good
  static constexpr Size kWait = 100;
  struct Window {
    Offset begin = 0;
    Index first = 0;          // the block that `begin` lies in; 0: there is no window
    Size need = 0;            // bytes of granules that have to be committed
    std::uint32_t waits = 0;  // blocks whose stream the request's has to wait for
    Size cost = ~Size{0};     // in parts of a granule, kPin each
  };
  struct Wish {
    Size size = 0;
    Size alignment = 1;  // a power of two, at least the row's
    std::uint16_t slot = 0;
    bool waits = false;  // the stream may be made to wait for others
  };

  /// Windows begin within `arena`'s capacity; what has no memory is counted in its granules. Without `order`
  /// no stream waits. The caller keeps all of them alive.
  PoolWindows(PoolRow& row, const Arena& arena, StreamOrder* order) noexcept
      : row_(&row),
        order_(order),
        capacity_(arena.capacity()),
        granule_(arena.granule()),
        granule_shift_(std::countr_zero(granule_)) {}

  /// The window of the zone that costs least, of several the lowest.
  Window find(const Wish& wish, PoolRow::Zone zone) noexcept { return find(wish, zone, Window()); }
  /// `best` where that is better.
  Window find(const Wish& wish, PoolRow::Zone zone, Window best) noexcept;

  /// A window of the few smallest rooms with a hole, when it costs less than the start of this free block
  /// does.
  Window find_fit(const Wish& wish, Index block) noexcept;

  /// Bytes of granules that the block lacks for this range.
  Size need_of(const PoolRow::Block& block, Range range) const noexcept;
  /// Whether the slot's stream comes after all that may still use the block.
  bool is_ordered(const PoolRow::Block& block, std::uint16_t slot) const noexcept;

 private:
  static constexpr int kLooks = 16, kFewLooks = 3, kLooksOfStream = 8, kRounds = 8;

  Window find_anywhere(const Wish& wish, PoolRow::Zone zone) const noexcept;
  void look_around(Window& best, Index index, const Wish& wish) const noexcept;
  void weigh(Window& best, Offset begin, Index first, const PoolRow::Room& room,
             const Wish& wish) const noexcept;

  Size granules(Size bytes) const noexcept { return bytes >> granule_shift_; }

  PoolRow* row_;
  StreamOrder* order_;
  // The arena's, which do not change: asked once, since a search weighs a hundred windows.
  Size capacity_;
  Size granule_;  // a power of two
  int granule_shift_;
};

}  // namespace memoir
