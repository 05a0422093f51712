// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/write/trace_appender.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "memoir/base/files.h"
#include "memoir/trace/file/block_decoder.h"
#include "memoir/trace/file/block_index.h"

namespace memoir {

using namespace trace_format;

TraceAppender::TraceAppender(const std::string& path) : path_(path), source_(ByteSource::open(path)) {
  look_through();
  begin_block(tick_);
}

void TraceAppender::look_through() {
  BlockIndex index(source_);
  index.look();
  header_ = index.header();
  if (header_.version != kVersion) throw Error(path_ + ": only traces of version 1 can be added to");
  std::vector<std::byte> payload;
  for (BlockIndex::Block& block : index.blocks()) {
    if (!block.is_sealed())
      throw Error(path_ + ": it is still recorded, or was never finished; record it again");
    end_ = std::max(end_, block.at + sizeof(BlockHeader) + block.header.room);
    tick_ = std::max(tick_, block.header.tick);
    if (block.header.lane == kLane) sequence_ = std::max(sequence_, block.header.sequence + 1);
    if ((block.header.flags & kDefines) == 0 || !index.load(block, payload)) continue;
    BlockDecoder decoder(block.header);
    BlockDecoder::Item item;
    while (decoder.next(payload, item))
      if (item.operation == Operation::kString)
        strings_used_ = std::max(strings_used_, static_cast<std::uint32_t>(item.numbers[0]));
  }
}

void TraceAppender::begin_block(std::uint64_t tick) {
  from_ = bytes_.size();
  bytes_.resize(from_ + kBlock);
  encoder_.begin(bytes_.data() + from_, kBlock, {.lane = kLane, .sequence = sequence_++, .tick = tick});
}

void TraceAppender::begin_at(std::uint64_t tick) {
  if (encoder_.is_empty()) {
    --sequence_;
    bytes_.resize(from_);
  } else {
    end_block();
  }
  begin_block(tick_ = tick);
}

std::uint32_t TraceAppender::string(const std::string& text) {
  if (text.empty()) return 0;
  const auto [found, fresh] = strings_.try_emplace(text, strings_used_ + 1);
  const std::uint32_t id = found->second;
  if (fresh) {
    ++strings_used_;
    put([&](BlockEncoder& encoder) { return encoder.define_string(id, text); });
  }
  return id;
}

void TraceAppender::write() {
  end_block();
  const int file = open_beside(path_.c_str(), O_WRONLY);
  const auto fail = [&] {
    const std::string why = std::strerror(errno == 0 ? ENOSPC : errno);
    if (file >= 0) {
      [[maybe_unused]] const int cut = ::ftruncate(file, static_cast<off_t>(end_));
      ::close(file);
    }
    throw Error(path_ + ": nothing can be added: " + why);
  };
  if (file < 0) fail();
  if (!source_.is_of(file)) {
    ::close(file);
    throw Error(path_ + ": nothing can be added: another file has its name now");
  }
  errno = 0;
  // Behind the end that the header knows nothing counts yet.
  if (::pwrite(file, bytes_.data(), bytes_.size(), static_cast<off_t>(end_)) !=
      static_cast<ssize_t>(bytes_.size()))
    fail();
  header_.end = (header_.flags & kComplete) != 0 ? end_ + bytes_.size() : 0;
  if (::pwrite(file, &header_, sizeof header_, 0) != static_cast<ssize_t>(sizeof header_)) fail();
  ::close(file);
}

}  // namespace memoir
