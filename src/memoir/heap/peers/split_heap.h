// SPDX-License-Identifier: Apache-2.0
//
// The splitting pool of CuArrays.jl (pull request 427, src/memory/split.jl, T. Besard, 2019): best fit in
// three classes of sizes, over segments that are cut and joined again.
//
//   class   bytes             rounded up to     cut                        rounded first, then classed again
//   small   at most 1 MiB     512 B             yes
//   large   at most 32 MiB    128 KiB           when the rest is large too
//   huge    above             1 MiB             never
//
// A free only queues the block, because it runs in finalizers. The next request puts what is queued back into
// its class (repopulate) and joins it with its free neighbours (compact), then goes down the ladder in three
// phases, of which the second begins with gc(false) and the third with gc(true) of the collector:
//
//   p.1a repopulate | p.1b compact | p.2 scan: the least (size, id) that fits | p.3 device
//   p.4a give back whole segments until they make up the size, huge, then large, then small; p.4b device
//   after each p.5a give back every whole segment | p.5b device
//
// What the original does wrong is a switch, off by default: it compares the size that was asked for with the
// greatest overhead, so that a huge block serves any smaller huge request; and its key has 25 bits for an id,
// so that it stops when an id comes round. A third fault has no switch: a segment that 5b got in phase 1 or 2
// was lost. The original knows one stream; here, when a StreamOrder is given, a block that another stream
// freed is passed over unless the two can be ordered, and blocks of two streams join when one can wait for
// the other.
#pragma once

#include <array>
#include <tuple>

#include "memoir/base/option.h"
#include "memoir/heap/collector.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/block_row.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/index/size_index.h"
#include "memoir/heap/peers/cap_option.h"
#include "memoir/heap/phases.h"
#include "memoir/heap/segments.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

struct SplitOptions {
  Size cap = 0;
  Size small = kMiB;
  Size large = 32 * kMiB;
  Size huge_overhead = 0;

  static constexpr auto fields() {
    using Options = SplitOptions;
    return std::tuple{cap_option<Options>(),
                      OptionField{"small", &Options::small, Unit::kBytes,
                                  "largest of the small class, a multiple of 128 KiB"},
                      OptionField{"large", &Options::large, Unit::kBytes,
                                  "largest of the large class, a multiple of 1 MiB"},
                      OptionField{"huge_overhead", &Options::huge_overhead, Unit::kBytes,
                                  "most that a huge block may exceed its request"}};
  }
};

class SplitHeap final : public Heap {
 public:
  static constexpr Size kAlignment = 512;  // bytes: of every object; stricter requests are refused

  /// Takes its memory from `segments`, which begin at multiples of kAlignment. All that is given outlives the
  /// heap. What is held when the heap ends stays held.
  explicit SplitHeap(Segments& segments, const SplitOptions& options = {}, Collector* collector = nullptr,
                     StreamOrder* order = nullptr, PhaseTable* phases = nullptr) noexcept;

  /// False when there was no metadata memory, or the options cannot be; then every request gets kNoOffset.
  bool ok() const noexcept { return ready_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  /// Repopulates, compacts, and gives back every whole segment.
  void trim() noexcept override;
  Size live() const noexcept override { return live_; }

  /// Bytes of the segments that are held.
  Size held() const noexcept { return held_; }

 private:
  using Index = std::uint32_t;
  enum Class : std::uint8_t { kSmall, kLarge, kHuge };
  enum class State : std::uint8_t { kInvalid, kAvailable, kAllocated, kFreed };
  struct SplitBlock : Block {
    Size asked = 0;
    std::uint64_t id = 0;
    Tick freed = 0;  // the moment, of the stream's order
    StreamId stream = 0;
    Index next_freed = 0;
    State state = State::kInvalid;
    bool is_indexed = false;
    bool is_queued = false;  // among those to be compacted
  };
  static SizeKey key_of(const SplitBlock& block) noexcept { return {block.range.size, block.id}; }

  Size round(Size size) const noexcept;
  Class class_of(Size size) const noexcept;
  SizeIndex<SplitBlock, &SplitHeap::key_of>& available(Size size) noexcept {
    return available_[class_of(size)];
  }

  Index find(Size size, StreamId stream) noexcept;
  void settle(unsigned phase) noexcept;
  void repopulate() noexcept;
  void compact(Index queued) noexcept;
  bool join_streams(Index index, Index other) noexcept;
  Index scan(Size size, StreamId stream) noexcept;
  bool is_usable(const SplitBlock& block, StreamId stream) noexcept;
  Index take(Size size) noexcept;
  void reclaim(Class from, Size target) noexcept;
  void reclaim_all() noexcept;
  void insert(Index index) noexcept;
  void erase(Index index) noexcept;
  std::uint64_t next_id() noexcept;

  Segments* segments_;
  SplitOptions options_;
  Collector* collector_;
  StreamOrder* order_;
  PhaseTable* phases_;
  BlockRow<SplitBlock> blocks_;
  std::array<SizeIndex<SplitBlock, &SplitHeap::key_of>, 3> available_;
  OffsetTable table_;  // live objects
  Index freed_ = 0;    // the queue of frees, linked by next_freed
  std::uint64_t last_id_ = 0;
  Size live_ = 0;
  Size held_ = 0;
  bool ready_ = false;
};

}  // namespace memoir
