// SPDX-License-Identifier: Apache-2.0
//
// Reads version 1 of the trace format: first what blocks define, then the events of all lanes in order.
#pragma once

#include <unordered_map>

#include "memoir/trace/file/block_index.h"
#include "memoir/trace/read/lane_merge.h"
#include "memoir/trace/read/trace_data.h"

namespace memoir {

class BlockReader {
 public:
  /// A file whose magic and version are those; `source` and `data` are the caller's.
  BlockReader(ByteSource& source, TraceData& data, Only only);

  /// Reads what is there and was not read before. With `follow` only what happened before the file's
  /// `flushed` tick, where it has one, since older events of other lanes may still come. Throws Error, naming
  /// the block.
  void read(bool follow);

 private:
  void read_definitions(bool follow);
  void read_definitions_of(std::size_t number, bool follow);
  void define(const BlockDecoder::Item& item);
  void name_all();
  Tick time_of(std::uint64_t tick) const;

  ByteSource& source_;
  TraceData& data_;
  BlockIndex index_;
  LaneMerge merge_;
  std::size_t defined_ = 0;  // blocks that were looked at
  /// Those of them that may go on; without a decoder as long as they define nothing.
  std::unordered_map<std::size_t, std::unique_ptr<BlockDecoder>> open_;
  std::vector<std::byte> payload_;
  std::unordered_map<std::uint64_t, std::size_t, KeyedHash> threads_;  // by number, the latest
};

}  // namespace memoir
