// SPDX-License-Identifier: Apache-2.0
//
// What the allocations of one structure were asked for at the points seen so far, and so what they will be
// asked for at another one:
//
//   point      64 x 64   64 x 96   80 x 80        96 x 96 ?
//   input       16,384    24,576    25,600         36,864   a form that fits all (size_form.h)
//   workspace        0         0     6,400          9,216   asked for where the nearest point asked for it
//
// A size of 0: not asked for. An operator library takes another way beyond some size, with other workspaces.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memoir/remember/size_form.h"

namespace memoir {

class SizePoints {
 public:
  /// `sizes`: one per allocation. `partial`: that pass asked for more, which is none of these allocations.
  void add(std::vector<std::int64_t> numbers, std::vector<Size> sizes, bool partial = false);
  /// There are `count` allocations from now on: old ones become those of `columns`, ascending; the others
  /// were asked for nowhere. Partial points are forgotten.
  void spread(std::span<const std::uint32_t> columns, size_t count);

  /// The sizes at these numbers; nullopt when there is no saying: they differ from all that were seen in a
  /// number that never varied.
  std::optional<std::vector<Size>> at(const std::vector<std::int64_t>& numbers);
  /// The same, with a size for those too that will not be asked for; as good as is known, if `at` has none.
  std::vector<Size> all_at(const std::vector<std::int64_t>& numbers);

  /// The nearest point is partial: what is asked for there is not all known.
  bool is_partial_near(const std::vector<std::int64_t>& numbers) const;

  /// How many of these numbers are those of one point, at best.
  size_t likeness(const std::vector<std::int64_t>& numbers) const noexcept;
  size_t size() const noexcept { return points_.size(); }

 private:
  using Variables = std::vector<std::int64_t>;
  struct Point {
    std::vector<std::int64_t> numbers;
    std::vector<Size> sizes;
    bool partial = false;
    Variables variables;  // as of the last fit
  };
  struct Column {
    std::optional<SizeForm> form;
    unsigned failures = 0;  // searches that found none
    size_t try_again = 0;   // without a form: once so many points were added
    bool stale = true;
  };

  const Point* find(const std::vector<std::int64_t>& numbers) const noexcept;
  /// Tells the numbers apart, by the points seen: constants, variables of their own, and those that go with
  /// one of these. False when they are told apart as before.
  bool find_roles();
  /// The numbers that the sizes are functions of; nullopt when it is none of which we know enough.
  std::optional<Variables> variables_of(const std::vector<std::int64_t>& numbers) const;
  bool fit();
  std::optional<SizeForm> fit_column(size_t column, size_t& tries) const;
  /// The points, the nearest first.
  std::vector<const Point*> by_distance(const Variables& variables) const;
  Size size_at(size_t column, const Variables& variables, std::span<const Point* const> nearest) const;

  std::vector<Point> points_;  // the latest last
  std::vector<Column> columns_;
  struct Role {
    static constexpr size_t kConstant = ~size_t{0};
    size_t like = kConstant;      // the variable that it is, or goes with
    std::int64_t difference = 0;  // to that one; of a constant its value

    bool operator==(const Role&) const = default;
  };
  std::vector<Role> roles_;     // of each number
  std::vector<size_t> chosen_;  // numbers that are variables
  bool roles_stand_ = false;    // for the points as they are
  size_t fitted_ = 0;           // points that the forms were checked against
  size_t added_ = 0;            // points, ever
  size_t next_column_ = 0;      // whose turn it is to be searched for
};

}  // namespace memoir
