// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/code_table.h"

#include "memoir/base/metadata.h"

namespace memoir::stacks {

namespace {

template <class T>
T load(Address at) noexcept {
  return *reinterpret_cast<const volatile T*>(at);
}

/// Numbers of six bits a byte, the lowest first, of 3.11's table of lines.
class LineReader {
 public:
  LineReader(const unsigned char* at, const unsigned char* end) noexcept : at_(at), end_(end) {}
  bool at_end() const noexcept { return at_ >= end_; }
  unsigned byte() noexcept { return at_ < end_ ? *at_++ : 0; }
  std::uint32_t number() noexcept {
    std::uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 6) {
      const unsigned next = byte();
      value |= (next & 63u) << shift;
      if ((next & 64u) == 0) break;
    }
    return value;
  }
  std::int32_t difference() noexcept {
    const std::uint32_t value = number();
    const auto size = static_cast<std::int32_t>(value >> 1);
    return (value & 1) != 0 ? -size : size;
  }
  /// To the next entry, whose first byte has the top bit.
  void skip() noexcept {
    while (at_ < end_ && (*at_ & 128) == 0) ++at_;
  }

 private:
  const unsigned char *at_, *end_;
};

std::uint32_t line_of_pairs(const unsigned char* at, const unsigned char* end, std::int32_t line,
                            std::int64_t byte) noexcept {
  std::int64_t covered = 0;
  for (; at + 2 <= end; at += 2) {
    covered += at[0];
    const auto by = static_cast<signed char>(at[1]);
    if (by != -128) line += by;
    if (byte < covered) return by == -128 || line < 0 ? 0 : static_cast<std::uint32_t>(line);
  }
  return 0;
}

std::uint32_t line_of_entries(LineReader reader, std::int32_t line, std::int64_t instruction) noexcept {
  std::int64_t covered = 0;
  while (!reader.at_end()) {
    const unsigned first = reader.byte();
    const unsigned code = first >> 3 & 15;
    covered += (first & 7) + 1;
    if (code == 13 || code == 14) line += reader.difference();
    else if (code >= 10 && code <= 12) line += static_cast<std::int32_t>(code) - 10;
    if (instruction < covered) return code == 15 || line < 0 ? 0 : static_cast<std::uint32_t>(line);
    reader.skip();
  }
  return 0;
}

std::size_t put_utf8(char* to, std::size_t room, std::uint32_t point) noexcept {
  if (point >= 0xd800 && point < 0xe000) point = 0xfffd;  // half of a pair
  const std::size_t size = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  if (size > room) return 0;
  if (size == 1) {
    *to = static_cast<char>(point);
    return 1;
  }
  constexpr unsigned char kFirst[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (std::size_t i = size; --i > 0; point >>= 6) to[i] = static_cast<char>(0x80 | (point & 63));
  to[0] = static_cast<char>(kFirst[size] | point);
  return size;
}

}  // namespace

bool CodeTable::start() noexcept {
  if (codes_ == nullptr) codes_ = static_cast<Code*>(map_metadata(sizeof(Code) << kLog2));
  if (lines_ == nullptr)
    lines_ = static_cast<std::atomic<std::uint64_t>*>(map_metadata(sizeof(std::uint64_t) << kLinesLog2));
  return codes_ != nullptr && lines_ != nullptr;
}

CodeTable::Code* CodeTable::find(Address code) noexcept {
  constexpr unsigned kMostSteps = 128;
  constexpr std::size_t kMask = (std::size_t{1} << kLog2) - 1;
  std::size_t index = (code >> 4) * 0x9e3779b97f4a7c15ull >> (64 - kLog2);
  Code* room = nullptr;
  for (unsigned step = 0; step < kMostSteps; ++step, index = (index + 1) & kMask) {
    Code& at = codes_[index];
    const Address seen = at.address.load(std::memory_order_acquire);
    if (seen == code && at.number.load(std::memory_order_acquire) != 0) [[likely]]
      return &at;
    if (seen == 1 && room == nullptr) room = &at;
    if (seen != 0) continue;
    if (room == nullptr) room = &at;
    break;
  }
  if (room == nullptr || next_.load(std::memory_order_relaxed) >= kMostNumber) return nullptr;
  Address free = room->address.load(std::memory_order_relaxed);
  if (free > 1 || !room->address.compare_exchange_strong(free, code, std::memory_order_acq_rel))
    return nullptr;
  room->function.store(0, std::memory_order_relaxed);
  room->file.store(0, std::memory_order_relaxed);
  room->number.store(next_.fetch_add(1, std::memory_order_relaxed), std::memory_order_release);
  return room;
}

void CodeTable::remove(Address code) noexcept {
  constexpr unsigned kMostSteps = 128;
  constexpr std::size_t kMask = (std::size_t{1} << kLog2) - 1;
  std::size_t index = (code >> 4) * 0x9e3779b97f4a7c15ull >> (64 - kLog2);
  for (unsigned step = 0; step < kMostSteps; ++step, index = (index + 1) & kMask) {
    Code& at = codes_[index];
    const Address seen = at.address.load(std::memory_order_acquire);
    if (seen == 0) return;
    if (seen != code) continue;
    at.number.store(0, std::memory_order_release);
    at.address.store(1, std::memory_order_release);
    removals_.fetch_add(1, std::memory_order_acq_rel);
  }
}

Frame CodeTable::frame(const PythonLayout& layout, Address code, std::int64_t instruction) noexcept {
  Code* const known = find(code);
  if (known == nullptr) return cut_frame(Cut::kTableFull);
  const std::uint64_t number = known->number.load(std::memory_order_relaxed);
  const std::uint64_t key = number << 16 | (static_cast<std::uint64_t>(instruction) & 0xffff);
  std::atomic<std::uint64_t>& entry = lines_[key * 0x9e3779b97f4a7c15ull >> (64 - kLinesLog2)];
  const bool fits = instruction >= 0 && instruction <= 0xffff;
  const std::uint64_t seen = entry.load(std::memory_order_relaxed);
  std::uint64_t line;
  if (fits && seen >> 16 == key) [[likely]] {
    line = seen & 0xffff;
  } else {
    const std::uint32_t found = find_python_line(layout, code, instruction);
    const std::uint32_t from = load<std::uint32_t>(code + layout.code_first_line);
    const std::uint64_t distance = std::uint64_t{found} + kBefore - from;
    line = found == 0 ? kNoLine : distance >= kFarLine ? kFarLine : distance;
    if (fits) entry.store(key << 16 | line, std::memory_order_relaxed);
  }
  return special_frame(FrameKind::kPython, number << 16 | line);
}

std::uint32_t CodeTable::line(const PythonLayout& layout, Address code, Frame frame) noexcept {
  const auto line = static_cast<std::uint32_t>(payload_of(frame) & 0xffff);
  if (line >= kFarLine) return 0;
  return load<std::uint32_t>(code + layout.code_first_line) + line - kBefore;
}

void CodeTable::forget_strings() noexcept {
  if (codes_ == nullptr) return;
  for (std::size_t i = 0; i < std::size_t{1} << kLog2; ++i) {
    if (codes_[i].address.load(std::memory_order_relaxed) == 0) continue;
    codes_[i].function.store(0, std::memory_order_relaxed);
    codes_[i].file.store(0, std::memory_order_relaxed);
  }
}

std::uint32_t find_python_line(const PythonLayout& layout, Address code, std::int64_t instruction) noexcept {
  const auto from = static_cast<std::int32_t>(load<std::uint32_t>(code + layout.code_first_line));
  if (instruction < 0) return from < 0 ? 0 : static_cast<std::uint32_t>(from);
  const Address table = load<Address>(code + layout.code_lines);
  if (table == 0) return 0;
  const auto size = load<std::int64_t>(table + layout.bytes_length);
  if (size <= 0) return 0;
  const auto* const at = reinterpret_cast<const unsigned char*>(table + layout.bytes_data);
  if (layout.minor == 10) return line_of_pairs(at, at + size, from, 2 * instruction);
  return line_of_entries(LineReader(at, at + size), from, instruction);
}

std::size_t copy_python_text(const PythonLayout& layout, Address text, char* to, std::size_t room) noexcept {
  if (text == 0) return 0;
  const auto state = load<std::uint32_t>(text + layout.text_state);
  const auto length = load<std::int64_t>(text + layout.text_length);
  const unsigned kind = state >> 2 & 7;
  const bool compact = (state >> 5 & 1) != 0, ascii = (state >> 6 & 1) != 0;
  if (!compact || length < 0 || (kind != 1 && kind != 2 && kind != 4)) return 0;
  const Address data = text + (ascii ? layout.text_ascii : layout.text_other);
  std::size_t size = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const Address at = data + static_cast<Address>(i) * kind;
    const std::uint32_t point = kind == 1   ? load<std::uint8_t>(at)
                                : kind == 2 ? load<std::uint16_t>(at)
                                            : load<std::uint32_t>(at);
    const std::size_t put = put_utf8(to + size, room - size, point);
    if (put == 0) break;
    size += put;
  }
  return size;
}

}  // namespace memoir::stacks
