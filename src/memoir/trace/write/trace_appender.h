// SPDX-License-Identifier: Apache-2.0
//
// Adds definitions to a trace that is written already: blocks behind its end, in a lane of their own. Until
// write() the file is as it was.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/trace/file/block_encoder.h"
#include "memoir/trace/file/byte_source.h"
#include "memoir/trace/format.h"

namespace memoir {

class TraceAppender {
 public:
  /// Throws Error: no trace of version 1, or one that is still recorded (its blocks are open:
  /// finish_trace()).
  explicit TraceAppender(const std::string& path);

  /// Nanoseconds.
  std::uint64_t tick_size() const noexcept { return header_.tick; }
  /// The number of a text in the file; 0 for an empty one.
  std::uint32_t string(const std::string& text);
  /// `write(encoder)`: adds one definition, or returns false where the block has no room.
  template <class Write>
  void put(Write write) {
    if (write(encoder_)) return;
    end_block();
    begin_block(tick_);
    if (!write(encoder_)) throw Error(path_ + ": what is to be added does not fit into a block");
  }
  /// The first tick of what follows: definitions that have a time are added in its order.
  void begin_at(std::uint64_t tick);

  /// Adds it to the file. Throws Error for a disk that is full: the file is then as it was.
  void write();

 private:
  static constexpr std::uint32_t kLane = 0xfffffffd;
  static constexpr Size kBlock = kMiB;

  void look_through();
  void begin_block(std::uint64_t tick);
  void end_block() { bytes_.resize(from_ + encoder_.seal(true)); }

  std::string path_;
  ByteSource source_;  // what was looked through: what has its name later may be another file
  // What the file has already.
  std::uint32_t strings_used_ = 0;  // the largest number
  std::uint32_t sequence_ = 0;      // of the next block in our lane
  std::uint64_t tick_ = 0;
  Size end_ = sizeof(trace_format::Header);
  trace_format::Header header_{};

  std::vector<std::byte> bytes_;
  Size from_ = 0;
  BlockEncoder encoder_;
  std::unordered_map<std::string, std::uint32_t> strings_;
};

}  // namespace memoir
