// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "memoir/base/units.h"

namespace memoir {

/// The bytes of live objects, which never overlap: an object where others were says that they are gone.
class LiveRanges {
 public:
  /// Adds an object. Those that it reaches into are ended: `gone(address)` for each, one at its own address
  /// as well.
  template <class Gone>
  void add(std::uint64_t address, Size size, const Gone& gone) {
    const std::uint64_t end = address + std::max<Size>(size, 1);
    auto at = ends_.lower_bound(address);
    if (at != ends_.begin() && std::prev(at)->second > address) --at;
    while (at != ends_.end() && at->first < end) {
      gone(at->first);
      at = ends_.erase(at);
    }
    ends_.emplace_hint(at, address, end);
  }
  void remove(std::uint64_t address) { ends_.erase(address); }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by address
};

}  // namespace memoir
