// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/file/block_index.h"

#include <algorithm>
#include <span>

#include "memoir/base/error.h"
#include "memoir/trace/file/zlib_blocks.h"

namespace memoir {

using namespace trace_format;

namespace {

/// How much room a writer may have claimed without beginning a block in it.
constexpr Size kMostGap = 4 * kMiB;

}  // namespace

void BlockIndex::fail(const std::string& what) const { throw Error(source_.name() + ": " + what); }

std::string BlockIndex::name(const Block& block) const {
  return "block " + std::to_string(&block - blocks_.data()) + " (byte " + std::to_string(block.at) + ")";
}

void BlockIndex::look_at_header() {
  if (source_.read(0, std::as_writable_bytes(std::span(&header_, 1))) < sizeof header_) {
    fail("the file ends inside its header of 64 bytes; record again");
  }
  const bool possible = header_.header_size == sizeof(Header) && header_.flags <= kComplete &&
                        header_.tick > 0 && is_tick(header_.tick) && header_.clock >= kClockMonotonic &&
                        header_.clock <= kClockImported;
  if (!possible) {
    fail("the header is damaged: a field in bytes 16 to 31 has a value that version 1 does not have");
  }
  const bool closed = (header_.flags & kComplete) != 0;
  if (closed && header_.end < sizeof(Header)) fail("the header is damaged: a closed file without an end");
  is_complete_ = closed && source_.size() >= header_.end;
  end_ = closed ? std::min(source_.size(), header_.end) : source_.size();
  lost_bytes_ = closed ? header_.end - end_ : 0;
  if (is_complete_ && source_.end_of_data(end_) != end_) {
    fail("the file goes on after byte " + std::to_string(end_) + ", where its header says that it ends");
  }
}

bool BlockIndex::is_possible(Size at, const BlockHeader& header) const noexcept {
  return header.encoding <= kDeflate && (header.flags & ~(kSealed | kDefines)) == 0 && header.reserved == 0 &&
         header.room <= kMostRoom && header.room % kBlockAlignment == 0 && header.used <= header.room &&
         at % kBlockAlignment == 0;
}

/// Where the next block begins after room that nobody used; the end when there is none near.
Size BlockIndex::after_gap(Size at) const {
  std::uint32_t magic = 0;
  const Size last = std::min(end_, at + kMostGap);
  for (Size next = align_up(at + 1, kProbe); next + sizeof(BlockHeader) <= last; next += kProbe) {
    if (source_.read(next, std::as_writable_bytes(std::span(&magic, 1))) == sizeof magic &&
        magic == kBlockMagic)
      return next;
  }
  return end_;
}

void BlockIndex::look() {
  look_at_header();
  bool has_gap = false;
  Size next = first_gap_;
  while (next + sizeof(BlockHeader) <= end_) {
    Block block{.at = next, .header = {}};
    source_.read(next, std::as_writable_bytes(std::span(&block.header, 1)));
    if (block.header.magic != kBlockMagic || !is_possible(next, block.header)) {
      const bool is_damaged = block.header.magic != 0;
      if (is_complete_ && is_damaged) {
        fail("block " + std::to_string(blocks_.size()) + " (byte " + std::to_string(next) +
             "): its header is damaged");
      }
      has_gap = true;
      const Size gap = next;
      next = after_gap(next);
      if (is_damaged) lost_bytes_ += next - gap;
      continue;
    }
    const Size begin = next + sizeof(BlockHeader);
    block.is_cut = begin + block.header.used > end_;
    if (is_complete_ && (block.is_cut || (block.header.flags & kSealed) == 0)) {
      fail("block " + std::to_string(blocks_.size()) + " (byte " + std::to_string(next) +
           "): it is still open, or goes past the end, though the file was closed");
    }
    if (known_.insert(next).second) {
      raw_bytes_ += std::max(block.header.raw, block.header.room);
      blocks_.push_back(block);
    }
    next = begin + block.header.room;
    has_gap |= (block.header.flags & kSealed) == 0;  // its room may still shrink
    if (!has_gap) first_gap_ = next;
  }
}

bool BlockIndex::load(Block& block, std::vector<std::byte>& payload) {
  if ((block.header.flags & kSealed) == 0) {
    BlockHeader again;
    source_.read(block.at, std::as_writable_bytes(std::span(&again, 1)));
    if (again.magic == kBlockMagic && is_possible(block.at, again) && again.encoding == kRaw)
      block.header = again;
  }
  const Size begin = block.at + sizeof(BlockHeader);
  payload.resize(block.header.used);
  const Size got = source_.read(begin, payload);
  if (got < payload.size() || begin + payload.size() > source_.size()) {
    block.is_cut = true;
    if (block.header.encoding != kRaw) return false;
    payload.resize(got);
    return true;
  }
  block.is_cut = false;
  if (!block.is_sealed()) return block.header.encoding == kRaw;
  if (block_checksum(block.header, payload.data()) != block.header.check) {
    if (is_complete_) fail(name(block) + ": the checksum does not match; the file is damaged");
    return false;
  }
  if (block.header.encoding == kRaw) return true;
  if (!has_zlib())
    fail(
        "its blocks are compressed, and this system has no zlib (libz.so.1): install it, for example zlib1g");
  if (!decompress(block, payload))
    fail(name(block) + ": its compressed operations cannot be read; the file is damaged");
  return true;
}

bool BlockIndex::decompress(const Block& block, std::vector<std::byte>& payload) const {
  if (block.header.raw > kMostRoom || block.header.raw > kMostCompression * block.header.used) return false;
  std::vector<std::byte> raw(block.header.raw);
  const bool whole = zlib_decompress(payload, raw);  // zeros may stand behind it
  if (whole) payload.swap(raw);
  return whole;
}

}  // namespace memoir
