// SPDX-License-Identifier: Apache-2.0
//
// Passes that do the same on other sizes: one sequence of allocations, its skeletons (plan/skeleton.h), and
// what the sizes were at the points seen so far (size_points.h). For a point never seen it gives a plan, in
// time linear in the allocations:
//
//   seen     64 x 64     sizes 4096, 16384, ...     \   forms   16384 = 4 * h * w    skeletons   c on a and b
//            64 x 96     sizes 6144, 24576, ...     /           (size_form.h)
//   asked    80 x 112    sizes 8960, 35840, ...  ->  each on those below it
//
// Passes that differ in some operators' workspaces are one structure all the same: its sequence has all of
// them, and the size of what a pass did not ask for is 0 there.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memoir/plan/files/from_trace.h"
#include "memoir/plan/recorded_plan.h"
#include "memoir/plan/skeleton.h"
#include "memoir/remember/size_points.h"
#include "memoir/remember/slab/request_log.h"

namespace memoir {

/// A plan that was not recorded: `allocations[i]` is the template's number of the plan's allocation i.
struct DerivedPlan {
  RecordedPlan plan;
  std::vector<std::uint32_t> allocations;
  bool is_partial = false;  // the nearest pass asked for more: a recording would tell
};

class PassTemplate {
 public:
  /// The same by reference.
  struct Followed {
    std::span<const PlannedAllocation> sequence;
    std::span<const std::uint32_t> allocations;
  };

  /// Of one recorded pass whose numbers were `point`. Throws Error when it cannot be planned.
  PassTemplate(const RecordedPass& pass, std::vector<std::int64_t> point);

  /// True, and the point is known from then on, when that pass is one like this: the same operators in the
  /// same order, but for a few. What outlives either pass is planned for none.
  bool add(const RecordedPass& pass, const std::vector<std::int64_t>& point);
  /// The same of a pass that followed a plan, and whose frees are not known. `followed`: the plan made here
  /// that it followed, unless there was none.
  bool add(const RequestLog& log, const std::vector<std::int64_t>& point, Followed followed = {});

  /// The plan for a point; nullopt when there is no saying: it differs from all that were seen in a number
  /// that never varied.
  std::optional<DerivedPlan> at(const std::vector<std::int64_t>& point);

  /// How many of the point's numbers are those of one that was seen, at best.
  size_t likeness(const std::vector<std::int64_t>& point) const noexcept { return points_.likeness(point); }
  size_t points() const noexcept { return points_.size(); }
  size_t skeletons() const noexcept { return skeletons_.size(); }
  size_t allocations() const noexcept { return sequence_.size(); }
  /// That allocation outlives its pass: it is planned no more.
  void escapes(std::uint32_t allocation) noexcept;

  /// Passes in a row that were as planned here.
  unsigned settled = 0;

 private:
  std::vector<std::uint32_t> merge(const RecordedPass& pass, std::span<const std::uint32_t> partners);
  void add_skeleton(const std::vector<Size>& sizes);
  std::vector<Offset> place(const std::vector<Size>& sizes, Size& arena_size);
  Size load_of(const std::vector<Size>& sizes) const;

  // lifetimes count allocations; offsets are of no use, but for kNoOffset
  std::vector<PlannedAllocation> sequence_;
  std::vector<Size> alignments_;
  struct Placed {
    Skeleton skeleton;
    Size load = 0;  // where it was planned, bytes
    std::uint64_t used = 0;
  };
  std::vector<Placed> skeletons_;
  std::uint64_t uses_ = 0;
  std::vector<std::int64_t> first_;  // the first point
  SizePoints points_;
};

}  // namespace memoir
