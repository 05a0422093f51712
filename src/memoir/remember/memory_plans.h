// SPDX-License-Identifier: Apache-2.0
//
// What a Memory keeps of calls and of their forms: of its two halves alone, memory.cc and memory_learning.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memoir/base/fork_mutex.h"
#include "memoir/plan/program_plan.h"
#include "memoir/remember/memory.h"

namespace memoir {

inline constexpr unsigned kLongestPause =
    64;  // passes between two recordings of what keeps differing, or failing
inline constexpr unsigned kFirstPatience =
    6;  // derived plans in a row that are out of step; then 12, 24, ...

/// What one thread does for all: others find it claimed. In the child of a fork() the claim of a thread that
/// is gone is void.
class Claim {
 public:
  bool is_held() const noexcept { return held_ && generation_ == fork_generation(); }
  bool take() noexcept {
    if (is_held()) return false;
    held_ = true;
    generation_ = fork_generation();
    return true;
  }
  void drop() noexcept { held_ = false; }

 private:
  bool held_ = false;
  std::uint32_t generation_ = 0;
};

struct Memory::Plan {
  std::uint64_t key = 0, form = 0;
  std::vector<std::int64_t> point;  // the call's numbers, then those of its values that are numbers
  std::vector<CallShape::Value> values;
  std::shared_ptr<const RecordedPlan> plan;
  std::shared_ptr<PlannedLayout> layout;
  std::shared_ptr<PassTemplate> derived_from;  // null: these numbers were recorded
  std::vector<std::uint32_t> allocations;      // of derived_from, per allocation of the plan
  bool outdated = false;                       // sizes were learned since it was derived
  bool is_partial = false;                     // see DerivedPlan
  std::uint64_t used = 0;
  Claim recording;
  bool scoped = true;     // the first pass of a plan listens to operators; later ones only after a difference
  unsigned wait = 1;      // passes that may differ before the next recording
  unsigned differed = 0;  // passes that differed since the last recording
  unsigned skip = 0;      // calls that are plain, since something failed
  unsigned failures = 0;
  unsigned tried = 0;    // passes that followed the layout, while it is not known whether it is of use
  unsigned cut_off = 0;  // passes that an exception ended and that left something behind, less the others
  std::shared_ptr<const RecordedPlan> whole;  // with what such passes left behind; null: `plan` has it

  bool needs_recording() const noexcept { return skip == 0 && (layout == nullptr || differed >= wait); }
  bool is_in_step() const noexcept { return layout != nullptr && differed == 0; }
};

struct Memory::Templates {                         // guarded by learning_
  std::vector<std::shared_ptr<PassTemplate>> all;  // the one used last first
};

/// All calls of one form.
struct Memory::Family {
  std::vector<bool> matters;  // per value of the call: allocations differed where it did
  std::shared_ptr<Templates> templates = std::make_shared<Templates>();
  bool has_templates = false;
  unsigned failures = 0;  // derived plans in a row that were of no use
  // Derived plans in a row that were not followed in step, and how many before one is recorded instead.
  unsigned out_of_step = 0, patience = kFirstPatience;
  // Calls with new numbers that a plan could be derived for, and those of them recorded all the same.
  std::uint64_t first_sights = 0, recorded_again = 0;
  bool takes_guests = true;  // until one outlives its pass
  std::uint64_t used = 0;
};

}  // namespace memoir
