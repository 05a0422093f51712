// SPDX-License-Identifier: Apache-2.0
//
// The operations of one block's payload, one after the other: the other side of BlockEncoder. Trusts nothing:
// what cannot be throws an Error that says at which byte of the payload.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "memoir/trace/file/block_format.h"

namespace memoir {

/// LEB128 numbers, one after the other. Bytes from a decoded Item hold whole numbers.
class NumberReader {
 public:
  explicit NumberReader(std::span<const std::byte> bytes) noexcept
      : at_(bytes.data()), end_(at_ + bytes.size()) {}
  /// False, with `value` undefined, when the bytes end or hold a number beyond 64 bits.
  bool read(std::uint64_t& value) noexcept {
    if (at_ < end_ && (*at_ & std::byte{0x80}) == std::byte{0}) [[likely]] {
      value = static_cast<std::uint64_t>(*at_++);
      return true;
    }
    return read_long(value);
  }
  std::uint64_t next() noexcept {
    std::uint64_t value = 0;
    return read(value) ? value : 0;
  }
  bool skip(std::uint64_t numbers) noexcept {
    for (std::uint64_t value; numbers > 0; --numbers) {
      if (!read(value)) return false;
    }
    return true;
  }
  const std::byte* at() const noexcept { return at_; }
  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  void advance(std::size_t bytes) noexcept { at_ += bytes; }

 private:
  bool read_long(std::uint64_t& value) noexcept;

  const std::byte* at_;
  const std::byte* end_;
};

class BlockDecoder {
 public:
  /// One operation. What it names lies in the payload.
  struct Item {
    trace_format::Operation operation{};     // kRecord for all kinds, kAllocate and kFree without their flags
    std::uint8_t flags = 0;                  // kAllocate, kFree
    std::uint64_t tick = 0;                  // of the lane, here
    std::uint64_t address = 0;               // kAllocate, kFree, kMap, kUnmap
    Size size = 0;                           // the same
    std::uint32_t stack = 0;                 // the same
    Family family = Family::kTensor;         // kAllocate
    std::uint8_t alignment_log2 = 0;         // kAllocate
    Event event;                             // kRecord; its time is the tick
    std::string_view text;                   // kRecord, kString; kModule: the build id
    std::array<std::uint64_t, 4> numbers{};  // definitions: the fields, in order
    std::span<const std::byte> list;         // kModule, kStack, kMappings, kSymbol: numbers of the list
  };

  BlockDecoder() = default;
  explicit BlockDecoder(const trace_format::BlockHeader& header) noexcept : tick_(header.tick) {}

  /// The next operation of `payload`, whose first position() bytes were read before; false at its end. The
  /// payload may be longer at the next call (a block that is still written).
  bool next(std::span<const std::byte> payload, Item& item);
  std::size_t position() const noexcept { return at_; }

 private:
  void allocate(NumberReader& numbers, std::uint8_t operation, Item& item);
  void free(NumberReader& numbers, std::uint8_t operation, Item& item);
  std::uint64_t address(NumberReader& numbers, std::uint8_t operation, std::uint64_t& last);
  void record(NumberReader& numbers, std::uint8_t kind, Item& item);
  void define(NumberReader& numbers, trace_format::Operation operation, Item& item);
  std::uint8_t byte(NumberReader& numbers) const;
  std::uint64_t number(NumberReader& numbers) const;
  std::uint32_t small(NumberReader& numbers) const;
  void advance_tick(std::uint64_t ticks);
  [[noreturn]] void fail(const char* what) const;

  std::size_t at_ = 0;  // the operation that is read
  std::uint64_t tick_ = 0;
  trace_format::BlockState state_{};
};

}  // namespace memoir
