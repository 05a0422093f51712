// SPDX-License-Identifier: Apache-2.0
//
// Reads the operations of all lanes in the order in which they happened. A lane's own order holds; between
// lanes the shared tick decides, and within one tick the addresses: one that lives must end before it is
// allocated again, and be allocated before it ends. What still cannot be is taken as it comes, and counted as
// lost.
#pragma once

#include <deque>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "memoir/trace/file/block_decoder.h"
#include "memoir/trace/file/block_index.h"
#include "memoir/trace/read/event_builder.h"

namespace memoir {

class LaneMerge {
 public:
  LaneMerge(BlockIndex& index, TraceData& data, Only only);
  ~LaneMerge();

  static constexpr std::uint64_t kEverything = ~std::uint64_t{0};

  /// Blocks that the index found since the last call are to be read.
  void add_blocks();
  /// Reads what happened before `until` (ticks), as far as it is there. `follow`: the file may grow, so that
  /// what is cut off now may come. Throws Error, naming the block.
  void run(std::uint64_t until, bool follow);

 private:
  struct Lane;
  struct Turn {  // of a lane
    std::uint64_t tick;
    std::uint32_t lane;
    bool operator<(const Turn& other) const noexcept {  // the earliest is the top of a priority_queue
      return tick != other.tick ? tick > other.tick : lane > other.lane;
    }
  };

  bool fetch(Lane& lane);
  bool open_block(Lane& lane);
  void close_block(Lane& lane);
  void queue(std::uint32_t lane);
  void take(Lane& lane);
  void park(std::uint32_t lane);
  void wake(const BlockDecoder::Item& taken);
  void force_one();
  Tick time_of(std::uint64_t tick) const;

  BlockIndex& index_;
  TraceData& data_;
  EventBuilder builder_;
  std::size_t added_ = 0;  // blocks of the index
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unordered_map<std::uint64_t, std::uint32_t, KeyedHash>
      numbers_;  // of lanes, by what the file calls them
  std::priority_queue<Turn> turns_;
  std::unordered_multimap<std::uint64_t, std::uint32_t, KeyedHash> waiting_;  // lanes, by key()
  std::deque<std::uint32_t> parked_;  // lanes that wait, and some that do no more
  std::uint64_t parked_tick_ = 0;     // of those
  Size open_bytes_ = 0;               // of decoders
  bool follow_ = false;
};

}  // namespace memoir
