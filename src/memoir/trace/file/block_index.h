// SPDX-License-Identifier: Apache-2.0
//
// Finds the blocks of a file of version 1, also of one that still grows, and reads their payloads.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "memoir/base/keyed_hash.h"
#include "memoir/trace/file/block_format.h"
#include "memoir/trace/file/byte_source.h"
#include "memoir/trace/format.h"

namespace memoir {

class BlockIndex {
 public:
  struct Block {
    Size at = 0;                       // byte of its header
    trace_format::BlockHeader header;  // as seen last
    bool is_cut = false;               // the file ends inside it

    bool is_sealed() const noexcept { return (header.flags & trace_format::kSealed) != 0 && !is_cut; }
  };

  explicit BlockIndex(const ByteSource& source) noexcept : source_(source) {}

  /// Looks at the file header and for blocks that were begun since the last call. Throws Error, naming block
  /// and byte, for what cannot be in a file that is complete.
  void look();

  const trace_format::Header& header() const noexcept { return header_; }
  /// The header says so, and nothing was cut off since.
  bool is_complete() const noexcept { return is_complete_; }
  std::vector<Block>& blocks() noexcept { return blocks_; }
  /// Bytes of operations in all blocks, when not compressed.
  Size raw_bytes() const noexcept { return raw_bytes_; }
  /// Bytes that are known to be lost: cut off the end of a closed file, or where no block can be read.
  Size lost_bytes() const noexcept { return lost_bytes_; }

  /// The operations of a block as they are now; looks at the header of an open one again. False when a sealed
  /// block of an incomplete file is torn.
  bool load(Block& block, std::vector<std::byte>& payload);

  /// "block 3 (byte 65600)".
  std::string name(const Block& block) const;

 private:
  void look_at_header();
  bool is_possible(Size at, const trace_format::BlockHeader& header) const noexcept;
  Size after_gap(Size at) const;
  bool decompress(const Block& block, std::vector<std::byte>& payload) const;
  [[noreturn]] void fail(const std::string& what) const;

  const ByteSource& source_;
  trace_format::Header header_{};
  bool is_complete_ = false;
  Size end_ = 0;  // of what belongs to the file
  std::vector<Block> blocks_;
  std::unordered_set<std::uint64_t, KeyedHash> known_;  // where blocks begin behind first_gap_
  Size first_gap_ = sizeof(trace_format::Header);       // up to here sealed blocks stand without a gap
  Size raw_bytes_ = 0;
  Size lost_bytes_ = 0;
};

}  // namespace memoir
