// SPDX-License-Identifier: Apache-2.0
//
// .lifetimes files. docs/reference/formats-lifetimes.md specifies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "memoir/base/section_table.h"
#include "memoir/predict/profile/lifetime_profile.h"

namespace memoir {

namespace lifetimes_format {

inline constexpr std::uint64_t kMagic = 0x4c72696f6d656d89;  // 0x89, "memoirL"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kByteOrder = 0x01020304;

struct Header {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t byte_order = kByteOrder;
  std::uint32_t header_size = 64;
  std::uint32_t sections = 0;
  std::uint64_t file_size = 0;
  std::uint64_t reserved[3] = {};
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 64);

enum SectionKind : std::uint32_t {
  kText = 1,
  kModules,
  kFrames,
  kStacks,
  kContexts,
  kCells,
  kRuns,
  kPairs,
  kPoints,
  kTotals
};
inline constexpr std::uint32_t kSections = 10;

/// Of a whole file.
inline std::uint64_t checksum(std::string_view file) noexcept {
  return file_checksum(file, offsetof(Header, checksum));
}

}  // namespace lifetimes_format

/// The whole file, with runs, pairs and text as the profile has them.
std::string write_lifetimes(const LifetimeProfile& profile);
/// Throws Error, which says what is wrong and where, for anything that the format does not allow. Takes
/// memory in proportion to `bytes`. `name` is for messages.
LifetimeProfile read_lifetimes(std::string_view bytes, const std::string& name);

}  // namespace memoir
