// SPDX-License-Identifier: Apache-2.0
//
// The thread that makes the plans of a device's heaps, outside of the lock of its runtime. It is started with
// the first job, and again in a process that was forked: a child has none of its parent's threads, and what
// they were at is lost (the heap gives such a job up after a while).
//
// start() is called by one thread at a time, as under the lock of the runtime; wait() by any, after it.
#pragma once

#include <memory>

#include "memoir/policy/plan_job.h"

namespace memoir {

class PlanThread final : public PlanRunner {
 public:
  PlanThread() noexcept = default;
  ~PlanThread() override;  // waits for the job under way, which is bounded; drops the others
  PlanThread(const PlanThread&) = delete;
  PlanThread& operator=(const PlanThread&) = delete;

  void start(std::shared_ptr<PlanJob> job) noexcept override;
  /// Until every job that was handed over in this process is done.
  void wait() noexcept;

 private:
  struct State;

  bool is_own() const noexcept;

  /// Of the process that made it; never freed in another one, where its lock may be held for ever.
  State* state_ = nullptr;
};

}  // namespace memoir
