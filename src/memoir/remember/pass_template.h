// SPDX-License-Identifier: Apache-2.0
//
// Passes that do the same on other sizes: one sequence of allocations, its skeletons (plan/skeleton.h), and
// what the sizes were at the points seen so far. For a point never seen it gives a plan, in time linear in
// the allocations:
//
//   seen     64 x 64     sizes 4096, 16384, ...     \   forms   16384 = 4 * h * w    skeletons   c on a and b
//            64 x 96     sizes 6144, 24576, ...     /           (size_form.h)
//   asked    80 x 112    sizes 8960, 35840, ...  ->  each on those below it
//
// Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "memoir/host/request_log.h"
#include "memoir/plan/files/from_trace.h"
#include "memoir/plan/recorded_plan.h"
#include "memoir/plan/skeleton.h"
#include "memoir/remember/size_form.h"

namespace memoir {

class PassTemplate {
 public:
  /// Of one recorded pass whose numbers were `point`. Throws Error when it cannot be planned.
  PassTemplate(const RecordedPass& pass, std::vector<std::int64_t> point);

  /// True, and the point is known from then on, when that pass is one like this: the same operators in the
  /// same order. What outlives either pass is planned for none.
  bool add(const RecordedPass& pass, const std::vector<std::int64_t>& point);
  /// The same of a pass that followed a plan, and whose frees are not known. With `followed`, the sequence of
  /// a plan made here, small differences are let pass, and where a request is missing the size is what was
  /// planned.
  bool add(const RequestLog& log, const std::vector<std::int64_t>& point,
           std::span<const PlannedAllocation> followed = {});

  /// The plan for a point; nullopt when there is no saying: it differs from all that were seen in a number
  /// that never varied, or no form was found for a size.
  std::optional<RecordedPlan> at(const std::vector<std::int64_t>& point);

  /// How many of the point's numbers are those of one that was seen, at best.
  size_t likeness(const std::vector<std::int64_t>& point) const noexcept;
  size_t points() const noexcept { return points_.size(); }
  size_t skeletons() const noexcept { return skeletons_.size(); }
  std::span<const PlannedAllocation> sequence() const noexcept { return sequence_; }
  /// That allocation outlives its pass: it is planned no more.
  void escapes(std::uint32_t allocation) noexcept;

  /// Passes in a row that were as planned here.
  unsigned settled = 0;

 private:
  struct Point {
    std::vector<std::int64_t> numbers;
    std::vector<Size> sizes;  // one per allocation
  };

  void add_point(Point point);
  void add_skeleton(const std::vector<Size>& sizes);
  std::optional<RecordedPlan> place_well(const std::vector<Size>& sizes);
  bool fit();
  /// The numbers that the sizes are functions of, of one point; nullopt when it is none of which we know
  /// enough.
  std::optional<std::vector<std::int64_t>> variables_of(const std::vector<std::int64_t>& numbers) const;
  std::optional<RecordedPlan> place(const std::vector<Size>& sizes);
  Size load_of(const std::vector<Size>& sizes) const;

  std::vector<PlannedAllocation>
      sequence_;  // lifetimes count allocations; offsets are of no use, but for kNoOffset
  std::vector<Size> alignments_;
  struct Placed {
    Skeleton skeleton;
    Size load = 0;  // where it was planned, bytes
    std::uint64_t used = 0;
  };
  std::vector<Placed> skeletons_;
  std::uint64_t uses_ = 0;
  std::vector<Point> points_;  // the latest last
  std::vector<std::optional<SizeForm>> forms_;
  bool fitted_ = false;
};

}  // namespace memoir
