// SPDX-License-Identifier: Apache-2.0
//
// What a reader and the writer of plan files hold a plan against: every rule of
// docs/reference/formats-plan.md that is not about bytes.
#pragma once

#include <string>

#include "memoir/plan/program_plan.h"

namespace memoir {

class PlanProof {
 public:
  /// `name` of the file, for the errors; kept alive by the caller.
  explicit PlanProof(const std::string& name) : name_(name) {}

  /// Throws Error: "name: what", "name: record 3: what".
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse(std::size_t record, const std::string& what) const;

  /// That the plan is one: what a run relies on when it hands out an offset. Throws Error where it is not.
  void prove(const ProgramPlan& plan) const;

 private:
  void prove_memories(const ProgramPlan& plan) const;
  void prove_records(const ProgramPlan& plan) const;
  void prove_layout(const ProgramPlan& plan) const;
  void prove_skeleton(const ProgramPlan& plan) const;

  const std::string& name_;
};

}  // namespace memoir
