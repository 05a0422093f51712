// SPDX-License-Identifier: Apache-2.0
//
// The wire format of protocol buffers (protobuf.dev, "Encoding"): as much of it as exports take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace memoir {

class ProtoWriter {
 public:
  void varint(std::uint32_t field, std::uint64_t value) {
    number(std::uint64_t{field} << 3);
    number(value);
  }
  void bytes(std::uint32_t field, std::string_view value) {
    number(std::uint64_t{field} << 3 | 2);
    number(value.size());
    bytes_.append(value);
  }
  void message(std::uint32_t field, const ProtoWriter& value) { bytes(field, value.bytes_); }

  std::string_view text() const noexcept { return bytes_; }
  void clear() noexcept { bytes_.clear(); }

 private:
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace memoir
