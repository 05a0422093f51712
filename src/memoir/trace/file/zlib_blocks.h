// SPDX-License-Identifier: Apache-2.0
//
// zlib, taken from the system when the first block needs it: nothing of it is needed to build or to link
// memoir. docs/decisions/traces-compress-with-zlib.md says why it is zlib. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace memoir {

/// Whether this system has zlib.
bool has_zlib() noexcept;

/// `from` compressed into `to`. False, with `to` unspecified, where it would not be smaller or zlib is
/// missing.
bool zlib_compress(std::span<const std::byte> from, int level, std::vector<std::byte>& to);

/// `from`, behind which other bytes may stand, into exactly `to.size()` bytes; false when it is anything else
/// or zlib is missing.
bool zlib_decompress(std::span<const std::byte> from, std::span<std::byte> to) noexcept;

}  // namespace memoir
