// SPDX-License-Identifier: Apache-2.0
//
// What a simulated device has handed out, range by range and over time: for a picture of segments.
//
//   event      0        3           7
//   [0, 20)    |--------------------|    a segment, taken at 0, given back at 7
//   [20, 24)            |--------->      granules, mapped at 3 and never unmapped
//
// Ranges of two spaces have nothing in common. Uses the heap's memory: for simulations. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

class HeldLog {
 public:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  struct Row {
    std::uint64_t space = 0;
    Range range;  // bytes, as the heap sees them
    std::uint64_t born = 0;
    std::uint64_t died = kNever;
  };

  /// What comes next happens at this event.
  void at(std::uint64_t event) noexcept { now_ = event; }
  /// The device hands out a range. What is held of it already is left as it is.
  void hold(std::uint64_t space, Range range);
  /// The device gets a range back. What is not held of it is left out.
  void release(std::uint64_t space, Range range);
  /// Bytes that are held now.
  Size held() const noexcept { return held_; }
  /// Granules were mapped: ranges that touch are one memory. Segments that touch are two.
  bool is_mapped() const noexcept { return is_mapped_; }
  void set_mapped() noexcept { is_mapped_ = true; }
  /// All of them: what was released, then what is still held.
  std::vector<Row> rows() const;

 private:
  struct Since {
    Offset end = 0;
    std::uint64_t born = 0;
  };
  using Ranges = std::map<Offset, Since>;  // by begin; none overlap
  /// The first that ends behind this offset.
  static Ranges::iterator first_behind(Ranges& ranges, Offset offset);

  std::map<std::uint64_t, Ranges> spaces_;
  std::vector<Row> done_;
  std::uint64_t now_ = 0;
  Size held_ = 0;
  bool is_mapped_ = false;
};

/// Where a device's memory writes what it hands out; `log` nullptr: nowhere. The log is kept alive by the
/// caller.
struct HeldWatch {
  HeldLog* log = nullptr;
  std::uint64_t space = 0;

  void hold(Range range) const {
    if (log != nullptr) log->hold(space, range);
  }
  void release(Range range) const {
    if (log != nullptr) log->release(space, range);
  }
};

}  // namespace memoir
