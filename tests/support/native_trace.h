// SPDX-License-Identifier: Apache-2.0
//
// Makes traces as recorders of native programs write them: a lane for each thread, blocks as they fill up.
#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "memoir/trace/file/block_encoder.h"
#include "memoir/trace/format.h"

namespace memoir {

class NativeTrace {
 public:
  explicit NativeTrace(Size block_size = BlockEncoder::kLeastBlock,
                       std::uint32_t tick = trace_format::kMillisecondTick)
      : block_size_(block_size) {
    std::memcpy(header_.magic, trace_format::kMagic, sizeof header_.magic);
    header_.version = trace_format::kVersion;
    header_.endianness = trace_format::kEndianness;
    header_.header_size = sizeof header_;
    header_.tick = tick;
    header_.clock = trace_format::kClockMonotonic;
    header_.start = 1;
  }

  /// Writes with `operation(encoder)` into that lane, in a new block where the old one is full.
  template <class Operation>
  void write(std::uint32_t lane, std::uint64_t tick, const Operation& operation) {
    Lane& to = lanes_[lane];
    while (!to.encoder.is_open() || !operation(to.encoder)) {
      if (to.encoder.is_open()) seal(to);
      to.block.assign(block_size_, std::byte{0});
      to.encoder.begin(to.block.data(), to.block.size(),
                       {.lane = lane, .sequence = to.sequence++, .tick = tick, .thread = lane});
    }
  }
  void allocate(std::uint32_t lane, std::uint64_t tick, std::uint64_t address, Size size,
                std::uint32_t stack = 0, Family family = Family::kMalloc) {
    write(lane, tick, [&](BlockEncoder& to) { return to.allocate(tick, address, size, 4, family, stack); });
  }
  void free(std::uint32_t lane, std::uint64_t tick, std::uint64_t address) {
    write(lane, tick, [&](BlockEncoder& to) { return to.free(tick, address); });
  }
  BlockEncoder& encoder(std::uint32_t lane) { return lanes_[lane].encoder; }

  trace_format::Header& header() { return header_; }
  /// Sealed blocks in the order in which they filled up; take some out to lose them.
  std::vector<std::vector<std::byte>>& sealed() { return sealed_; }

  void seal_all() {
    for (auto& [number, lane] : lanes_) {
      if (lane.encoder.is_open()) seal(lane);
    }
  }
  /// The file now; with open blocks as a killed process leaves them.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> file(sizeof header_);
    std::memcpy(file.data(), &header_, sizeof header_);
    for (const auto& block : sealed_) file.insert(file.end(), block.begin(), block.end());
    for (const auto& [number, lane] : lanes_) {
      if (lane.encoder.is_open()) file.insert(file.end(), lane.block.begin(), lane.block.end());
    }
    return file;
  }
  /// The file of a recording that ended.
  std::vector<std::byte> closed() {
    seal_all();
    header_.flags = trace_format::kComplete;
    header_.end = bytes().size();
    return bytes();
  }

 private:
  struct Lane {
    std::vector<std::byte> block;
    BlockEncoder encoder;
    std::uint32_t sequence = 0;
  };
  void seal(Lane& lane) {
    lane.block.resize(lane.encoder.seal(true));
    sealed_.push_back(lane.block);
  }

  const Size block_size_;
  trace_format::Header header_{};
  std::map<std::uint32_t, Lane> lanes_;
  std::vector<std::vector<std::byte>> sealed_;
};

}  // namespace memoir
