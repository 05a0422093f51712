// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/pickle/pickle_writer.h"

#include <bit>
#include <cstring>

namespace memoir {

namespace {

/// An opcode and a number of `size` bytes.
std::string coded(char opcode, std::uint64_t value, std::size_t size) {
  std::string bytes(1 + size, opcode);
  std::memcpy(bytes.data() + 1, &value, size);
  return bytes;
}

}  // namespace

void PickleWriter::natural(std::uint64_t value) {
  if (value < 256) {
    output_.put(coded('K', value, 1));
  } else if (value < 65'536) {
    output_.put(coded('M', value, 2));
  } else if (value < std::uint64_t{1} << 31) {
    output_.put(coded('J', value, 4));
  } else {  // little-endian two's complement: a byte more when the sign bit would be set
    const std::size_t size = std::bit_width(value) / 8 + 1;
    char bytes[16] = {};
    std::memcpy(bytes, &value, sizeof value);
    output_.put('\x8a');
    output_.put(static_cast<char>(size));
    output_.put(std::string_view(bytes, size));
  }
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= 0) {
    natural(static_cast<std::uint64_t>(value));
    return;
  }
  output_.put('\x8a');
  output_.put(coded('\x08', static_cast<std::uint64_t>(value), 8));
}

void PickleWriter::number(double value) {
  output_.put(coded('G', __builtin_bswap64(std::bit_cast<std::uint64_t>(value)), 8));
}

void PickleWriter::string(std::string_view text) {
  const auto [known, fresh] = strings_.emplace(text, memos_);
  if (!fresh) {
    get(known->second);
    return;
  }
  if (text.size() < 256) output_.put(coded('\x8c', text.size(), 1));
  else output_.put(coded('X', text.size(), 4));
  output_.put(text);
  output_.put('\x94');
  ++memos_;
}

void PickleWriter::get(std::uint32_t memo) {
  if (memo < 256) output_.put(coded('h', memo, 1));
  else output_.put(coded('j', memo, 4));
}

void PickleWriter::begin_list() {
  output_.put("](");
  items_.push_back(0);
}

void PickleWriter::item() {
  if (items_.back() == kBatch) {
    output_.put("e(");
    items_.back() = 0;
  }
  ++items_.back();
}

void PickleWriter::end_list() {
  output_.put('e');
  items_.pop_back();
}

std::uint32_t PickleWriter::begin_kept_dict() {
  output_.put("}\x94(");
  return memos_++;
}

std::uint32_t PickleWriter::begin_kept_list() {
  output_.put("]\x94(");
  items_.push_back(0);
  return memos_++;
}

}  // namespace memoir
