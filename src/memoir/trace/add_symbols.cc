// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/add_symbols.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/trace/block_decoder.h"
#include "memoir/trace/block_encoder.h"
#include "memoir/trace/block_index.h"
#include "memoir/trace/byte_source.h"

namespace memoir {

using namespace trace_format;

namespace {

constexpr std::uint32_t kLaneOfSymbols = 0xfffffffd;
constexpr Size kBlock = kMiB;

/// What the file has already: numbers of strings, and where blocks end.
struct Present {
  std::uint32_t strings = 0;   // the largest number
  std::uint32_t sequence = 0;  // of the next block in our lane
  std::uint64_t tick = 0;
  Size end = sizeof(Header);
  Header header{};
};

Present look_through(const std::string& path) {
  const ByteSource source = ByteSource::open(path);
  BlockIndex index(source);
  index.look();
  Present present;
  present.header = index.header();
  if (present.header.version != kVersion) throw Error(path + ": only traces of version 3 take names");
  std::vector<std::byte> payload;
  for (BlockIndex::Block& block : index.blocks()) {
    if (!block.is_sealed())
      throw Error(path + ": it is still recorded, or was never finished; record it again");
    present.end = std::max(present.end, block.at + sizeof(BlockHeader) + block.header.room);
    present.tick = std::max(present.tick, block.header.tick);
    if (block.header.lane == kLaneOfSymbols)
      present.sequence = std::max(present.sequence, block.header.sequence + 1);
    if ((block.header.flags & kDefines) == 0 || !index.load(block, payload)) continue;
    BlockDecoder decoder(block.header);
    BlockDecoder::Item item;
    while (decoder.next(payload, item))
      if (item.operation == Operation::kString)
        present.strings = std::max(present.strings, static_cast<std::uint32_t>(item.numbers[0]));
  }
  return present;
}

/// Blocks with strings and symbols, one behind the other.
class Writer {
 public:
  explicit Writer(const Present& present) : present_(present) { begin(); }

  void add(const Symbol& symbol) {
    std::vector<BlockEncoder::Line> lines;
    for (const Symbol::Line& line : symbol.lines)
      lines.push_back({string(line.function), string(line.file), line.line});
    put([&] { return encoder_.define_symbol(symbol.module, symbol.offset, lines); });
  }
  std::span<const std::byte> finish() {
    end_block();
    return bytes_;
  }

 private:
  void begin() {
    from_ = bytes_.size();
    bytes_.resize(from_ + kBlock);
    encoder_.begin(bytes_.data() + from_, kBlock,
                   {.lane = kLaneOfSymbols, .sequence = present_.sequence++, .tick = present_.tick});
  }
  void end_block() { bytes_.resize(from_ + encoder_.seal(true)); }
  template <class Write>
  void put(Write write) {
    if (write()) return;
    end_block();
    begin();
    if (!write()) throw Error("a name does not fit into a block");
  }
  std::uint32_t string(const std::string& text) {
    if (text.empty()) return 0;
    const auto [found, fresh] = strings_.try_emplace(text, present_.strings + 1);
    const std::uint32_t id = found->second;
    if (fresh) {
      ++present_.strings;
      put([&] { return encoder_.define_string(id, text); });
    }
    return id;
  }

  Present present_;
  std::vector<std::byte> bytes_;
  Size from_ = 0;
  BlockEncoder encoder_;
  std::unordered_map<std::string, std::uint32_t> strings_;
};

}  // namespace

void add_symbols(const std::string& path, std::span<const Symbol> symbols) {
  Present present = look_through(path);
  Writer writer(present);
  for (const Symbol& symbol : symbols) writer.add(symbol);
  const std::span<const std::byte> bytes = writer.finish();
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const auto fail = [&] {
    const std::string why = std::strerror(errno == 0 ? ENOSPC : errno);
    if (file >= 0 && ::ftruncate(file, static_cast<off_t>(present.end)) == 0) ::close(file);
    throw Error(path + ": names cannot be added: " + why);
  };
  if (file < 0) fail();
  errno = 0;
  // Behind the end that the header knows nothing counts yet.
  if (::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(present.end)) !=
      static_cast<ssize_t>(bytes.size()))
    fail();
  present.header.end = (present.header.flags & kComplete) != 0 ? present.end + bytes.size() : 0;
  if (::pwrite(file, &present.header, sizeof present.header, 0) !=
      static_cast<ssize_t>(sizeof present.header))
    fail();
  ::close(file);
}

}  // namespace memoir
