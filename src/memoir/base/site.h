// SPDX-License-Identifier: Apache-2.0
//
// Site ids are hashes, not numbers handed out in order of arrival: an allocation site (for PyTorch, a chain
// of operator scopes; for a native program, a call stack) has the same id in every run and every process, so
// that a plan or a model recorded yesterday is matched today without any table.
// docs/decisions/site-ids-are-hashes.md says what a collision costs.
#pragma once

#include <string_view>

#include "memoir/base/units.h"

namespace memoir {

namespace detail {
// the finaliser of splitmix64 (Steele et al. 2014)
inline constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
}  // namespace detail

/// The hash of one frame's name (FNV-1a, finalised).
inline constexpr std::uint64_t hash_name(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return detail::mix(hash);
}

/// The site reached from `parent` (kNoSite at the bottom) through a frame whose name has that hash. Never
/// kNoSite.
inline constexpr SiteId child_site_of_hash(SiteId parent, std::uint64_t hash) noexcept {
  const SiteId site = detail::mix(parent * 0x9e3779b97f4a7c15ull + hash);
  return site == kNoSite ? 1 : site;
}

/// The same through a frame of that name.
inline constexpr SiteId child_site(SiteId parent, std::string_view name) noexcept {
  return child_site_of_hash(parent, hash_name(name));
}

}  // namespace memoir
