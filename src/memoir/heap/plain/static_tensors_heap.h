// SPDX-License-Identifier: Apache-2.0
//
// Static tensors and a free list: the allocator of the tensor library DSC (C. Gilli,
// github.com/nirw4nna/dsc), whose whole memory and whole bookkeeping are secured before the first request.
//
//   | live | free    | live | free            |     one pool; no two free blocks touch
//
// Sizes are rounded up to the alignment. A request takes the low end of the smallest free block that holds
// it, the one at the HIGHEST address when sizes are equal (as the original's scan does), and leaves the rest
// free when that is at least the alignment. A free joins the block with its free neighbours. The original
// walks a list that is in the order of addresses for every request and every free; here the same block is
// found by an index by size and by links between neighbours. Two faults of the original are not here: it
// loses a block that is freed above every free one, and it reads through null when no block is free.
//
// The heap is blind to streams: one pool, one queue. trim() does nothing: what was secured stays.
#pragma once

#include <tuple>

#include "memoir/arena/arena.h"
#include "memoir/base/option.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/block_row.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/index/size_index.h"

namespace memoir {

struct StaticTensorsOptions {
  Size pool = 0;
  Size buffers = 1000;
  Size alignment = 64;

  static constexpr auto fields() {
    using Options = StaticTensorsOptions;
    return std::tuple{
        OptionField{"pool", &Options::pool, Unit::kBytes, "memory to take at the start; 0: the whole arena"},
        OptionField{"buffers", &Options::buffers, Unit::kCount, "most objects live at once"},
        OptionField{"alignment", &Options::alignment, Unit::kBytes,
                    "of every object, a power of two; 256 on a device"}};
  }
};

class StaticTensorsHeap final : public Heap {
 public:
  /// Why the last request was refused.
  enum class Refusal : std::uint8_t {
    kNone,        // none was
    kNotSecured,  // the pool's memory, or its bookkeeping, was not there at the start
    kOptions,     // the options cannot be: alignment, or a pool larger than the arena
    kRequest,     // 0 bytes, or a stricter alignment than the pool's
    kBuffers,     // as many objects live as there are buffers
    kFull,        // fewer bytes are free than were asked for
    kFragmented   // enough bytes are free, but not in one block
  };

  /// Secures `options.pool` bytes from the beginning of `arena`, which the caller keeps alive and leaves to
  /// this heap, and all of its bookkeeping.
  explicit StaticTensorsHeap(Arena& arena, const StaticTensorsOptions& options = {}) noexcept;

  /// False when something was not there; refusal() says what. Then every request gets kNoOffset.
  bool ok() const noexcept { return ready_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  Size live() const noexcept override { return live_; }

  Refusal refusal() const noexcept { return refusal_; }
  /// One line: what is wrong, and what to do.
  static const char* describe(Refusal refusal) noexcept;

  /// Bytes that live objects hold, rounded up.
  Size used() const noexcept { return used_; }
  /// Bytes of the pool.
  Size pool() const noexcept { return pool_; }
  /// Bytes of the largest free block.
  Size largest_free() const noexcept;

 private:
  using Index = std::uint32_t;
  static constexpr Size kMostBuffers = Size{1} << 30;  // records have 32-bit names
  struct Buffer : Block {
    Size asked = 0;  // 0 when free
  };
  static SizeKey key_of(const Buffer& buffer) noexcept {  // of equal sizes, the highest address first
    return {buffer.range.size, ~buffer.range.begin};
  }

  Offset refuse(Refusal refusal) noexcept {
    refusal_ = refusal;
    return kNoOffset;
  }

  BlockRow<Buffer> buffers_;
  SizeIndex<Buffer, &StaticTensorsHeap::key_of> free_;
  OffsetTable table_;  // live objects
  Size alignment_ = 0;
  Size most_ = 0;  // objects live at once
  Size pool_ = 0;
  Size used_ = 0;
  Size live_ = 0;
  Refusal refusal_ = Refusal::kNone;
  bool ready_ = false;
};

}  // namespace memoir
