// SPDX-License-Identifier: Apache-2.0
//
// Hashes for tables whose keys a stranger chose: with a key of this process, so that nobody can choose ids
// that collide. Never for what is written to a file or must be the same in two runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memoir/base/site.h"

namespace memoir {

/// Of this process, drawn once. Thread-safe.
std::uint64_t hash_key() noexcept;

inline std::uint64_t keyed_hash(std::uint64_t value, std::uint64_t key) noexcept {
  return detail::mix(value * 0x9e3779b97f4a7c15ull ^ key) + key;
}

/// For std::unordered_map and its kin.
struct KeyedHash {
  std::uint64_t key = hash_key();
  std::size_t operator()(std::uint64_t value) const noexcept { return keyed_hash(value, key); }
};

}  // namespace memoir
