// SPDX-License-Identifier: Apache-2.0
//
// The binned pool of CuArrays.jl (src/memory/binned.jl, T. Besard and others, 2018-2020): one list of free
// blocks per power of two, each block a segment of its own.
//
//   bin 21 (1 MiB)   used 5 | available -> block -> block      last in, first out
//   bin 22 (2 MiB)   used 2 | available                        bin = ceil(log2 size) + 1
//
// Requests above `largest` (128 MiB) get a segment of exactly their size, which goes back when they are
// freed. A bin's usage is the greatest share of its blocks that were in use since the last tick; tick() keeps
// the last five, and gives back the share that none of them needed, largest bins first. A request that finds
// nothing goes down the ladder, in which gc is the collector:
//
//   pop | 1 device | 2 gc(false), pop | 3 reclaim the size | 4 device | 5 gc(true), pop | 6 reclaim
//       | 7 device | 8 reclaim all | 9 device
//
// The original knows one stream. Here a block that another stream freed is passed over when a StreamOrder is
// given that cannot order the two.
#pragma once

#include <array>
#include <tuple>

#include "memoir/base/metadata.h"
#include "memoir/base/option.h"
#include "memoir/heap/collector.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/peers/cap_option.h"
#include "memoir/heap/phases.h"
#include "memoir/heap/segments.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

struct BinnedOptions {
  Size cap = 0;
  Size largest = 128 * kMiB;
  double least_delay = 1;
  double most_delay = 5;

  static constexpr auto fields() {
    using Options = BinnedOptions;
    return std::tuple{
        cap_option<Options>(),
        OptionField{"largest", &Options::largest, Unit::kBytes,
                    "larger requests are exact, and freed at once"},
        OptionField{"least_delay", &Options::least_delay, Unit::kSeconds,
                    "seconds between two ticks while usage changes"},
        OptionField{"most_delay", &Options::most_delay, Unit::kSeconds, "seconds between two ticks at most"}};
  }
};

class BinnedHeap final : public Heap {
 public:
  static constexpr Size kAlignment = 512;  // bytes: what a device gives; stricter requests are refused
  static constexpr unsigned kBins = 30;    // the largest holds blocks of 2^29 bytes

  /// Takes its blocks from `segments`, which begin at multiples of kAlignment. All that is given outlives the
  /// heap. What is held when the heap ends stays held.
  explicit BinnedHeap(Segments& segments, const BinnedOptions& options = {}, Collector* collector = nullptr,
                      StreamOrder* order = nullptr, PhaseTable* phases = nullptr) noexcept;

  /// False when there was no metadata memory, or the options cannot be; then every request gets kNoOffset.
  bool ok() const noexcept { return ready_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  /// Gives back every available block.
  void trim() noexcept override;
  /// The background task of the original.
  Tick tick(Tick now) noexcept override;
  Size live() const noexcept override { return live_; }

  /// Bytes of the blocks that are held, in use or available.
  Size held() const noexcept { return held_; }

 private:
  using Index = std::uint32_t;
  using History = std::array<double, 5>;
  struct Block {
    Range range;
    Size asked = 0;  // 0 when available
    Tick freed = 0;  // the moment, of the stream's order
    StreamId stream = 0;
    unsigned bin = 0;  // 0: exact
    Index below = 0;   // in the stack of available blocks, or of unused records
  };
  struct Bin {
    Index top = 0;
    Size used = 0;  // blocks
    Size available = 0;
    double usage = 1;  // the greatest since the last tick
    History history = {1, 1, 1, 1, 1};

    Size blocks() const noexcept { return used + available; }
    double usage_now() const noexcept { return static_cast<double>(used) / static_cast<double>(blocks()); }
  };

  Index find(unsigned bin, Size size, StreamId stream) noexcept;
  Index pop(unsigned bin, StreamId stream) noexcept;
  Index take(unsigned bin, Size size) noexcept;
  void reclaim(Size target) noexcept;
  void give_back_top(Bin& bin) noexcept;
  void collect(bool full) noexcept;
  bool is_usable(const Block& block, StreamId stream) noexcept;
  void give_back(Index index) noexcept;

  Segments* segments_;
  BinnedOptions options_;
  Collector* collector_;
  StreamOrder* order_;
  PhaseTable* phases_;
  MetadataArray<Block> blocks_;  // [0] stands for none
  OffsetTable table_;            // live objects
  std::array<Bin, kBins + 1> bins_;
  Index unused_ = 0;
  Size live_ = 0;
  Size held_ = 0;
  Tick due_ = 0;      // of the next tick
  double delay_ = 0;  // seconds until the one after
  bool ready_ = false;
};

}  // namespace memoir
