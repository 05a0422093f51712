// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/write/finish_trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/base/files.h"
#include "memoir/trace/file/block_decoder.h"
#include "memoir/trace/file/block_encoder.h"
#include "memoir/trace/file/block_index.h"
#include "memoir/trace/file/byte_source.h"
#include "memoir/trace/file/zlib_blocks.h"

namespace memoir {

using namespace trace_format;

namespace {

/// Higher ones take twice the time and leave the same: docs/decisions/traces-compress-with-zlib.md.
constexpr int kLevel = 4;
constexpr std::uint32_t kLaneOfTheEnd = 0xfffffffe;

/// A file that gets its name when it is whole. Until then it has none, where the file system knows such
/// files: whoever is ended meanwhile, in any way, leaves nothing.
class NewFile {
 public:
  NewFile(const std::string& path, mode_t mode) : path_(path), folder_(path_.c_str()), mode_(mode) {
    fresh_name(part_);
    if (::access("/proc/self/fd", X_OK) == 0) file_ = folder_.create_nameless();  // which give_name() needs
    if (file_ < 0) {
      file_ = folder_.create(part_);
      is_named_ = true;
    }
    if (file_ < 0) fail();
  }
  ~NewFile() {
    if (file_ < 0) return;
    ::close(file_);
    if (is_named_) folder_.remove(part_);
  }
  NewFile(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    size_ += bytes.size();
    while (!bytes.empty()) {
      const ssize_t done = ::write(file_, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail();
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }
  void write_at_begin(std::span<const std::byte> bytes) {
    if (::pwrite(file_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) fail();
  }
  void take_name() {
    if (::fchmod(file_, mode_) != 0) fail();
    if (!is_named_ && !folder_.give_name(file_, part_)) fail();
    is_named_ = true;
    if (!folder_.rename(part_, folder_.name())) fail();
    ::close(file_);
    file_ = -1;
  }
  Size size() const noexcept { return size_; }

 private:
  [[noreturn]] void fail() const { throw Error(path_ + ": cannot be written: " + std::strerror(errno)); }

  const std::string path_;
  const Folder folder_;
  const mode_t mode_;
  char part_[kFreshName];
  bool is_named_ = false;
  int file_ = -1;
  Size size_ = 0;
};

class Finisher {
 public:
  Finisher(const std::string& path, const FinishOptions& options)
      : path_(path), options_(options), source_(ByteSource::open(path)), index_(source_) {}
  FinishedTrace run();

 private:
  void read_header();
  void rewrite(BlockIndex::Block& block, NewFile& to);
  void put(BlockHeader header, std::span<const std::byte> payload, NewFile& to);
  void put_end(NewFile& to);
  void look_through(const BlockIndex::Block& block, BlockHeader& header);

  const std::string path_;
  const FinishOptions options_;
  ByteSource source_;
  BlockIndex index_;
  std::uint64_t last_tick_ = 0;
  bool has_end_ = false;
  std::vector<std::byte> payload_, compressed_;
};

void Finisher::read_header() {
  Header header{};
  const Size got = source_.read(0, std::as_writable_bytes(std::span(&header, 1)));
  if (got < sizeof header || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 ||
      header.version != kVersion || header.endianness != kEndianness) {
    throw Error(path_ + ": not a memoir trace of version 1");
  }
}

/// Where an open block's whole operations end, and when; sets `used` and `events`.
void Finisher::look_through(const BlockIndex::Block& block, BlockHeader& header) {
  BlockDecoder decoder(block.header);
  BlockDecoder::Item item;
  std::uint32_t events = 0;
  try {
    while (decoder.next(payload_, item)) {
      last_tick_ = std::max(last_tick_, item.tick);
      has_end_ |= item.operation == Operation::kProgramEnd;
      events += !is_definition(item.operation);
    }
  } catch (const Error&) {
    if (block.is_sealed()) throw Error(index_.name(block) + ": cannot be read; the file is damaged");
  }
  header.events = events;
  payload_.resize(decoder.position());
}

void Finisher::put(BlockHeader header, std::span<const std::byte> payload, NewFile& to) {
  header.encoding = kRaw;
  header.raw = static_cast<std::uint32_t>(payload.size());
  if (options_.compress && !payload.empty()) {
    if (zlib_compress(payload, kLevel, compressed_)) {
      // Readers take no more than 16 bytes out of one: zeros stand behind what compressed better.
      const Size least = (payload.size() + kMostCompression - 1) / kMostCompression;
      if (compressed_.size() < least) compressed_.resize(least, std::byte{0});
      header.encoding = kDeflate;
      payload = compressed_;
    }
  }
  header.used = static_cast<std::uint32_t>(payload.size());
  header.room = static_cast<std::uint32_t>(align_up(payload.size(), kBlockAlignment));
  header.flags |= kSealed;
  header.check = block_checksum(header, payload.data());
  to.write(std::as_bytes(std::span(&header, 1)));
  to.write(payload);
  constexpr std::byte kNothing[kBlockAlignment] = {};
  to.write(std::span(kNothing).first(header.room - header.used));
}

void Finisher::rewrite(BlockIndex::Block& block, NewFile& to) {
  if (!index_.load(block, payload_)) return;
  BlockHeader header = block.header;
  look_through(block, header);
  put(header, payload_, to);
}

void Finisher::put_end(NewFile& to) {
  std::vector<std::byte> memory(BlockEncoder::kLeastBlock);
  BlockEncoder encoder;
  encoder.begin(memory.data(), memory.size(), {.lane = kLaneOfTheEnd, .tick = last_tick_});
  encoder.program_ends(last_tick_, false, *options_.status);
  const Size size = encoder.seal(true);
  to.write(std::span(memory).first(size));
}

FinishedTrace Finisher::run() {
  read_header();
  index_.look();
  NewFile file(path_, source_.rights());
  Header header = index_.header();
  file.write(std::as_bytes(std::span(&header, 1)));
  for (BlockIndex::Block& block : index_.blocks()) rewrite(block, file);
  const bool was_complete = (header.flags & kComplete) != 0;
  if (options_.status && !has_end_) put_end(file);
  if (options_.status || was_complete) {
    header.flags |= kComplete;
    header.end = file.size();
  }
  header.flushed = 0;
  file.write_at_begin(std::as_bytes(std::span(&header, 1)));
  file.take_name();
  return {source_.size(), file.size()};
}

}  // namespace

FinishedTrace finish_trace(const std::string& path, const FinishOptions& options) {
  return Finisher(path, options).run();
}

}  // namespace memoir
