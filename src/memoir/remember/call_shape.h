// SPDX-License-Identifier: Apache-2.0
//
// A call as one sees it from outside: all that may decide which allocations it makes, in three parts, by how
// much each is worth.
//
//   model(x: float32[1, 3, 128, 130], steps=50, mode="fast")
//
//   form      a hash of what is not a number: float32, 4 dimensions, contiguous, names, the thread's state
//   numbers   1, 3, 128, 130         dimensions: they decide sizes, so a plan is kept per numbers
//   values    50, hash("fast")       they may decide sizes, and seldom do: looked at once they did
#pragma once

#include <cstdint>
#include <vector>

namespace memoir {

struct CallShape {
  struct Value {
    std::int64_t value = 0;  // an integer, or the hash of something else
    bool is_number = false;

    bool operator==(const Value&) const = default;
  };

  std::uint64_t form = 0;
  std::vector<std::int64_t> numbers;
  std::vector<Value> values;

  void clear() noexcept {
    form = 0;
    numbers.clear();
    values.clear();
  }
  void add_to_form(std::uint64_t part) noexcept { form = mix(form, part); }

  static std::uint64_t mix(std::uint64_t hash, std::uint64_t part) noexcept {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15ull;
    return hash ^ (hash >> 29);
  }
};

}  // namespace memoir
