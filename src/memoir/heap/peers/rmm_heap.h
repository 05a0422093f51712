// SPDX-License-Identifier: Apache-2.0
//
// RMM's pool (RAPIDS Memory Manager, pool_memory_resource over stream_ordered_memory_resource): coalescing
// best fit with a list of free blocks for every stream.
//
//   stream 0 | free | free |         a request looks at its own stream's blocks, then at those of the others
//   stream 1 | free |                in turn: the first list that has one waits for, and joins, its own
//
// Sizes are rounded up to 256 bytes. The smallest block that fits serves, the lowest of equal ones, and
// leaves its rest to the stream. When no list has one, they are joined one by one, because together they may.
// Then the pool grows by as much as it has (or, with a maximum, by half of what is left), at least by the
// request, and by half of that each time the device refuses. Blocks of two lists, or of two segments, do not
// join. It never returns memory: trim() does nothing, and the segments stay held when the heap ends.
#pragma once

#include <tuple>

#include "memoir/base/option.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/block_row.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/index/size_index.h"
#include "memoir/heap/phases.h"
#include "memoir/heap/segments.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

struct RmmOptions {
  Size initial = 0;
  Size maximum = 0;

  static constexpr auto fields() {
    using Options = RmmOptions;
    return std::tuple{
        OptionField{"initial", &Options::initial, Unit::kBytes, "taken from the device at the start"},
        OptionField{"maximum", &Options::maximum, Unit::kBytes,
                    "most that the pool grows to; 0: no maximum"}};
  }
};

class RmmHeap final : public Heap {
 public:
  static constexpr Size kAlignment = 256;  // bytes: of every object; stricter requests are refused

  /// Takes its memory from `segments`, which begin at multiples of kAlignment. All that is given outlives the
  /// heap. Without a StreamOrder every stream counts as ordered after every other one.
  explicit RmmHeap(Segments& segments, const RmmOptions& options = {}, StreamOrder* order = nullptr,
                   PhaseTable* phases = nullptr) noexcept;

  /// False when there was no metadata memory, the options cannot be, or the initial size was refused; then
  /// every request gets kNoOffset.
  bool ok() const noexcept { return ready_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  Size live() const noexcept override { return live_; }

  /// Bytes of the segments that are held.
  Size held() const noexcept { return held_; }

 private:
  using Index = std::uint32_t;
  static constexpr Index kLive = ~Index{0};
  struct RmmBlock : Block {
    Size asked = 0;
    Index list = kLive;  // the list that has it; of a live object, kLive
    Index owner = 0;     // of a live object: the list of its stream
  };
  static SizeKey key_of(const RmmBlock& block) noexcept { return {block.range.size, block.range.begin}; }
  struct List {
    StreamId stream = 0;
    Tick moment = 0;  // whoever is ordered after it on the stream may have any block of the list
    SizeIndex<RmmBlock, &RmmHeap::key_of> blocks;
  };

  Index list_of(StreamId stream) noexcept;
  Index find(Size size, Index list) noexcept;
  Index best(Size size, Index list) const noexcept;
  Index find_elsewhere(Size size, Index list, bool join_first) noexcept;
  bool wait_for(Index other, Index list) noexcept;
  void join_lists(Index list, Index other) noexcept;
  Index grow(Size size) noexcept;
  Size size_to_grow(Size size) const noexcept;
  Index take(Size size) noexcept;
  void insert(Index index, Index list) noexcept;
  void erase(Index index) noexcept;

  Segments* segments_;
  RmmOptions options_;
  StreamOrder* order_;
  PhaseTable* phases_;
  BlockRow<RmmBlock> blocks_;
  MetadataArray<List> lists_;  // in the order in which streams were first seen
  OffsetTable table_;          // live objects
  Size live_ = 0;
  Size held_ = 0;
  bool ready_ = false;
};

}  // namespace memoir
